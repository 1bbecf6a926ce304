// SPDX-License-Identifier: MIT
// How tests compile generated kernels.
#pragma once

#include <span>

#include "src/cuda/nvrtc.h"

namespace hologram::cuda {

// The assembler says how much it spills. Warnings are errors where the compiler knows that option,
// but those of values that a program does not need: unused variables, and comparisons of unsigned
// numbers with 0.
inline std::span<const char* const> strict_options() {
  static constexpr const char* kOptions[] = {"--ptxas-options=-v", "-diag-suppress", "177,186,550",
                                             "-Werror", "all-warnings"};
  constexpr int kWarningsAreErrors = 13002;
  return std::span(kOptions).first(nvrtc_version() >= kWarningsAreErrors ? 5 : 3);
}

}  // namespace hologram::cuda
