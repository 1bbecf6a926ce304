// SPDX-License-Identifier: MIT
// The process's worker threads: tiles claimed from a shared counter, no barriers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "hologram/api.h"

namespace hologram {

// Threads a parallel_for may use, the caller included. By default OMP_NUM_THREADS where set, else
// the processors this process may run on. Values below 1 are refused.
HOLOGRAM_API int num_threads();
HOLOGRAM_API void set_num_threads(int threads);
// Asks `count` each time instead, so that another runtime's setting holds here too; it must be
// quick and may be called from any thread. Null, or a set_num_threads, takes it away.
HOLOGRAM_API void set_thread_count_source(int (*count)());

// Whether this thread is running a tile of some parallel_for (a further one would run inline).
HOLOGRAM_API bool in_parallel_region();
// Whether this thread is running a circuit, or a part of one, at this moment: an observer that is
// called then must not wait for anything that a thread which waits for circuits may hold, such as
// Python's lock.
HOLOGRAM_API bool is_running_circuit();

// Whether a worker asked now would begin soon: false on a machine busy with others' work. Cheap
// enough to ask per op; keeps itself up to date with a measurement now and then.
HOLOGRAM_API bool workers_answer_quickly();

// Threads that another runtime in this process already keeps: team(threads, member, context) runs
// member(context) on the calling thread and up to threads - 1 others and returns when all have.
// Such threads may spin for milliseconds after each region, and a second pool would have to wait
// for them to give up the processor. So while that runtime uses them for a thread, parallel_for on
// this thread uses the team instead of the library's workers, and the recorder's worker is left
// alone. It is known to use them for some milliseconds after note_team_in_use(), which it calls
// after a region of its own, and when `is_awake`, called on the thread in question, says that they
// run and not for us. Null: only what is noted is known. Tiles are claimed as usual, and late
// members count as late workers. A null team takes it away. A forked child has none.
using ThreadTeam = void (*)(int threads, void (*member)(void*), void* context);
HOLOGRAM_API void set_thread_team(ThreadTeam team, bool (*is_awake)() = nullptr);
HOLOGRAM_API void note_team_in_use();

struct ParallelStats {
  int64_t jobs = 0;            // parallel_for calls that were offered to workers
  int64_t inline_jobs = 0;     // calls that ran on the caller alone because workers answer late
  int64_t worker_tiles = 0;    // tiles that workers ran
  int64_t late_jobs = 0;       // jobs whose caller had to wait longer than it should
  int workers = 0;             // threads alive
  double wake_latency_us = 0;  // decaying average
};
HOLOGRAM_API ParallelStats parallel_stats();

namespace testing {
// Asks workers however late they answer, so that tests reach them on a busy machine too.
HOLOGRAM_API void always_ask_workers(bool always);
}  // namespace testing

namespace internal {
using TileFunction = void (*)(void* context, int64_t begin, int64_t end, int worker);
HOLOGRAM_API void run_tiles(int64_t tiles, int max_threads, TileFunction function, void* context);
}  // namespace internal

// Calls f(begin, end, worker) until every tile in [0, tiles) has been covered once. The caller
// works too and is worker 0; at most max_threads threads take part (0: num_threads()), and worker
// is below that number. Which thread runs what is not fixed, so results must not depend on it.
// Runs inline when nested, for one tile, or when workers answer late. An exception in a tile stops
// further claims and is rethrown here. Make a tile some microseconds of work: claiming one costs
// tens of nanoseconds, waking a worker a few microseconds.
template <class F>
void parallel_for(int64_t tiles, int max_threads, F&& f) {
  if (tiles <= 0) return;
  if (tiles == 1 || max_threads == 1) {
    f(int64_t{0}, tiles, 0);
    return;
  }
  using Function = std::remove_reference_t<F>;
  internal::run_tiles(
      tiles, max_threads,
      [](void* context, int64_t begin, int64_t end, int worker) {
        (*static_cast<Function*>(context))(begin, end, worker);
      },
      const_cast<void*>(static_cast<const void*>(&f)));
}

}  // namespace hologram
