// SPDX-License-Identifier: MIT
// Products of small blocks, inside attention and recurrences: operands that lie in memory or were
// packed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/cpu/gemm/gemm_kernels.h"

namespace hologram::cpu {

// The right operand of a product, as panels of `cols` columns: panel j starts at
// data + j * panel and its rows lie `row` apart. `tail`, if any, is a packed copy of the last,
// narrow one.
template <class T>
struct RightOperand {
  const T* data = nullptr;
  int64_t panel = 0, row = 0;
  const T* tail = nullptr;

  // The operand without its first p rows.
  RightOperand from_row(int64_t p, int64_t cols) const {
    return {data + p * row, panel, row, tail != nullptr ? tail + p * cols : nullptr};
  }
};

// Elements that packing k rows of n columns takes.
template <class T>
int64_t packed_size(const GemmKernel<T>& kernel, int64_t k, int64_t n) {
  return (n + kernel.cols - 1) / kernel.cols * kernel.cols * k;
}

// n rows of k elements, `ld` apart, as a k x n operand.
template <class T>
RightOperand<T> pack_transposed(const GemmKernel<T>& kernel, const T* b, int64_t ld, int64_t k,
                                int64_t n, T* to) {
  kernel.pack_b(b, 1, ld, k, n, to);
  return {to, kernel.cols * k, kernel.cols, nullptr};
}

// k rows of n elements, `ld` apart; `to` has room for packed_size(kernel, k, 1).
template <class T>
RightOperand<T> in_place(const GemmKernel<T>& kernel, const T* b, int64_t ld, int64_t k, int64_t n,
                         T* to) {
  const int64_t rest = n % kernel.cols;
  if (rest != 0) kernel.pack_b(b + n - rest, ld, 1, k, rest, to);
  return {b, kernel.cols, ld, rest != 0 ? to : nullptr};
}

// c (m x n, rows ldc apart) = alpha a b + beta c; element (i, p) of a lies at a[i * row + p * col],
// where row or col is 1.
template <class T>
void multiply(const GemmKernel<T>& kernel, int64_t m, int64_t n, int64_t k, const T* a, int64_t row,
              int64_t col, const RightOperand<T>& b, T* c, int64_t ldc, T alpha, T beta) {
  GemmPanel<T> panel;
  panel.m = m, panel.k = k;
  panel.a = a, panel.row = row, panel.col = col;
  panel.ldc = ldc;
  panel.alpha = alpha, panel.beta = beta;
  for (int64_t j = 0; j < n; j += kernel.cols) {
    panel.n = std::min(kernel.cols, n - j);
    const bool tail = b.tail != nullptr && panel.n < kernel.cols;
    panel.b = tail ? b.tail : b.data + j / kernel.cols * b.panel;
    panel.ldb = tail ? kernel.cols : b.row;
    panel.c = c + j;
    kernel.panel(panel);
  }
}

}  // namespace hologram::cpu
