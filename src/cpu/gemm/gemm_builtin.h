// SPDX-License-Identifier: MIT
// The GEMM that is always there.
#pragma once

#include "hologram/gemm.h"

namespace hologram::cpu {

// Every dtype but bool and the complex ones; provider "hologram", priority 0.
const GemmProvider& builtin_gemm();

}  // namespace hologram::cpu
