// SPDX-License-Identifier: MIT
// The process's worker threads: tiles claimed from a shared counter, no barriers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "hologram/api.h"

namespace hologram {

// How many processors the process gets: those that its threads may run on, but no more than the CPU
// quota of its control groups (of a container), rounded down; at least 1. Fixed when first asked.
HOLOGRAM_API int usable_processors();
// Processors to which another runtime of this process binds its threads, by number, so that masks
// of threads show a part of them. To be called before anything is computed.
HOLOGRAM_API void add_processors(const int* numbers, int count);

// Threads a parallel_for may use, the caller included. By default OMP_NUM_THREADS where set, else
// usable_processors(). Values below 1 are refused.
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

// Threads that another runtime in this process already keeps: team(threads, member, context) runs
// member(context) on the calling thread and up to threads - 1 others and returns when all have.
// Such threads may spin for milliseconds after each region, and a second pool would have to wait
// for them to give up the processor. So while that runtime uses them for a thread, parallel_for on
// this thread uses the team instead of the library's workers, and the recorder's worker is left
// alone. It is known to use them for some milliseconds after note_team_in_use(), which it calls
// after a region of its own, and when `is_awake`, called on the thread in question, says that they
// run and not for us. Null: only what is noted is known. Tiles are claimed as usual. A null team
// takes it away. A forked child has none.
using ThreadTeam = void (*)(int threads, void (*member)(void*), void* context);
HOLOGRAM_API void set_thread_team(ThreadTeam team, bool (*is_awake)() = nullptr);
HOLOGRAM_API void note_team_in_use();

struct ParallelStats {
  int64_t jobs = 0;          // parallel_for calls that were offered to workers
  int64_t worker_tiles = 0;  // tiles that workers ran
  int workers = 0;           // threads alive
};
HOLOGRAM_API ParallelStats parallel_stats();

namespace internal {
using TileFunction = void (*)(void* context, int64_t begin, int64_t end, int worker);
HOLOGRAM_API void run_tiles(int64_t tiles, int max_threads, TileFunction function, void* context);
}  // namespace internal

// Calls f(begin, end, worker) until every tile in [0, tiles) has been covered once. The caller
// works too and is worker 0; at most max_threads threads take part (0: num_threads()), and worker
// is below that number. Which thread runs what is not fixed, so results must not depend on it.
// Runs inline when nested or for one tile. An exception in a tile stops further claims and is
// rethrown here. Make a tile some microseconds of work: claiming one costs tens of nanoseconds,
// waking a worker a few microseconds.
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
