// SPDX-License-Identifier: MIT
// Linear layers whose weight is int4 with a scale and a zero point for each row and group of
// columns: packed as PyTorch's CPU kernels have it, and as accelerators are given it.
#include <ATen/ops/_convert_weight_to_int4pack_for_cpu.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include "ops/matmul/product.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::Tensor;

// How many rows PyTorch's CPU kernel packs together depends on the processor, and no function says
// it: a small weight is packed and looked at. 0 where its form is not that of calls.def.
int64_t packed_block() {
  static const int64_t found = [] {
    constexpr int64_t kRows = 96, kColumns = 2;
    const auto value = [](int64_t row, int64_t column) { return (7 * row + 5 * column) % 16; };
    const Tensor weight = at::empty({kRows, kColumns}, at::kInt);
    for (int64_t i = 0; i < weight.numel(); ++i) {
      weight.mutable_data_ptr<int>()[i] = static_cast<int>(value(i / kColumns, i % kColumns));
    }
    const Tensor packed = at::_convert_weight_to_int4pack_for_cpu(weight, 1);
    for (const int64_t block : {int64_t{64}, int64_t{32}}) {
      const uint8_t* at = packed.const_data_ptr<uint8_t>();
      bool same = packed.numel() == kRows * kColumns / 2;
      for (int64_t row = 0; same && row < kRows; row += block) {
        const int64_t half = std::min(block, kRows - row) / 2;
        const bool whole = 2 * half == block;
        for (int64_t i = 0; same && i < kColumns * half; ++i, ++at) {
          const int64_t column = i / half, byte = i % half;
          const int64_t low = whole ? byte : 2 * byte, high = whole ? byte + half : 2 * byte + 1;
          same = *at == value(row + low, column) + 16 * value(row + high, column);
        }
      }
      if (same) return block;
    }
    return int64_t{0};
  }();
  return found;
}

bool takes_weight_int4(const Tensor& x, const Tensor& weight, int64_t group,
                       const Tensor& scales_and_zeros) {
  const at::ScalarType type = x.scalar_type();
  // What the CPU's kernel takes.
  const bool is_group = group == 32 || group == 64 || group == 128 || group == 256;
  return (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) && is_dense(x) &&
         x.dim() == 2 && is_dense(weight) && weight.scalar_type() == at::kByte &&
         weight.dim() == 2 && weight.is_contiguous() && weight.size(0) % 16 == 0 &&
         2 * weight.size(1) == x.size(1) && is_group && x.size(1) % group == 0 &&
         is_dense(scales_and_zeros) && scales_and_zeros.scalar_type() == type &&
         scales_and_zeros.dim() == 3 && scales_and_zeros.size(0) == x.size(1) / group &&
         scales_and_zeros.size(1) == weight.size(0) && scales_and_zeros.size(2) == 2 &&
         packed_block() != 0;
}

Tensor weight_int4pack_mm_for_cpu(const Tensor& x, const Tensor& weight, int64_t group,
                                  const Tensor& scales_and_zeros) {
  if (C10_LIKELY(takes_weight_int4(x, weight, group, scales_and_zeros))) {
    Tensor out = new_empty(x, {x.size(0), weight.size(0)});
    const Tensor rows = x.contiguous(), pairs = scales_and_zeros.contiguous();
    record(calls::LinearInt4<Arg>{.input = rows,
                                  .weight = weight,
                                  .scale_and_zero = pairs,
                                  .block = packed_block(),
                                  .out = out});
    return out;
  }
  return call_fallback<"_weight_int4pack_mm_for_cpu">(x, weight, group, scales_and_zeros)
      .back()
      .toTensor();
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
  return weight_int4pack_mm_for_cpu(x, bytes, group, scales_and_zeros);
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&weight_int4pack_mm_for_cpu>(m, "_weight_int4pack_mm_for_cpu");
  register_native<&convert_weight_int4>(m, "_convert_weight_to_int4pack");
  register_native<&weight_int4pack_mm>(m, "_weight_int4pack_mm");
}
