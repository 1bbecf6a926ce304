// SPDX-License-Identifier: MIT
// Dot products of bfloat16 by the instruction that adds two products to a float32 (AVX512_BF16).
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// Rows of x that are multiplied while rows of a are read once, at most; of n rows, in how many
// parts of nearly the same size they are.
inline constexpr int64_t kBFloat16Factors = 6;
inline int64_t bfloat16_tiles(int64_t n) { return (n + kBFloat16Factors - 1) / kBFloat16Factors; }

// y[i * y_row + j * y_col] = row i of a . row j of x, i < m, j < n. Rows of a have k >= 1
// contiguous elements, bfloat16 or int8, and lie lda apart; x is what pack() wrote. A result's bits
// depend on the values in the two rows alone: sum i of 16, in float32, takes the products of
// elements 32 q + 2 i and 32 q + 2 i + 1 for q = 0, 1, ... Numbers below 2^-126 count as zeros.
struct BFloat16Dots {
  int64_t m = 0, n = 1, k = 0;
  const void* a = nullptr;
  int64_t lda = 0;
  const uint16_t* x = nullptr;
  float* y = nullptr;
  int64_t y_row = 1, y_col = 0;
};

struct BFloat16Kernel {
  // Copies n rows of k elements, ldx apart, vector by vector: n * bfloat16_packed_row(k) elements.
  void (*pack)(const uint16_t* x, int64_t ldx, int64_t n, int64_t k, uint16_t* to) = nullptr;
  void (*dots)(const BFloat16Dots& dots) = nullptr;
  void (*dots_of_int8)(const BFloat16Dots& dots) = nullptr;
};

inline int64_t bfloat16_packed_row(int64_t k) { return (k + 31) / 32 * 32; }

// Null without the instruction.
const BFloat16Kernel* bfloat16_kernel(Isa isa);

}  // namespace hologram::cpu
