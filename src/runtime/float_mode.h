// SPDX-License-Identifier: MIT
// How a thread rounds, and what it does with denormal numbers.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <cstdint>

namespace hologram::internal {

// Of the calling thread; programs change it by torch.set_flush_denormal() or <cfenv>. Exceptions
// are no part of it: kernels raise none.
inline uint32_t float_mode() {
#if defined(__SSE__)
  return _mm_getcsr() & 0xffc0;
#else
  return 0;
#endif
}

// Gives the calling thread the mode of another while it works for that.
class FloatModeScope {
 public:
#if defined(__SSE__)
  explicit FloatModeScope(uint32_t mode)
      : outer_(_mm_getcsr()), changes_((outer_ & 0xffc0) != mode) {
    if (changes_) _mm_setcsr(mode | 0x1f80);
  }
  ~FloatModeScope() {
    if (changes_) _mm_setcsr(outer_);
  }
#else
  explicit FloatModeScope(uint32_t) {}
#endif
  FloatModeScope(const FloatModeScope&) = delete;
  FloatModeScope& operator=(const FloatModeScope&) = delete;

#if defined(__SSE__)
 private:
  const uint32_t outer_;
  const bool changes_;
#endif
};

}  // namespace hologram::internal
