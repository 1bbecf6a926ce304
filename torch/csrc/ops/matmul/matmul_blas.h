// SPDX-License-Identifier: MIT
// The GEMM, GEMV and dot product inside PyTorch, called directly.
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

// Threads the library's GEMM may use for m * n * k multiplications.
int gemm_threads(int64_t multiplications);

// Makes PyTorch's BLAS a GEMM provider of the library: for large products where it is fast.
// HOLOGRAM_GEMM=torch takes it for all products of float32 and float64, HOLOGRAM_GEMM=hologram for
// none; the half types are PyTorch's in any case, as oneDNN has instructions for them. ValueError
// for another value.
void register_torch_gemm();

}  // namespace hologram_torch
