// SPDX-License-Identifier: MIT
// Aliases of dense tensors, and at the end those of sparse, quantized and nested ones.
#include "host/alias.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstring>
#include <exception>

namespace hologram_torch {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::StorageImpl;
using c10::TensorImpl;

class AliasAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    c10::DataPtr data = allocate_bytes(nbytes);
    data.unsafe_set_device(kCpu);
    return data;
  }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    std::memcpy(dest, src, count);
  }
};

AliasAllocator* const g_alias_allocator = new AliasAllocator();

DispatchKeySet cpu_dense_keys() {
  static const DispatchKeySet keys =
      DispatchKeySet(DispatchKey::CPU) |
      c10::getAutocastRelatedKeySetFromBackend(c10::BackendComponent::CPUBit) |
      c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::CPUBit);
  return keys;
}

constexpr DispatchKeySet kLazyBits({DispatchKey::Conjugate, DispatchKey::Negative,
                                    DispatchKey::ZeroTensor});

bool is_strided(const at::Tensor& t) {
  constexpr DispatchKeySet kSpecial({DispatchKey::Sparse, DispatchKey::SparseCsr,
                                     DispatchKey::Quantized, DispatchKey::NestedTensor});
  return !t.key_set().has_any(kSpecial);
}

// An alias of a copy-on-write clone is about to be written: the clone gets memory of its own.
[[maybe_unused]] void write_original(StorageImpl* alias) {
  c10::DataPtr& data = alias->_mutable_data_ptr_no_checks();
  if (data.get_deleter() != &release_storage) return;  // the kernel has put other memory there
  auto* original =
      static_cast<StorageImpl*>(static_cast<c10::intrusive_ptr_target*>(data.get_context()));
  void* const bytes = original->mutable_data();
  void* const context = data.release_context();
  alias->set_data_ptr_noswap(c10::DataPtr(bytes, context, &release_storage, kCpu));
}

void copy_geometry(TensorImpl* to, const TensorImpl* from) {
  to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
}

}  // namespace

void release_storage(void* storage) {
  c10::raw::intrusive_ptr::decref(static_cast<c10::intrusive_ptr_target*>(storage));
}

c10::Allocator* alias_allocator() { return g_alias_allocator; }

AliasScope::~AliasScope() {
  for (const Pair& pair : pairs_) {
    if (C10_LIKELY(pair.alias.use_count() == 1 || pair.copied)) continue;
    // The arguments of a call that failed are still on their way out.
    if (std::uncaught_exceptions() == 0) keep_alias(*pair.original, *pair.alias);
  }
}

void AliasScope::keep_alias(StorageImpl& original, StorageImpl& alias) const noexcept {
  try {
    // A copy-on-write clone moves when it is written, and its alias has to move with it.
    if (is_watched(alias)) alias.mutable_data();
    if (!keeps_recording_) export_storage(original);
  } catch (...) {
    // Its bytes were settled when it was aliased, so there is nothing left that could fail.
  }
}

c10::intrusive_ptr<StorageImpl> AliasScope::alias_storage(const c10::Storage& storage) {
  StorageImpl* original = storage.unsafeGetStorageImpl();
  for (const Pair& pair : pairs_) {
    if (pair.original == original) return pair.alias;
  }
  const c10::DeviceIndex index = original->device().index();
  if (index_ < 0) index_ = index;
  if (C10_UNLIKELY(!is_host_index(index))) {
    const size_t nbytes = original->nbytes();
    auto copy = c10::make_intrusive<StorageImpl>(
        StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(nbytes)),
        c10::GetCPUAllocator()->allocate(nbytes), c10::GetCPUAllocator(), original->resizable());
    read_storage(*original, 0, copy->mutable_data(), nbytes);
    pairs_.push_back({original, copy, /*copied=*/true});
    return copy;
  }
  // Copy-on-write clones stay shared while kernels read them.
  const bool shared = buffer_of(*original) == nullptr && is_watched(*original);
  const StorageImpl& read_only = *original;
  char* const bytes =
      shared ? const_cast<char*>(storage_bytes(read_only)) : storage_bytes(*original);
  c10::raw::intrusive_ptr::incref(original);
  c10::DataPtr data(bytes, static_cast<c10::intrusive_ptr_target*>(original), &release_storage,
                    kCpu);
  auto alias = c10::make_intrusive<StorageImpl>(
      StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(original->nbytes())),
      std::move(data), g_alias_allocator, original->resizable());
#if HOLOGRAM_CAN_DEFER
  if (C10_UNLIKELY(shared)) alias->set_materializer(&write_original);
#endif
  pairs_.push_back({original, alias});
  return alias;
}

at::Tensor AliasScope::to_cpu(const at::Tensor& t) {
  if (!t.defined() || !is_ours(t)) return t;
  if (C10_UNLIKELY(!is_strided(t))) return special_to_cpu(t);
  TensorImpl* from = t.unsafeGetTensorImpl();
  const DispatchKeySet lazy = from->key_set() & kLazyBits;
  if (C10_UNLIKELY(!from->has_storage() || !from->unsafe_storage())) {
    TORCH_CHECK_NOT_IMPLEMENTED(false,
                                "hologram: this tensor has no storage of its own (a wrapper "
                                "subclass or an opaque tensor), so a CPU kernel cannot read it");
  }
  auto impl = c10::make_intrusive<TensorImpl>(TensorImpl::VIEW,
                                              c10::Storage(alias_storage(from->unsafe_storage())),
                                              cpu_dense_keys() | lazy, from->dtype());
  copy_geometry(impl.get(), from);
  if (from->is_wrapped_number()) impl->set_wrapped_number(true);
  // Some kernels compute more when a backward will follow.
  if (from->requires_grad()) impl->set_requires_grad(true);
  return at::Tensor(std::move(impl));
}

std::vector<at::Tensor> AliasScope::to_cpu(at::TensorList list) {
  std::vector<at::Tensor> result;
  result.reserve(list.size());
  for (const at::Tensor& t : list) result.push_back(to_cpu(t));
  return result;
}

c10::intrusive_ptr<StorageImpl> AliasScope::device_storage(const c10::Storage& cpu) {
  StorageImpl* from = cpu.unsafeGetStorageImpl();
  for (const Pair& pair : pairs_) {
    if (pair.alias.get() == from) {
      return c10::intrusive_ptr<StorageImpl>::reclaim_copy(pair.original);
    }
  }
  if (C10_UNLIKELY(!is_host_index(index()))) {
    auto made = make_storage(from->nbytes(), index());
    write_storage(*made, 0, from->data(), from->nbytes());
    pairs_.push_back(
        {made.get(), c10::intrusive_ptr<StorageImpl>::reclaim_copy(from), /*copied=*/true});
    return made;
  }
  // Memory of the CPU allocator's: the new storage owns the old one.
  c10::raw::intrusive_ptr::incref(from);
  c10::DataPtr data(from->mutable_data(), static_cast<c10::intrusive_ptr_target*>(from),
                    &release_storage, device());
  auto ours = c10::make_intrusive<StorageImpl>(
      StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(from->nbytes())),
      std::move(data), device_allocator(), /*resizable=*/true);
  // Further results over the same CPU storage must share ours. The scope keeps `from` alive, and
  // the caller of to_device keeps `ours` alive for as long as the scope lasts.
  pairs_.push_back({ours.get(), c10::intrusive_ptr<StorageImpl>::reclaim_copy(from)});
  return ours;
}

at::Tensor AliasScope::to_device(at::Tensor result) {
  if (!result.defined() || !result.device().is_cpu()) return result;
  if (C10_UNLIKELY(!is_strided(result) || result.layout() != c10::kStrided)) {
    return special_to_device(result);
  }
  TensorImpl* impl = result.unsafeGetTensorImpl();
  const c10::Storage& storage = impl->unsafe_storage();
  // The usual fresh result has no other owner: change its device and keep the objects.
  if (C10_LIKELY(is_host_index(index()) && result.use_count() == 1 && storage.use_count() == 1 &&
                 impl->allow_tensor_metadata_change())) {
    StorageImpl* s = storage.unsafeGetStorageImpl();
    c10::DataPtr& data = s->_mutable_data_ptr_no_checks();
    data.unsafe_set_device(device(index()));
    if (kCanDefer && s->allocator() == c10::GetCPUAllocator() && !is_watched(*s)) {
      adopt_memory(data, s->nbytes());
      watch(*s);
    }
    s->set_allocator(device_allocator());
    impl->_change_backend_component_keys(device(index()));
    impl->set_storage_keep_dtype(c10::Storage(storage));
    if (c10::InferenceMode::is_enabled() != impl->is_inference()) {
      // Made below autograd in the same mode as the call itself: cannot differ.
      TORCH_INTERNAL_ASSERT(false, "inference mode changed during a call");
    }
    return result;
  }
  // A view of a tensor from outside of inference mode keeps its versions there.
  const c10::InferenceMode mode(impl->is_inference());
  auto ours = make_impl(device_storage(storage), impl->dtype());
  copy_geometry(ours.get(), impl);
  if (impl->is_conj()) ours->_set_conj(true);
  if (impl->is_neg()) ours->_set_neg(true);
  if (impl->is_wrapped_number()) ours->set_wrapped_number(true);
  return at::Tensor(std::move(ours));
}

void AliasScope::adopt_changes(const at::Tensor& original, const at::Tensor& alias) {
  if (C10_UNLIKELY(!is_strided(original))) {
    adopt_special(original, alias);
    return;
  }
  TensorImpl* to = original.unsafeGetTensorImpl();
  TensorImpl* from = alias.unsafeGetTensorImpl();
  StorageImpl* to_storage = to->unsafe_storage().unsafeGetStorageImpl();
  StorageImpl* from_storage = from->unsafe_storage().unsafeGetStorageImpl();
  const c10::DataPtr& data = from_storage->_mutable_data_ptr_no_checks();
  const auto copied = std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& pair) {
    return pair.copied && pair.alias.get() == from_storage && pair.original == to_storage;
  });
  if (C10_UNLIKELY(copied != pairs_.end())) {
    copied->written = true;
  } else if (data.get_context() != static_cast<c10::intrusive_ptr_target*>(to_storage)) {
    bool known = false;
    for (const Pair& pair : pairs_) {
      known = known || (pair.alias.get() == from_storage && pair.original == to_storage);
    }
    if (!known) {
      // The kernel gave the tensor another storage (set_).
      to->set_storage_keep_dtype(c10::Storage(device_storage(from->unsafe_storage())));
    } else if (data.get() != data_ptr_of(*to_storage).get() ||
               from_storage->nbytes() != to_storage->nbytes()) {
      c10::DataPtr grown = from_storage->set_data_ptr(c10::DataPtr(nullptr, kCpu));
      grown.unsafe_set_device(device());
      // What remains of the alias must not free or outlive what it now borrows.
      c10::raw::intrusive_ptr::incref(to_storage);
      from_storage->set_data_ptr_noswap(
          c10::DataPtr(grown.get(), static_cast<c10::intrusive_ptr_target*>(to_storage),
                       &release_storage, kCpu));
#if HOLOGRAM_CAN_DEFER
      // A copy-on-write clone no longer is one.
      if (buffer_of(*to_storage) == nullptr) to_storage->clear_materializer();
#endif
      to_storage->set_data_ptr_noswap(std::move(grown));
      to_storage->set_nbytes(from_storage->nbytes());
    }
  }
  if (to->storage_offset() != from->storage_offset() || to->sizes() != from->sizes() ||
      to->strides() != from->strides()) {
    copy_geometry(to, from);
  }
  // A kernel may leave its result conjugated or negated lazily.
  if (to->is_conj() != from->is_conj()) to->_set_conj(from->is_conj());
  if (to->is_neg() != from->is_neg()) to->_set_neg(from->is_neg());
}

void AliasScope::write_back() {
  for (Pair& pair : pairs_) {
    if (C10_LIKELY(!pair.copied || !pair.written)) continue;
    // The kernel may have resized it, in memory of its own.
    const size_t nbytes = pair.alias->nbytes();
    if (nbytes > pair.original->nbytes()) grow_storage(*pair.original, nbytes);
    write_storage(*pair.original, 0, pair.alias->data(), nbytes);
  }
}

// --- Sparse, quantized, nested ----------------------------------------------------------------

namespace {

// The nested tensor `like` on other memory. Made as a view, which takes its keys from the buffer
// that it views: a tensor from outside of inference mode keeps its versions there, and so do its
// views.
at::Tensor nested_on(c10::intrusive_ptr<StorageImpl> storage, DispatchKey key,
                     const at::Tensor& like) {
  auto* from = static_cast<at::native::NestedTensorImpl*>(like.unsafeGetTensorImpl());
  const c10::BackendComponent backend = c10::toBackendComponent(key);
  DispatchKeySet keys = DispatchKeySet(key) | c10::getAutocastRelatedKeySetFromBackend(backend);
  if (!like.is_inference()) keys = keys | c10::getAutogradRelatedKeySetFromBackend(backend);
  const auto elements = static_cast<int64_t>(storage->nbytes() / from->dtype().itemsize());
  auto buffer = c10::make_intrusive<TensorImpl>(TensorImpl::VIEW, c10::Storage(std::move(storage)),
                                                keys, from->dtype());
  buffer->set_sizes_contiguous({elements});
  return at::Tensor(c10::make_intrusive<at::native::NestedTensorImpl>(
      TensorImpl::VIEW, at::Tensor(std::move(buffer)), from->get_nested_sizes(),
      from->get_nested_strides(), from->get_storage_offsets()));
}

}  // namespace

at::Tensor AliasScope::special_to_cpu(const at::Tensor& t) {
  if (t.is_sparse()) {
    auto* from = static_cast<at::SparseTensorImpl*>(t.unsafeGetTensorImpl());
    auto impl = c10::make_intrusive<at::SparseTensorImpl>(DispatchKeySet(DispatchKey::SparseCPU),
                                                          from->dtype());
    impl->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
    impl->set_indices_and_values_unsafe(to_cpu(from->indices()), to_cpu(from->values()));
    impl->set_coalesced(from->coalesced());
    if (from->requires_grad()) impl->set_requires_grad(true);
    return at::Tensor(std::move(impl));
  }
  if (t.is_sparse_csr() || t.key_set().has(DispatchKey::SparseCsrPrivateUse1)) {
    auto* from = static_cast<at::SparseCsrTensorImpl*>(t.unsafeGetTensorImpl());
    auto impl = c10::make_intrusive<at::SparseCsrTensorImpl>(
        DispatchKeySet(DispatchKey::SparseCsrCPU), kCpu, from->layout(), from->dtype());
    impl->set_member_tensors(to_cpu(from->compressed_indices()), to_cpu(from->plain_indices()),
                             to_cpu(from->values()), from->sizes());
    if (from->requires_grad()) impl->set_requires_grad(true);
    return at::Tensor(std::move(impl));
  }
  if (t.is_quantized()) {
    auto* from = static_cast<at::QTensorImpl*>(t.unsafeGetTensorImpl());
    auto impl = c10::make_intrusive<at::QTensorImpl>(
        c10::Storage(alias_storage(from->unsafe_storage())),
        DispatchKeySet(DispatchKey::QuantizedCPU), from->dtype(), from->quantizer());
    copy_geometry(impl.get(), from);
    return at::Tensor(std::move(impl));
  }
  return nested_on(alias_storage(t.unsafeGetTensorImpl()->unsafe_storage()), DispatchKey::CPU, t);
}

at::Tensor AliasScope::special_to_device(const at::Tensor& t) {
  if (t.is_sparse()) {
    auto* from = static_cast<at::SparseTensorImpl*>(t.unsafeGetTensorImpl());
    const c10::DeviceGuard guard(device(index()));  // a new one is of the current device
    auto impl = c10::make_intrusive<at::SparseTensorImpl>(
        DispatchKeySet(DispatchKey::SparsePrivateUse1), from->dtype());
    impl->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
    impl->set_indices_and_values_unsafe(to_device(from->indices()), to_device(from->values()));
    impl->set_coalesced(from->coalesced());
    return at::Tensor(std::move(impl));
  }
  if (t.key_set().has(DispatchKey::SparseCsrCPU)) {
    auto* from = static_cast<at::SparseCsrTensorImpl*>(t.unsafeGetTensorImpl());
    auto impl = c10::make_intrusive<at::SparseCsrTensorImpl>(
        DispatchKeySet(DispatchKey::SparseCsrPrivateUse1), device(index()), from->layout(),
        from->dtype());
    impl->set_member_tensors(to_device(from->compressed_indices()),
                             to_device(from->plain_indices()), to_device(from->values()),
                             from->sizes());
    return at::Tensor(std::move(impl));
  }
  if (t.is_quantized()) {
    auto* from = static_cast<at::QTensorImpl*>(t.unsafeGetTensorImpl());
    auto impl = c10::make_intrusive<at::QTensorImpl>(
        c10::Storage(device_storage(from->unsafe_storage())),
        DispatchKeySet(DispatchKey::QuantizedPrivateUse1), from->dtype(), from->quantizer());
    copy_geometry(impl.get(), from);
    return at::Tensor(std::move(impl));
  }
  TORCH_CHECK_NOT_IMPLEMENTED(t.is_nested(), "hologram: tensors of layout ", t.layout(),
                              " exist on cpu only; use .cpu() first");
  return nested_on(device_storage(t.unsafeGetTensorImpl()->unsafe_storage()),
                   DispatchKey::PrivateUse1, t);
}

void AliasScope::adopt_special(const at::Tensor& original, const at::Tensor& alias) {
  if (original.is_sparse()) {
    auto* to = static_cast<at::SparseTensorImpl*>(original.unsafeGetTensorImpl());
    auto* from = static_cast<at::SparseTensorImpl*>(alias.unsafeGetTensorImpl());
    to->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
    to->set_indices_and_values_unsafe(to_device(from->indices()), to_device(from->values()));
    to->set_coalesced(from->coalesced());
  } else if (original.key_set().has(DispatchKey::SparseCsrPrivateUse1)) {
    auto* to = static_cast<at::SparseCsrTensorImpl*>(original.unsafeGetTensorImpl());
    auto* from = static_cast<at::SparseCsrTensorImpl*>(alias.unsafeGetTensorImpl());
    to->set_member_tensors(to_device(from->compressed_indices()), to_device(from->plain_indices()),
                           to_device(from->values()), from->sizes());
  } else if (original.is_quantized()) {
    auto* to = static_cast<at::QTensorImpl*>(original.unsafeGetTensorImpl());
    auto* from = static_cast<at::QTensorImpl*>(alias.unsafeGetTensorImpl());
    to->set_quantizer_(from->quantizer());
    copy_geometry(to, from);
  }
}

}  // namespace hologram_torch
