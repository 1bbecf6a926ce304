// SPDX-License-Identifier: MIT
// Which instruction set the CPU kernels use.
#pragma once

#include <string_view>

#include "hologram/api.h"

namespace hologram {

enum class Isa : int { kBaseline = 0, kAvx2 = 1, kAvx512 = 2 };
inline constexpr int kIsaCount = 3;

// "baseline" (SSE4.2 on x86-64, the compiler's default elsewhere), "avx2", "avx512".
HOLOGRAM_API std::string_view isa_name(Isa isa);

// True where this build has kernels for it and this machine can run them.
HOLOGRAM_API bool isa_available(Isa isa);

// The one kernels run on: the best available, or the one HOLOGRAM_FORCE_ISA names (read once, at
// first use). Naming one that is unknown or not available throws Error with the list of those that
// are.
HOLOGRAM_API Isa current_isa();

// Switches at run time, for tests and measurements. Not while another thread runs kernels.
HOLOGRAM_API void force_isa(Isa isa);

}  // namespace hologram
