// SPDX-License-Identifier: MIT
// The building blocks of the built-in GEMM: packing and the register tile.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// c (m x n) = alpha a b + beta c, or alpha a b + bias, for one panel of b, n <= cols. Element (i,
// p) of a is at a[i * row + p * col], one of which is 1, or a is what pack_a wrote. Row p of b
// starts at b + p * ldb and has `cols` readable elements. beta 0 does not read c.
template <class T>
struct GemmPanel {
  int64_t m = 0, n = 0, k = 0;
  const T* a = nullptr;
  int64_t row = 0, col = 0;
  bool packed = false;
  const T* b = nullptr;
  int64_t ldb = 0;
  // Where the first tile copies the panel to, `cols` elements a row, for the others to read; null:
  // all read b.
  T* copy = nullptr;
  T* c = nullptr;
  int64_t ldc = 0;
  T alpha = T(1), beta = T(0);
  const T* bias = nullptr;  // of each row, where beta is 0, or null
};

// y[i * y_row + j * y_col] = alpha row i of a . row j of x + beta y[...], i < m, j < n. Rows have k
// contiguous elements, and lie lda and ldx apart, or x is what pack_factors wrote. beta 0 does not
// read y. For a few rows of x and many of a, which are read once or twice.
template <class T, class In = T, class Factor = T>
struct GemmDots {
  int64_t m = 0, n = 1, k = 0;
  const In* a = nullptr;
  int64_t lda = 0;
  const Factor* x = nullptr;
  int64_t ldx = 0;
  T* y = nullptr;
  int64_t y_row = 1, y_col = 0;
  T alpha = T(1), beta = T(0);
  bool packed = false;
};

// One instruction set's building blocks for T, around a register tile of up to `rows` x `cols` of
// C. Every element of C is one chain of multiply-adds in the order of p, whatever tile it is in.
template <class T>
struct GemmKernel {
  int64_t rows = 0;
  int64_t cols = 0;
  // Copies the m x k matrix at a, whose steps are row and col, for a panel with as many rows.
  void (*pack_a)(const T* a, int64_t row, int64_t col, int64_t m, int64_t k, T* to) = nullptr;
  // to[p * cols + j] = element (p, j), for panels of `cols` columns of the k x n matrix at b,
  // zero-padded.
  void (*pack_b)(const T* b, int64_t row, int64_t col, int64_t k, int64_t n, T* to) = nullptr;
  void (*panel)(const GemmPanel<T>& panel) = nullptr;
  // Does the work of panel() for a few columns and at least cols / 2 rows of A, which lie
  // along k. For one column it takes a quarter of the time, for two a third.
  void (*columns)(const GemmPanel<T>& panel) = nullptr;
  // Copies n rows of k elements, ldx apart, for dots(), which read many rows faster then: n times
  // k, rounded up to a multiple of `vector`.
  int64_t vector = 0;
  void (*pack_factors)(const T* x, int64_t ldx, int64_t n, int64_t k, T* to) = nullptr;
  // An element's bits depend on the two rows alone.
  void (*dots)(const GemmDots<T>& dots) = nullptr;
};

const GemmKernel<float>& gemm_kernel(Isa isa, float);
const GemmKernel<double>& gemm_kernel(Isa isa, double);
// Modulo a power of two, as integers of either sign are computed.
const GemmKernel<uint32_t>& gemm_kernel(Isa isa, uint32_t);
const GemmKernel<uint64_t>& gemm_kernel(Isa isa, uint64_t);

}  // namespace hologram::cpu
