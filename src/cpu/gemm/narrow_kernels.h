// SPDX-License-Identifier: MIT
// What the built-in GEMM of float32 does with a right operand of a narrower type.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"
#include "src/cpu/gemm/gemm_kernels.h"

namespace hologram::cpu {

// Every element becomes a float32 as it is read; the rest is as GemmKernel<float> has it.
struct NarrowKernel {
  // One of row and col is 1.
  void (*pack_b)(const void* b, int64_t row, int64_t col, int64_t k, int64_t n,
                 float* to) = nullptr;
  void (*dots)(const GemmDots<float, void>& dots) = nullptr;
  // m rows of k elements, lda apart, to rows ldt apart.
  void (*widen)(const void* a, int64_t lda, int64_t m, int64_t k, float* to, int64_t ldt) = nullptr;
};

// int8, float16 or bfloat16.
const NarrowKernel& narrow_kernel(Isa isa, Dtype dtype);

}  // namespace hologram::cpu
