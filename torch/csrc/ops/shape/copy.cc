// SPDX-License-Identifier: MIT
// Copies between two tensors of which one is ours, clone and item().
#include "ops/shape/copy.h"

#include <ATen/Functions.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <torch/library.h>

#include "device/openmp.h"
#include "hologram/trace.h"
#include "host/alias.h"
#include "ops/shape/host_copy.h"
#include "recording/native_common.h"

namespace hologram_torch {
namespace {

using at::Tensor;

bool is_host(const Tensor& t) { return is_ours(t) || t.is_cpu(); }

Tensor copy_from(const Tensor& self, const Tensor& dst, bool non_blocking) {
  copy_into(dst, self, non_blocking);
  return dst;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& dst) {
  dst.resize_(self.sizes());
  copy_into(dst, self);
  return dst;
}

Tensor clone_tensor(const Tensor& self, std::optional<at::MemoryFormat> format) {
  const auto wanted = format.value_or(at::MemoryFormat::Preserve);
  Tensor result =
      wanted == at::MemoryFormat::Preserve
          ? make_like(self)
          : make_formatted(self.sizes(), self.scalar_type(), wanted, self.device().index());
  if (self._is_zerotensor()) return result.zero_();
  copy_into(result, self);
  return result;
}

c10::Scalar local_scalar_dense(const Tensor& self) {
  const hologram::CircuitCause cause("aten::item");
  if (!is_host_index(self.device().index())) {
    Tensor one = at::empty({}, self.options().device(c10::DeviceType::CPU));
    read_storage(*self.storage().unsafeGetStorageImpl(),
                 static_cast<size_t>(self.storage_offset()) * self.itemsize(),
                 one.mutable_data_ptr(), self.itemsize());
    if (self.is_conj()) one = one.conj();
    if (self.is_neg()) one = one._neg_view();
    return one.item();
  }
  read_pointer(self);  // what it depends on has to run
  return at::native::_local_scalar_dense_cpu(self);
}

bool is_set_to(const Tensor& self, const Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

}  // namespace

void copy_into(const Tensor& dst, const Tensor& src, bool non_blocking) {
  const hologram::CircuitCause cause("aten::copy_");
  TORCH_CHECK(dst.defined() && src.defined(), "copy_: an argument is undefined");
  if (native_copy(dst, src)) return;
  AliasScope scope;
  BelowAutograd guard;
  const OpenMpRegion region;
  Tensor to = scope.to_cpu(dst);
  // Only another accelerator can make use of non_blocking, and it keeps its own account of memory.
  to.copy_(scope.to_cpu(src), non_blocking && !(is_host(dst) && is_host(src)));
  if (is_host_index(dst.device().index())) return;
  scope.adopt_changes(dst, to);
  scope.write_back();
}

}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("clone", TORCH_FN(clone_tensor));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("is_set_to", TORCH_FN(is_set_to));
}

// PyTorch's fallbacks for conjugated and negated views give a kernel copies of what the schema does
// not call written, as it does not call the destination here: what is written there would be lost.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
