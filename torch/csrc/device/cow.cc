// SPDX-License-Identifier: MIT
// Copy-on-write clones: tensors that share memory until one of them is written.
#include <cstring>
#include <variant>

#include "device/tensor.h"

#if HOLOGRAM_CAN_DEFER
#include <ATen/ops/clone.h>
#include <c10/core/impl/COW.h>
#include <c10/core/impl/COWDeleter.h>
#include <c10/util/ParallelGuard.h>
#include <torch/library.h>

namespace hologram_torch {
namespace {

using c10::impl::cow::COWDeleterContext;

// PyTorch's functions know memory whose context is its own address. Ours is a Buffer, so the copy
// is ours to make; the context and its deleter are PyTorch's, by which it knows such storages.
void copy_when_written(c10::StorageImpl* storage) {
  TORCH_INTERNAL_ASSERT(!c10::ParallelGuard::is_enabled(),
                        "Materializing a storage in the loop function of at::parallel_for is "
                        "forbidden");
  c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  auto* context = data.cast_context<COWDeleterContext>(c10::impl::cow::cow_deleter);
  TORCH_INTERNAL_ASSERT(context != nullptr, "hologram: the storage shares no memory");
  const c10::DeviceIndex index = data.device().index();
  // Before the share is given up, so that a lack of memory leaves all as it was.
  c10::DataPtr own = allocate_bytes(storage->nbytes(), index);
  // While this is a shared lock the other holders cannot free or take the memory.
  auto left = context->decrement_refcount();
  if (auto* last = std::get_if<COWDeleterContext::LastReference>(&left)) {
    if (auto* buffer = static_cast<hologram::Buffer*>(last->release())) {
      own = c10::DataPtr(buffer->data(), buffer, &release_buffer, device(index));
    }
  } else if (storage->nbytes() != 0) {
    std::memcpy(own.get(), data.get(), storage->nbytes());
  }
  static_cast<void>(data.release_context());
  storage->set_data_ptr_noswap(std::move(own));
}

// Another storage on the memory of this one, or null where the memory is not a Buffer that the host
// can read.
c10::intrusive_ptr<c10::StorageImpl> share(c10::StorageImpl& storage) {
  c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  const c10::Device where = data.device();
  auto* context = data.cast_context<COWDeleterContext>(c10::impl::cow::cow_deleter);
  if (context == nullptr) {
    hologram::Buffer* buffer = buffer_of(storage);
    const bool empty = data.get_context() == nullptr && storage.nbytes() == 0;
    if ((buffer == nullptr && !empty) || !is_host_index(where.index())) return nullptr;
    if (hologram::is_capturing_graph()) cannot_capture("_lazy_clone");
    // From here on nothing is recorded on this memory: the next writer may not be its last holder.
    if (!empty) {
      hologram::mark_exported(*buffer);
      settle_storage(storage, *buffer);
    }
    storage.clear_materializer();
    void* const address = empty ? nullptr : buffer->data();
    context = new COWDeleterContext(
        std::unique_ptr<void, c10::DeleterFnPtr>(data.release_context(), &release_buffer));
    storage.set_data_ptr_noswap(
        c10::DataPtr(address, context, &c10::impl::cow::cow_deleter, where));
    storage.set_materializer(&copy_when_written);
  }
  context->increment_refcount();
  auto clone = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.sym_nbytes(),
      c10::DataPtr(data_ptr_of(storage).get(), context, &c10::impl::cow::cow_deleter, where),
      device_allocator(), storage.resizable());
  clone->set_materializer(&copy_when_written);
  return clone;
}

at::Tensor lazy_clone(const at::Tensor& self) {
  auto storage = share(*self.storage().unsafeGetStorageImpl());
  if (storage == nullptr) return at::clone(self);
  auto impl = make_impl(std::move(storage), self.dtype());
  impl->set_sizes_and_strides(self.sizes(), self.strides(), self.storage_offset());
  return at::Tensor(std::move(impl));
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_lazy_clone", TORCH_FN(hologram_torch::lazy_clone));
}
#endif
