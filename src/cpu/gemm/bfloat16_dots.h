// SPDX-License-Identifier: MIT
// Products of bfloat16 with a few rows on either side, as dot products of rows that are read where
// they lie, on processors with an instruction for them (AVX512_BF16).
#pragma once

#include "hologram/gemm.h"

namespace hologram::cpu {

// Whether bfloat16_dots() computes it. b_type: of B's elements, bfloat16 or int8.
bool is_bfloat16_dots(const GemmArgs& args, Dtype b_type);

// The product, summed in float32 and rounded once; numbers below 2^-126 count as zeros. The bits
// are those of B converted to bfloat16 before, and the same for any number of threads. m, n, k
// >= 1.
void bfloat16_dots(const GemmArgs& args, Dtype b_type);
// With C in float32, alpha 1 and beta 0.
void bfloat16_dots_to_float(const GemmArgs& args, Dtype b_type);

}  // namespace hologram::cpu
