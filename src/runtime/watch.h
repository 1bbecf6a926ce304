// SPDX-License-Identifier: MIT
// What the recorder asks before it runs a circuit: does anybody watch?
#pragma once

#include <chrono>
#include <cstdint>

#include "hologram/trace.h"

namespace hologram::internal {

inline bool is_watched() { return g_watchers.load(std::memory_order_relaxed) != 0; }

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Around fork, after every other lock of the recorder.
void lock_traces();
void unlock_traces();

}  // namespace hologram::internal
