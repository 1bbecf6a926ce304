// SPDX-License-Identifier: MIT
// The clock, and how a thread that waits for work spins before it sleeps.
#pragma once

#include <chrono>
#include <cstdint>

#include "src/runtime/threads/futex.h"

namespace hologram::internal {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// About what waking costs both threads together. Where calls follow one another, spinning saves the
// caller a system call.
inline constexpr int64_t kIdleSpin = 50'000;

// Spins until is_called(), for at most kIdleSpin; whether it was called.
template <class F>
bool spin_until(F&& is_called) {
  const int64_t since = now_ns();
  do {
    for (int i = 0; i < 32; ++i) {
      pause();
      if (is_called()) return true;
    }
  } while (now_ns() - since < kIdleSpin);
  return false;
}

}  // namespace hologram::internal
