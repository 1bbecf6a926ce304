// SPDX-License-Identifier: MIT
// What a processor has that decides who computes the half types.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hologram_torch {

// Whether it multiplies tiles of bfloat16 (AMX): PyTorch's kernels use that, ours compute in
// float32.
inline bool has_bfloat16_tiles() {
#if defined(__x86_64__)
  static const bool found = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kAmxBFloat16 = 1U << 22;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAmxBFloat16) != 0;
  }();
  return found;
#else
  return false;
#endif
}

}  // namespace hologram_torch
