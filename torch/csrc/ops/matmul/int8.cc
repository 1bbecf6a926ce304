// SPDX-License-Identifier: MIT
// Linear layers whose weight is int8 with a scale for each row: torch._weight_int8pack_mm. And
// those whose weight is int4, in the form in which accelerators are given it.
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/stack.h>

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

// A weight of int4, (n, k), has the shape that CUDA's packed one has: (n / 8, k / (16 tiles), 32,
// tiles / 2) of int32. Its memory holds what PyTorch's CPU kernel packs, 16 rows at a time, which
// is as much.
constexpr int64_t kRowsOfTile = 8, kRowsPacked = 16, kColumnsOfTile = 16, kLanes = 32;

Tensor convert_weight_int4(const Tensor& self, int64_t tiles) {
  TORCH_CHECK(self.dim() == 2 && self.scalar_type() == at::kByte,
              "_convert_weight_to_int4pack: expected a matrix of uint8, two values in each, got ",
              self.scalar_type(), " of shape ", self.sizes());
  TORCH_CHECK(tiles == 2 || tiles == 4 || tiles == 8,
              "_convert_weight_to_int4pack: innerKTiles can be 2, 4 or 8, got ", tiles);
  const int64_t n = self.size(0), k = self.size(1) * 2;
  TORCH_CHECK(n % kRowsPacked == 0 && k % (tiles * kColumnsOfTile) == 0,
              "_convert_weight_to_int4pack: with innerKTiles ", tiles,
              " a weight has a multiple of 16 rows and of ", tiles * kColumnsOfTile,
              " columns, got ", n, " and ", k);
  const Tensor high = at::bitwise_right_shift(self, 4), low = at::bitwise_and(self, 15);
  const Tensor values = at::stack({high, low}, -1).view({n, k}).to(at::kInt);
  const Tensor packed =
      call_fallback<"_convert_weight_to_int4pack_for_cpu">(values, tiles).back().toTensor();
  return packed.view(at::kInt).view(
      {n / kRowsOfTile, k / (tiles * kColumnsOfTile), kLanes, tiles / 2});
}

Tensor weight_int4pack_mm(const Tensor& x, const Tensor& weight, int64_t group,
                          const Tensor& scales_and_zeros) {
  TORCH_CHECK(weight.dim() == 4 && weight.scalar_type() == at::kInt && weight.size(2) == kLanes &&
                  weight.is_contiguous(),
              "_weight_int4pack_mm: expected a weight from _convert_weight_to_int4pack, got ",
              weight.scalar_type(), " of shape ", weight.sizes());
  const int64_t n = weight.size(0) * kRowsOfTile;
  const int64_t k = weight.size(1) * weight.size(3) * 2 * kColumnsOfTile;
  TORCH_CHECK(x.dim() == 2 && x.size(1) == k, "_weight_int4pack_mm: expected rows of ", k,
              " elements for a weight of ", n, " by ", k, ", got shape ", x.sizes());
  const Tensor bytes = weight.view({n, k / 8}).view(at::kByte);
  return call_fallback<"_weight_int4pack_mm_for_cpu">(x, bytes, group, scales_and_zeros)
      .back()
      .toTensor();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&weight_int8pack_mm>(m, "_weight_int8pack_mm");
  register_native<&convert_weight_int4>(m, "_convert_weight_to_int4pack");
  register_native<&weight_int4pack_mm>(m, "_weight_int4pack_mm");
}
