// SPDX-License-Identifier: MIT
// The GEMM that is always there.
#pragma once

#include "hologram/gemm.h"

namespace hologram::cpu {

// Every dtype but bool and the complex ones; provider "hologram", priority 0.
const GemmProvider& builtin_gemm();

// What it computes for float32 or a half type where B has elements of b_type instead: int8 or, for
// float32, a half type. They are widened as they are read; the bits are those of B converted
// before. m, n, k >= 1.
void narrow_gemm(const GemmArgs& args, Dtype b_type);

}  // namespace hologram::cpu
