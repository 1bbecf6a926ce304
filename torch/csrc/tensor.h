// SPDX-License-Identifier: MIT
// Makes the output tensors of native kernels: our memory, no dispatcher, as few steps as PyTorch
// allows.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <limits>

#include "hologram/buffer.h"
#include "hologram/device.h"
#include "hologram/memory.h"

namespace hologram_torch {

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;
inline c10::Device device() { return c10::Device(kDeviceType, 0); }
inline bool is_ours(const at::Tensor& t) { return t.device().type() == kDeviceType; }

// The one allocator of the device; its deleter is release_buffer, its context a hologram::Buffer.
c10::Allocator* device_allocator();

// Gives back the Buffer that is a DataPtr's context.
void release_buffer(void* buffer);

// Raises torch.OutOfMemoryError or what else fits the error just caught.
[[noreturn]] void rethrow_as_torch(const std::exception& error, size_t nbytes);

// The device our memory comes from, looked up once.
hologram::Device& memory_device();

// The buffer behind a storage, or null when its memory came from elsewhere (the CPU fallback,
// from_blob, a file).
inline hologram::Buffer* buffer_of(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  return data.get_deleter() == &release_buffer ? static_cast<hologram::Buffer*>(data.get_context())
                                               : nullptr;
}

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
inline c10::DataPtr allocate_bytes(size_t nbytes) {
  if (C10_UNLIKELY(nbytes == 0)) return c10::DataPtr(nullptr, device());
  try {
    hologram::Buffer* buffer = hologram::allocate_buffer(memory_device(), nbytes);
    return c10::DataPtr(buffer->data(), buffer, &release_buffer, device());
  } catch (const std::exception& error) {
    rethrow_as_torch(error, nbytes);
  }
}

inline c10::intrusive_ptr<c10::StorageImpl> make_storage(size_t nbytes) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(nbytes)),
      allocate_bytes(nbytes), device_allocator(), /*resizable=*/true);
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
  return c10::make_intrusive<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(std::move(storage)), dense_keys(), dtype);
}

// A contiguous tensor of undefined contents.
inline at::Tensor make_tensor(c10::IntArrayRef sizes, c10::ScalarType dtype) {
  const caffe2::TypeMeta meta = c10::scalarTypeToTypeMeta(dtype);
  auto impl = make_impl(make_storage(contiguous_nbytes(sizes, meta.itemsize())), meta);
  if (sizes.size() != 1 || sizes[0] != 0) impl->set_sizes_contiguous(sizes);
  return at::Tensor(std::move(impl));
}

// A tensor of these sizes and (non-negative) strides, undefined contents.
at::Tensor make_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype);

// empty_like with preserve_format: the strides of a dense tensor, else as dense as can be in the
// same order of dimensions.
at::Tensor make_like_any(const at::Tensor& t, c10::ScalarType dtype);

inline at::Tensor make_like(const at::Tensor& t, c10::ScalarType dtype) {
  if (C10_LIKELY(t.is_contiguous())) return make_tensor(t.sizes(), dtype);
  return make_like_any(t, dtype);
}
inline at::Tensor make_like(const at::Tensor& t) { return make_like(t, t.scalar_type()); }

// empty.memory_format of an explicit format.
at::Tensor make_formatted(c10::IntArrayRef sizes, c10::ScalarType dtype, c10::MemoryFormat format);

}  // namespace hologram_torch
