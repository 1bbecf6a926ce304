// SPDX-License-Identifier: MIT
// The building blocks of the built-in GEMM: packing and the register tile.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// One instruction set's register tile of T: `rows` x `cols` of C, and what feeds it.
template <class T>
struct GemmKernel {
  int64_t rows = 0;
  int64_t cols = 0;
  // to[p * rows + i] = element (i, p) of the m x k matrix at a, for panels of `rows` rows,
  // zero-padded. row and col are its steps.
  void (*pack_a)(const T* a, int64_t row, int64_t col, int64_t m, int64_t k, T* to) = nullptr;
  // to[p * cols + j] likewise for panels of `cols` columns of the k x n matrix at b.
  void (*pack_b)(const T* b, int64_t row, int64_t col, int64_t k, int64_t n, T* to) = nullptr;
  // c (m x n, m <= rows, n <= cols) = alpha a b + beta c; a is a packed panel, row p of b starts at
  // b + p * ldb and has `cols` readable elements. beta 0 does not read c.
  void (*tile)(int64_t k, const T* a, const T* b, int64_t ldb, int64_t m, int64_t n, T alpha,
               T beta, T* c, int64_t ldc) = nullptr;
  // y[i * incy] = alpha row i of a . x + beta y[i * incy], i < m; rows of a and x are contiguous.
  void (*dot_rows)(const T* a, int64_t lda, const T* x, int64_t m, int64_t k, T alpha, T beta, T* y,
                   int64_t incy) = nullptr;
};

const GemmKernel<float>& gemm_kernel(Isa isa, float);
const GemmKernel<double>& gemm_kernel(Isa isa, double);

}  // namespace hologram::cpu
