// SPDX-License-Identifier: MIT
// Threads that run circuits beside the program, and how a thread that waits for them helps.
#pragma once

#include <cstdint>

#include "src/runtime/threads/futex.h"

namespace hologram::internal {

// Rung when a thread beside the program publishes tiles, and when a run lock is given up.
Bell& beside_bell();

// While it lives the calling thread runs a circuit beside the program: parallel_for uses at most
// `threads` threads and never a lent team, and leaves one of their places to a guest.
class WorkerScope {
 public:
  explicit WorkerScope(int threads);
  ~WorkerScope();
  WorkerScope(const WorkerScope&) = delete;
  WorkerScope& operator=(const WorkerScope&) = delete;

 private:
  const int outer_;
};

// Whether the threads that another runtime lent spin at `now`, for all that is known on the calling
// thread; see set_thread_team().
bool does_team_spin(int64_t now);

// Whether a guest would find tiles now.
bool is_beside_claimable();
// Runs tiles of threads beside the program, as their guest, until none is left; whether there were
// any.
bool help_beside();

}  // namespace hologram::internal
