// SPDX-License-Identifier: MIT
// How matmul reaches the GEMM provider in use.
#pragma once

#include "hologram/gemm.h"

namespace hologram::cpu {

// The best provider that takes this dtype; Error(kNotSupported) without one.
const GemmProvider& provider_for(Dtype dtype);
// Checks the arguments; false when nothing is left to do because m, n or k is 0.
bool prepare(const GemmArgs& args);

}  // namespace hologram::cpu
