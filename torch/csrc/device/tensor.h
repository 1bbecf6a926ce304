// SPDX-License-Identifier: MIT
// Makes the output tensors of native kernels, and knows where the bytes of a storage are: our
// memory, no dispatcher, as few steps as PyTorch allows.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <torch/version.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "device/foreign_operators.h"
#include "device/memory_profile.h"
#include "device/object_pool.h"
#include "hologram/buffer.h"
#include "hologram/device.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"

namespace hologram_torch {

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;
inline c10::Device device(c10::DeviceIndex index = 0) {
  // An index that is no constant is checked by the constructor.
  return C10_LIKELY(index == 0) ? c10::Device(kDeviceType, 0) : c10::Device(kDeviceType, index);
}
inline bool is_ours(const at::Tensor& t) { return t.device().type() == kDeviceType; }
// Whether sizes or strides are symbols, as a trace may have them: they must not be asked for as
// numbers.
inline bool has_symbols(const at::Tensor& t) {
  return t.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// Whether it is a class of Python that takes calls itself, as a trace's tensors are, which have no
// memory.
inline bool is_of_python(const at::Tensor& t) { return t.key_set().has(c10::DispatchKey::Python); }

// The one allocator of the device; its deleter is release_buffer, its context a hologram::Buffer.
c10::Allocator* device_allocator();

// Gives back the Buffer that is a DataPtr's context.
void release_buffer(void* buffer);

// Raises torch.OutOfMemoryError or what else fits the error just caught.
[[noreturn]] void rethrow_as_torch(const std::exception& error, size_t nbytes);

// The library's device of an index; that of index 0 is looked up once. Raises for an index that
// there is not.
hologram::Device& memory_device(c10::DeviceIndex index = 0);
// How many there are; the library's numbering is PyTorch's.
c10::DeviceIndex device_count();
// Raises for an index that there is not.
void check_index(int64_t index);
// The device that a wish means: the current one where it has no index. Raises for one that there is
// not.
c10::DeviceIndex index_of(const std::optional<c10::Device>& wish);

// Whether the host can read the memory of an index. Index 0 is the CPU.
[[gnu::cold]] bool is_host_device(c10::DeviceIndex index);
inline bool is_host_index(c10::DeviceIndex index) {
  return C10_LIKELY(index == 0) || is_host_device(index);
}

// Runs everything recorded on every device; errors are PyTorch's.
void flush_recorded();

// Whether PyTorch asks us before foreign code gets an address (2.13 on). Only then may work wait.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
#define HOLOGRAM_CAN_DEFER 1
#else
#define HOLOGRAM_CAN_DEFER 0
#endif
inline constexpr bool kCanDefer = HOLOGRAM_CAN_DEFER != 0;
inline bool is_deferring() { return kCanDefer && hologram::is_deferring(); }

// --- Storages --------------------------------------------------------------------------------
//
// The address in a storage's DataPtr is that of its Buffer's memory, or, from the moment an op that
// writes the bytes is recorded until storage_bytes() or hand_out() is asked, nowhere_of() it: null
// would mean an invalid storage to PyTorch, and the true address old bytes to who reads it through
// const_data_ptr(), of which PyTorch does not tell. Our own code asks storage_bytes(), which first
// runs the recorded work that still has to touch the bytes. Foreign code asks PyTorch, which asks
// hand_out().

// The first of a range of addresses that fault when touched, with a message (nowhere.cc), and the
// bits by which the addresses differ that storages show.
extern void* const kNowhere;
extern const uintptr_t kNowhereMask;
// An address for each buffer, by which PyTorch's profiler tells storages apart.
inline void* nowhere_of(const hologram::Buffer* buffer) {
  return static_cast<char*>(kNowhere) + (reinterpret_cast<uintptr_t>(buffer) & kNowhereMask);
}
inline bool is_nowhere(const void* address) {
  return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(kNowhere) <=
         kNowhereMask;
}

inline const c10::DataPtr& data_ptr_of(const c10::StorageImpl& storage) {
  // The public accessors throw or materialise; here neither is wanted.
  return const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
}

// The buffer behind a storage, or null when its memory came from elsewhere (from_blob, a file,
// results that the CPU fallback shares with other code).
inline hologram::Buffer* buffer_of(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = data_ptr_of(storage);
  return data.get_deleter() == &release_buffer ? static_cast<hologram::Buffer*>(data.get_context())
                                               : nullptr;
}

// Runs what has to run before the bytes may be touched, and corrects the storage's address.
// Throws c10::OutOfMemoryError and whatever running threw.
[[gnu::cold]] void settle_storage(c10::StorageImpl& storage, hologram::Buffer& buffer);

// Makes the storage show the address of its buffer, which has memory.
[[gnu::cold]] void correct_address(const c10::StorageImpl& storage, const hologram::Buffer& buffer);
// Makes the storage show no address that can be read.
[[gnu::cold]] void hide_address(const c10::StorageImpl& storage);

// Raises, where this thread is not exempt: while a graph is captured nothing is computed.
[[gnu::cold]] void check_look();
// Raises: the op cannot be part of a graph.
[[noreturn, gnu::cold]] void cannot_capture(const char* op);
// For ops that compute in another way where a graph is captured: whether one is. Raises as
// cannot_capture() where it is a function, whose results have the bits of eager code.
bool captures_otherwise(const char* op);
// While it lives this thread may look at bytes that it computes itself.
class CaptureExempt {
 public:
  CaptureExempt();
  ~CaptureExempt();
  CaptureExempt(const CaptureExempt&) = delete;
  CaptureExempt& operator=(const CaptureExempt&) = delete;
};

// The bytes of a storage, for reading and writing: nothing recorded touches them any more. Safe
// from any thread.
inline char* storage_bytes(c10::StorageImpl& storage) {
  hologram::Buffer* buffer = buffer_of(storage);
  if (C10_UNLIKELY(buffer == nullptr)) return static_cast<char*>(storage.mutable_data());
  if (C10_UNLIKELY(hologram::is_capturing_graph())) check_look();
  // Throws for storages that PyTorch has closed.
  const void* address = storage.data();
  if (C10_LIKELY(!hologram::is_pending(*buffer) && address == buffer->data())) {
    return static_cast<char*>(buffer->data());
  }
  settle_storage(storage, *buffer);
  return static_cast<char*>(buffer->data());
}
// The bytes for reading only: recorded ops that read them may still wait.
inline const char* storage_bytes(const c10::StorageImpl& storage) {
  hologram::Buffer* buffer = buffer_of(storage);
  if (C10_UNLIKELY(buffer == nullptr)) return static_cast<const char*>(storage.data());
  if (C10_UNLIKELY(hologram::is_capturing_graph())) check_look();
  if (C10_UNLIKELY(!hologram::is_readable(*buffer))) {
    return storage_bytes(const_cast<c10::StorageImpl&>(storage));
  }
  if (C10_UNLIKELY(storage.data() != buffer->data())) correct_address(storage, *buffer);
  return static_cast<const char*>(buffer->data());
}

// PyTorch is about to give the address to code that is not ours: the bytes are settled, and ops on
// the storage run at once from now on. PyTorch calls it once for a watched storage.
void hand_out(c10::StorageImpl* storage);

// Makes PyTorch call hand_out. Storages that are not watched are never recorded on.
inline void watch([[maybe_unused]] c10::StorageImpl& storage) {
#if HOLOGRAM_CAN_DEFER
  storage.set_materializer(&hand_out);
#endif
}
inline bool is_watched([[maybe_unused]] const c10::StorageImpl& storage) {
#if HOLOGRAM_CAN_DEFER
  return storage.has_materializer();
#else
  return false;
#endif
}

// Between these, addresses that this thread asks PyTorch for only tell storages apart, as
// torch.save uses them: it does not keep them, so storages are watched again afterwards. They nest.
void begin_naming();
void end_naming();

// Ends the watch because foreign code has, or keeps, the address.
void export_storage(c10::StorageImpl& storage);

// Makes memory of others, as `data` holds it, a Buffer of ours. `data` keeps its address.
void adopt_memory(c10::DataPtr& data, size_t nbytes);

// The keys TensorImpl would work out for a dense tensor of ours.
inline c10::DispatchKeySet dense_keys() {
  static const c10::DispatchKeySet keys =
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) |
      c10::getAutocastRelatedKeySetFromBackend(c10::BackendComponent::PrivateUse1Bit) |
      c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::PrivateUse1Bit);
  return c10::InferenceMode::is_enabled()
             ? keys - c10::autograd_dispatch_keyset_with_ADInplaceOrView
             : keys;
}

// Undefined memory. Throws c10::OutOfMemoryError.
inline c10::DataPtr allocate_bytes(size_t nbytes, c10::DeviceIndex index = 0) {
  if (C10_UNLIKELY(nbytes == 0)) return c10::DataPtr(nullptr, device(index));
  try {
    hologram::Buffer* buffer = hologram::allocate_buffer(memory_device(index), nbytes);
    if (C10_UNLIKELY(may_profile_memory())) report_taken(*buffer);
    return c10::DataPtr(buffer->data(), buffer, &release_buffer, device(index));
  } catch (const std::exception& error) {
    rethrow_as_torch(error, nbytes);
  }
}

// Where execution is deferred, memory that is there when it is needed; otherwise the same.
inline c10::DataPtr promise_bytes(size_t nbytes, c10::DeviceIndex index = 0) {
  if (!is_deferring() || C10_UNLIKELY(nbytes == 0)) return allocate_bytes(nbytes, index);
  notice_foreign_operators();
  try {
    hologram::Buffer* buffer = hologram::allocate_deferred(memory_device(index), nbytes);
    if (C10_UNLIKELY(may_profile_memory())) report_taken(*buffer);
    return c10::DataPtr(nowhere_of(buffer), buffer, &release_buffer, device(index));
  } catch (const std::exception& error) {
    rethrow_as_torch(error, nbytes);
  }
}

inline c10::intrusive_ptr<c10::StorageImpl> make_storage(size_t nbytes,
                                                         c10::DeviceIndex index = 0) {
  auto storage = c10::make_intrusive<Pooled<c10::StorageImpl, PlaceKind::kStorage>>(
      c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(nbytes)),
      promise_bytes(nbytes, index), device_allocator(), /*resizable=*/true);
  watch(*storage);
  return storage;
}

// Bytes of a contiguous tensor; raises PyTorch's errors for negative and absurd sizes.
size_t checked_nbytes(c10::IntArrayRef sizes, size_t itemsize);

inline size_t contiguous_nbytes(c10::IntArrayRef sizes, size_t itemsize) {
  size_t n = itemsize;
  // Each factor below 2^31 and the product below 2^62 cannot have wrapped: the careful way for the
  // rest.
  for (int64_t size : sizes) {
    if (C10_UNLIKELY(static_cast<uint64_t>(size) > 0x7fffffffu || n > 0x7fffffffu)) {
      return checked_nbytes(sizes, itemsize);
    }
    n *= static_cast<size_t>(size);
  }
  return n;
}

inline c10::intrusive_ptr<c10::TensorImpl> make_impl(c10::intrusive_ptr<c10::StorageImpl> storage,
                                                     caffe2::TypeMeta dtype) {
  // VIEW is the constructor that takes the keys as they are; nothing else about it means a view.
  return c10::make_intrusive<Pooled<c10::TensorImpl, PlaceKind::kTensor>>(
      c10::TensorImpl::VIEW, c10::Storage(std::move(storage)), dense_keys(), dtype);
}

// A contiguous tensor of undefined contents. As with all below, of the device of that index.
inline at::Tensor make_tensor(c10::IntArrayRef sizes, c10::ScalarType dtype,
                              c10::DeviceIndex index = 0) {
  const caffe2::TypeMeta meta = c10::scalarTypeToTypeMeta(dtype);
  auto impl = make_impl(make_storage(contiguous_nbytes(sizes, meta.itemsize()), index), meta);
  if (sizes.size() != 1 || sizes[0] != 0) impl->set_sizes_contiguous(sizes);
  return at::Tensor(std::move(impl));
}

// The same beside t, on its device.
inline at::Tensor new_empty(const at::Tensor& t, c10::IntArrayRef sizes, c10::ScalarType dtype) {
  return make_tensor(sizes, dtype, t.device().index());
}
inline at::Tensor new_empty(const at::Tensor& t, c10::IntArrayRef sizes) {
  return new_empty(t, sizes, t.scalar_type());
}

// A tensor of these sizes and (non-negative) strides, undefined contents.
at::Tensor make_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                        c10::DeviceIndex index = 0);

// empty_like with preserve_format: the strides of a dense tensor, else as dense as can be in the
// same order of dimensions. On the device of t.
at::Tensor make_like_any(const at::Tensor& t, c10::ScalarType dtype);

// Whether the strides of a contiguous tensor are those that a new one has, also where a dimension
// of one element allows any.
inline bool has_usual_strides(const c10::TensorImpl* t) {
  const c10::IntArrayRef sizes = t->sizes(), strides = t->strides();
  int64_t next = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (strides[d] != next) return false;
    next *= std::max<int64_t>(sizes[d], 1);
  }
  return true;
}

inline at::Tensor make_like(const at::Tensor& t, c10::ScalarType dtype) {
  if (C10_LIKELY(t.is_contiguous() && has_usual_strides(t.unsafeGetTensorImpl())))
    return make_tensor(t.sizes(), dtype, std::max<c10::DeviceIndex>(t.device().index(), 0));
  return make_like_any(t, dtype);
}
inline at::Tensor make_like(const at::Tensor& t) { return make_like(t, t.scalar_type()); }

// empty.memory_format of an explicit format.
at::Tensor make_formatted(c10::IntArrayRef sizes, c10::ScalarType dtype, c10::MemoryFormat format,
                          c10::DeviceIndex index = 0);

// --- Memory that the host cannot read ----------------------------------------------------------

// Bytes of a storage to the host and back, and from one storage to another of the same device,
// behind all that is recorded. Any number up to the storage's. Raise PyTorch's errors.
void read_storage(const c10::StorageImpl& storage, size_t offset, void* to, size_t nbytes);
void write_storage(c10::StorageImpl& storage, size_t offset, const void* from, size_t nbytes);
// Makes a storage of such a device hold at least `nbytes`, the old ones kept.
void grow_storage(c10::StorageImpl& storage, size_t nbytes);

}  // namespace hologram_torch
