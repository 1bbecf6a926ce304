// SPDX-License-Identifier: MIT
// How long a thread that waits for work spins before it sleeps.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/runtime/threads/contention_monitor.h"
#include "src/runtime/threads/futex.h"

namespace hologram::internal {

// How long a thread that is called for work spins before it sleeps. Spinning saves the caller a
// system call where calls follow one another; whether they do is learnt from the pauses.
class IdleSpin {
 public:
  // Spins until is_called() or for as long as that pays; whether it was called.
  template <class F>
  bool spin(F&& is_called) {
    since_ = now_ns();
    while (now_ns() - since_ < length_) {
      for (int i = 0; i < 32; ++i) {
        pause();
        if (is_called()) return true;
      }
    }
    return false;
  }
  // The pause ended at `called_at`, or now if that is 0. The time of the wake-up does not count: it
  // is longer than the pauses that are worth spinning through.
  void learn(int64_t called_at) {
    const int64_t idle = (called_at != 0 ? called_at : now_ns()) - since_;
    length_ = idle < kLongest ? std::min(kLongest, std::max(length_, 2 * idle))
                              : std::max(kShortest, length_ / 2);
  }

 private:
  static constexpr int64_t kShortest = 2'000;
  // About what waking costs both threads together.
  static constexpr int64_t kLongest = 150'000;

  int64_t length_ = kShortest;
  int64_t since_ = 0;
};

}  // namespace hologram::internal
