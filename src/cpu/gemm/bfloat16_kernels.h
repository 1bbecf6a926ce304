// SPDX-License-Identifier: MIT
// Dot products of bfloat16 by the instruction that adds two products to a float32 (AVX512_BF16).
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"
#include "src/cpu/gemm/gemm_kernels.h"

namespace hologram::cpu {

// Of bfloat16, those of a maybe int8, in float32: sum i of 16 takes the products of elements 32 q +
// 2 i and 32 q + 2 i + 1 for q = 0, 1, ... Numbers below 2^-126 count as zeros.
using BFloat16Dots = GemmDots<float, void, uint16_t>;

struct BFloat16Kernel {
  // As GemmKernel has them.
  struct Dots {
    int64_t vector;
    void (*pack_factors)(const uint16_t* x, int64_t ldx, int64_t n, int64_t k, uint16_t* to);
    void (*dots)(const BFloat16Dots& dots);
  };
  Dots of_bfloat16, of_int8;
};

// Null without the instruction, or without tables of bytes (AVX512_VBMI), by which int8 is read.
const BFloat16Kernel* bfloat16_kernel(Isa isa);

}  // namespace hologram::cpu
