// SPDX-License-Identifier: MIT
// Numbers the elementwise ops. The numbers are part of the C ABI and equal those of the op table.
#pragma once

#include <cstdint>

namespace hologram {

// clang-format off
enum class OpId : uint16_t {
  neg = 0, abs = 1, reciprocal = 2, sqrt = 3, rsqrt = 4, exp = 5, exp2 = 6, expm1 = 7, log = 8, log2 = 9,
  log10 = 10, log1p = 11, sin = 12, cos = 13, tan = 14, tanh = 15, erf = 16, sigmoid = 17, silu = 18, gelu = 19,
  gelu_tanh = 20, relu = 21, floor = 22, ceil = 23, trunc = 24, round = 25, square = 26, sign = 27,
  logical_not = 28, bitwise_not = 29, isnan = 30,
  add = 40, sub = 41, mul = 42, div = 43, minimum = 44, maximum = 45, pow = 46, eq = 47, ne = 48, lt = 49, le = 50,
  gt = 51, ge = 52, logical_and = 53, logical_or = 54, logical_xor = 55, bitwise_and = 56, bitwise_or = 57,
  bitwise_xor = 58, squared_difference = 59, leaky_relu = 60, sigmoid_backward = 61, tanh_backward = 62,
  silu_backward = 63, gelu_backward = 64, gelu_tanh_backward = 65,
  fma = 80, clamp = 81, where = 82, lerp = 83, add_scaled = 84, threshold_backward = 85, threshold = 86,
  leaky_relu_backward = 87, softplus = 88, squared_difference_backward = 89,
  addcmul = 100, addcdiv = 101, elu = 102, softplus_backward = 103, hardtanh_backward = 104,
};
// clang-format on

// One past the largest id; ids are sparse below it.
inline constexpr int kOpIdEnd = 105;

}  // namespace hologram
