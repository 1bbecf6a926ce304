// SPDX-License-Identifier: MIT
// What the recorder asks before it runs a circuit: is a trace or a profiler on?
#pragma once

#include <cstdint>

#include "hologram/trace.h"
#include "src/runtime/threads/spin.h"

namespace hologram::internal {

inline bool is_traced() { return g_traces.load(std::memory_order_relaxed) != 0; }
// Whether a trace is on, or the observer wants what this thread causes to run.
bool is_wanted();
inline bool is_watched() { return g_watchers.load(std::memory_order_relaxed) != 0 && is_wanted(); }

// Of the thread that seals a circuit: what it is doing, for traces (null: nothing said), and what
// the observer wants to know of it where the circuit runs (null: nothing).
const char* watch_cause();
void* share_observation();
// Gives back what share_observation() returned for a circuit that is not to run.
void drop_observation(void* shared);

// What the observer's mark() says of an op that this thread is about to record; 0 where it is not
// asked.
bool is_marking();
uint64_t ask_for_mark();

// Around fork, after every other lock of the recorder.
void lock_traces();
void unlock_traces();

}  // namespace hologram::internal
