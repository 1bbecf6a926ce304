// SPDX-License-Identifier: MIT
// What the recorder asks before it runs a circuit: does anybody watch?
#pragma once

#include <cstdint>

#include "hologram/trace.h"
#include "src/runtime/busy.h"

namespace hologram::internal {

inline bool is_watched() { return g_watchers.load(std::memory_order_relaxed) != 0; }

// Around fork, after every other lock of the recorder.
void lock_traces();
void unlock_traces();

}  // namespace hologram::internal
