// SPDX-License-Identifier: MIT
// Linear layers whose weight is int8 with a scale for each row: torch._weight_int8pack_mm.
#include "ops/matmul/product.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::Tensor;

bool takes_weight_int8(const Tensor& x, const Tensor& weight, const Tensor& scales) {
  const at::ScalarType type = x.scalar_type();
  return (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) && is_dense(x) &&
         x.dim() == 2 && x.stride(1) == 1 && is_dense(weight) &&
         weight.scalar_type() == at::kChar && weight.dim() == 2 && weight.is_contiguous() &&
         weight.size(1) == x.size(1) && is_dense(scales) && scales.scalar_type() == type &&
         scales.dim() == 1 && scales.size(0) == weight.size(0);
}

Tensor weight_int8pack_mm(const Tensor& x, const Tensor& weight, const Tensor& scales) {
  if (C10_LIKELY(takes_weight_int8(x, weight, scales))) {
    const Tensor rows = x.is_contiguous() ? x : x.contiguous();
    const Tensor by = scales.is_contiguous() ? scales : scales.contiguous();
    Tensor out = new_empty(x, {x.size(0), weight.size(0)});
    record(calls::LinearInt8<Arg>{.input = rows, .weight = weight, .scale = by, .out = out});
    return out;
  }
  return call_fallback<"_weight_int8pack_mm">(x, weight, scales).back().toTensor();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&weight_int8pack_mm>(m, "_weight_int8pack_mm");
}
