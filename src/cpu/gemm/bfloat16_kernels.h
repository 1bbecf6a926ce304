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

// As GemmKernel has them.
inline constexpr int64_t kBFloat16Vector = 32;
struct BFloat16Kernel {
  void (*pack_factors)(const uint16_t* x, int64_t ldx, int64_t n, int64_t k,
                       uint16_t* to) = nullptr;
  void (*dots)(const BFloat16Dots& dots) = nullptr;
  void (*dots_of_int8)(const BFloat16Dots& dots) = nullptr;
};

// Null without the instruction.
const BFloat16Kernel* bfloat16_kernel(Isa isa);

}  // namespace hologram::cpu
