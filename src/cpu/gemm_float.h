// SPDX-License-Identifier: MIT
// Float products of the built-in GEMM.
#pragma once

#include "hologram/gemm.h"

namespace hologram::cpu {

// Rows [begin, end) of the product, float32 or float64; m, n, k >= 1. They have the bits they have
// in the whole product, for any number of threads: args is always that of the whole.
void float_gemm(const GemmArgs& args, int64_t begin, int64_t end);

}  // namespace hologram::cpu
