// SPDX-License-Identifier: MIT
// Float modes of threads for tests: rounding, and denormal numbers taken for zero.
#pragma once

#include <xmmintrin.h>

namespace hologram {

// Bits of MXCSR.
constexpr unsigned kMode = 0xe040;  // all but exceptions
constexpr unsigned kFlush = 0x8040, kUp = 0x4000;

// The calling thread is in that mode as long as this lives.
class InMode {
 public:
  explicit InMode(unsigned mode) : before_(_mm_getcsr()) { _mm_setcsr((before_ & ~kMode) | mode); }
  ~InMode() { _mm_setcsr(before_); }
  InMode(const InMode&) = delete;
  InMode& operator=(const InMode&) = delete;

 private:
  const unsigned before_;
};

}  // namespace hologram
