// SPDX-License-Identifier: MIT
// The building blocks of matrix times vector, for one instruction set and dtype.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"

namespace hologram::cpu {

// The longest rows, in elements, that add_short_rows takes.
inline constexpr int64_t kLongestShortRow = 64;

// The matrix has elements of the dtype; T is double for float64, else float.
template <class T>
struct VectorKernel {
  // y[i] = row i of a . x, i < m; rows of a lie lda elements apart, their k elements side by side.
  void (*dot_rows)(const void* a, int64_t lda, const T* x, int64_t m, int64_t k, T* y) = nullptr;
  // y[j] += the sum of x[p] b[p * ldb + j] over p < k, j < n: one chain of multiply-adds in the
  // order of p for every j.
  void (*add_rows)(const void* b, int64_t ldb, const T* x, int64_t k, int64_t n, T* y) = nullptr;
  // The same for n <= kLongestShortRow: several chains for every j, the same for every ldb.
  void (*add_short_rows)(const void* b, int64_t ldb, const T* x, int64_t k, int64_t n,
                         T* y) = nullptr;
};

// dtype: float32, a half type or int8.
const VectorKernel<float>& vector_kernel(Isa isa, Dtype dtype, float);
// dtype: float64.
const VectorKernel<double>& vector_kernel(Isa isa, Dtype dtype, double);

}  // namespace hologram::cpu
