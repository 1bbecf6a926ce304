// SPDX-License-Identifier: MIT
// How tests compile generated kernels.
#pragma once

#include <cstdlib>
#include <span>
#include <string_view>

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

// True where HOLOGRAM_NVRTC_ARCHITECTURES=all asks for what takes the compiler minutes.
inline bool compiles_all() {
  const char* const asked = std::getenv("HOLOGRAM_NVRTC_ARCHITECTURES");
  return asked != nullptr && std::string_view(asked) == "all";
}

// The architectures that a long list of kernels is compiled for: the newest alone, or all.
inline std::span<const int> architectures() {
  static constexpr int kAll[] = {80, 90, 100, 120};
  return compiles_all() ? std::span(kAll) : std::span(kAll).last(1);
}

}  // namespace hologram::cuda
