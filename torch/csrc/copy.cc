// SPDX-License-Identifier: MIT
// See copy.h; clone, fill_, zero_ and item() live here too.
#include "copy.h"

#include <ATen/Functions.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <torch/library.h>

#include <cstring>

#include "alias.h"
#include "load.h"

namespace hologram_torch {
namespace {

using at::Tensor;

constexpr size_t kInlineBytes = 256 << 10;  // above this PyTorch's threaded copy is faster

bool plain_bits(const Tensor& t) { return !t.is_conj() && !t.is_neg() && !t._is_zerotensor(); }

// Same type and element order: one run of bytes.
bool same_run(const Tensor& dst, const Tensor& src) {
  return dst.scalar_type() == src.scalar_type() && dst.sizes() == src.sizes() &&
         ((dst.is_contiguous() && src.is_contiguous()) ||
          (dst.strides() == src.strides() && dst.is_non_overlapping_and_dense()));
}

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
  Tensor result = wanted == at::MemoryFormat::Preserve
                      ? make_like(self)
                      : make_formatted(self.sizes(), self.scalar_type(), wanted);
  if (self._is_zerotensor()) return result.zero_();
  copy_into(result, self);
  return result;
}

c10::Scalar local_scalar_dense(const Tensor& self) {
  return at::native::_local_scalar_dense_cpu(self);
}

Tensor& fill_scalar(Tensor& self, const c10::Scalar& value) {
  AliasScope scope;
  BelowAutograd guard;
  LoadGuard load;
  Tensor cpu = scope.to_cpu(self);
  cpu.fill_(value);
  return self;
}

Tensor& zero_(Tensor& self) {
  if (self.is_non_overlapping_and_dense() && self.nbytes() <= kInlineBytes) {
    if (self.numel() > 0) std::memset(self.mutable_data_ptr(), 0, self.nbytes());
    return self;
  }
  return fill_scalar(self, 0);
}

bool is_set_to(const Tensor& self, const Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

}  // namespace

void copy_into(const Tensor& dst, const Tensor& src, bool non_blocking) {
  TORCH_CHECK(dst.defined() && src.defined(), "copy_: an argument is undefined");
  if (dst.is_same(src)) return;
  if (is_host(dst) && is_host(src) && plain_bits(dst) && plain_bits(src) && same_run(dst, src) &&
      dst.nbytes() <= kInlineBytes && dst.layout() == c10::kStrided &&
      src.layout() == c10::kStrided) {
    if (dst.numel() > 0) std::memmove(dst.mutable_data_ptr(), src.const_data_ptr(), dst.nbytes());
    return;
  }
  AliasScope scope;
  BelowAutograd guard;
  LoadGuard load;
  Tensor to = scope.to_cpu(dst);
  // Only another accelerator can make use of non_blocking, and it keeps its own account of memory.
  to.copy_(scope.to_cpu(src), non_blocking && !(is_host(dst) && is_host(src)));
}

}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("clone", TORCH_FN(clone_tensor));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("fill_.Scalar", TORCH_FN(fill_scalar));
  m.impl("zero_", TORCH_FN(zero_));
  m.impl("is_set_to", TORCH_FN(is_set_to));
}
