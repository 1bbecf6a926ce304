// SPDX-License-Identifier: MIT
// The GEMM, GEMV and dot product inside PyTorch, called directly, and how many threads they take.
#pragma once

#include <cstdint>

#include "hologram/dtype.h"
#include "hologram/gemm.h"

namespace hologram_torch {

// Fortran's BLAS with 32-bit integers, column-major.
template <class T>
struct Blas {
  using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const T*,
                        const T*, const int*, const T*, const int*, const T*, T*, const int*);
  using Gemv = void (*)(const char*, const int*, const int*, const T*, const T*, const int*,
                        const T*, const int*, const T*, T*, const int*);
  using Dot = T (*)(const int*, const T*, const int*, const T*, const int*);
  Gemm gemm = nullptr;
  Gemv gemv = nullptr;
  Dot dot = nullptr;
};

// What libtorch_cpu exports, tried out on a small product; null members where it is missing or
// wrong, for it is no promised API.
template <class T>
const Blas<T>& blas();
template <>
const Blas<float>& blas<float>();
template <>
const Blas<double>& blas<double>();

// Row-major C = alpha op(A) op(B) + beta C through blas<T>().gemm; false where that cannot take it.
bool blas_gemm(const hologram::GemmArgs& args);

// Whether float32 and float64 products go to the library's GEMM instead of PyTorch's. So they do
// where PyTorch's (MKL) leaves AVX-512 unused, which is on processors of other makers than Intel;
// HOLOGRAM_GEMM=hologram or HOLOGRAM_GEMM=torch decides otherwise. The choice is made once, so that
// a program's bits do not depend on timing.
bool prefers_own_gemm();

// Threads the library's GEMM may use for m * n * k multiplications.
int gemm_threads(int64_t multiplications);

// Makes PyTorch's products those of the library too.
void register_torch_gemm();

}  // namespace hologram_torch
