// SPDX-License-Identifier: MIT
// Views and resizing: metadata only, the memory is never touched except to grow it.
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_resize_output_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "device/tensor.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::IntArrayRef;

// PyTorch's own functions for strided host memory are right for ours: none of them looks at the
// device, and storages resize through the allocator they carry.

Tensor as_strided(const Tensor& self, IntArrayRef size, IntArrayRef stride,
                  std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

// view is called for every reshape and linear layer: no dispatcher in between.
Tensor view(const Tensor& self, IntArrayRef size) { return at::native::view(self, size); }

Tensor reshape_alias(const Tensor& self, IntArrayRef size, IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

Tensor unfold(const Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}

Tensor view_as_real(const Tensor& self) { return at::native::view_as_real(self); }
Tensor view_as_complex(const Tensor& self) { return at::native::view_as_complex(self); }

// PyTorch's functions copy the old bytes when a storage has to grow to hold these elements.
void prepare_growth(const c10::Storage& storage, const Tensor& t, IntArrayRef size,
                    IntArrayRef stride, int64_t offset) {
  if (std::any_of(size.begin(), size.end(), [](int64_t n) { return n < 0; })) return;
  const size_t first = static_cast<size_t>(std::max<int64_t>(offset, 0));
  const size_t needed = stride.size() == size.size()
                            ? at::detail::computeStorageNbytes(size, stride, t.itemsize(), first)
                            : at::detail::computeStorageNbytesContiguous(size, t.itemsize(), first);
  if (needed <= storage.nbytes()) return;
  if (is_host_index(storage.device().index())) {
    storage_bytes(*storage.unsafeGetStorageImpl());
  } else if (storage.resizable()) {
    grow_storage(*storage.unsafeGetStorageImpl(), needed);
  }
}

const Tensor& resize_(const Tensor& self, IntArrayRef size,
                      std::optional<at::MemoryFormat> format) {
  if (self.has_storage()) prepare_growth(self.storage(), self, size, {}, self.storage_offset());
  return at::native::resize_(self, size, format);
}

const Tensor& resize_output_(const Tensor& self, IntArrayRef size, at::Device wanted) {
  TORCH_CHECK(wanted == self.device(), "out Tensor doesn't have the correct device set: expected ",
              wanted, ", got ", self.device());
  at::native::resize_output(self, size);
  return self;
}

Tensor& set_(Tensor& self) {
  auto storage = make_storage(0, self.device().index());
  self.unsafeGetTensorImpl()->set_storage_and_dtype(c10::Storage(std::move(storage)), self.dtype());
  self.unsafeGetTensorImpl()->set_storage_offset(0);
  self.unsafeGetTensorImpl()->set_sizes_contiguous({0});
  return self;
}

Tensor& set_tensor_(Tensor& self, const Tensor& source) {
  return at::native::set_tensor_(self, source);
}

Tensor& set_storage_(Tensor& self, at::Storage source) { return at::native::set_(self, source); }

Tensor& set_storage_offset_(Tensor& self, at::Storage source, int64_t offset, IntArrayRef size,
                            IntArrayRef stride) {
  TORCH_CHECK(source.device() == self.device(),
              "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(),
              "\".  This is no longer allowed; the devices must match.");
  prepare_growth(source, self, size, stride, offset);
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

// What PyTorch asks before a tensor object takes over another's storage: `p.data = t`, and through
// it Module.to(), which keeps its parameters only if the answer is yes. As between cpu and cuda,
// a strided tensor may become one of another device that has strided memory. TensorImpl's own
// answer knows the devices of PyTorch alone.
bool may_take_over(const Tensor& self, const Tensor& from) {
  constexpr c10::DispatchKeySet kBackends({c10::BackendComponent::CPUBit,
                                           c10::BackendComponent::CUDABit,
                                           c10::BackendComponent::PrivateUse1Bit});
  const auto is_strided = [&](const Tensor& t) {
    return t.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) &&
           t.key_set().has_any(kBackends);
  };
  return (is_strided(self) && is_strided(from)) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(may_take_over));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("view", TORCH_FN(view));
  m.impl("_reshape_alias", TORCH_FN(reshape_alias));
  m.impl("unfold", TORCH_FN(unfold));
  m.impl("view_as_real", TORCH_FN(view_as_real));
  m.impl("view_as_complex", TORCH_FN(view_as_complex));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("_resize_output_", TORCH_FN(resize_output_));
  m.impl("set_", TORCH_FN(set_));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor_));
  m.impl("set_.source_Storage", TORCH_FN(set_storage_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset_));
}
