// SPDX-License-Identifier: MIT
// Products whose result is one row or one column: matrix times vector, and dot products.
#pragma once

#include "hologram/gemm.h"

namespace hologram::cpu {

inline bool is_vector_product(const GemmArgs& g) {
  return (g.m == 1 || g.n == 1) && is_floating(g.dtype);
}

// Few dot products of long rows are cut into pieces, which threads share. Of more each thread
// computes some whole ones.
inline bool are_few_long_dots(int64_t count, int64_t k) {
  constexpr int64_t kFew = 32, kLong = 16384;
  return count <= kFew && k >= kLong;
}

// A product of which is_vector_product() holds; m, n, k >= 1. Computed in float32, float64 in
// itself; the half types are rounded once. The number of threads changes no bits. B has elements of
// b_type: the dtype, or one all of whose values the dtype has.
void vector_product(const GemmArgs& args, Dtype b_type);

}  // namespace hologram::cpu
