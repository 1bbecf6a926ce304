// SPDX-License-Identifier: MIT
// How a thread rounds, and what it does with denormal numbers.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <cstdint>

namespace hologram::internal {

// Rounding to nearest, denormal numbers as IEEE 754 has them: how threads begin.
inline constexpr uint32_t kDefaultFloatMode = 0;

#if defined(__SSE__)
// Of MXCSR: flush to zero, rounding, denormals are zero. Exceptions are no part of a mode: results
// do not depend on which ones happened, and kernels raise none.
inline constexpr uint32_t kFloatModeBits = 0xe040;
inline constexpr uint32_t kNoFloatExceptions = 0x1f80;
#endif

// Of the calling thread; programs change it by torch.set_flush_denormal() or <cfenv>.
inline uint32_t float_mode() {
#if defined(__SSE__)
  return _mm_getcsr() & kFloatModeBits;
#else
  return kDefaultFloatMode;
#endif
}

// Gives the calling thread the mode of another while it works for that.
class FloatModeScope {
 public:
#if defined(__SSE__)
  explicit FloatModeScope(uint32_t mode)
      : outer_(_mm_getcsr()),
        changes_((outer_ & (kFloatModeBits | kNoFloatExceptions)) != (mode | kNoFloatExceptions)) {
    if (changes_) _mm_setcsr(mode | kNoFloatExceptions);
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
