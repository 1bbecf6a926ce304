// SPDX-License-Identifier: MIT
// The data of parallel.cc: jobs, worker threads, and what is known of them.
//
// Where a parallel_for runs; the first line that holds:
//
//   the call                                              runs on
//   one tile or one thread; from inside a tile            the caller
//   by a thread that runs circuits (WorkerScope)          it, workers while they help, one guest
//   a lent team is used by its owner: for 200 ms after    the team
//   note_team_in_use(), or found awake
//   any other                                             the caller and workers
//
// Nobody waits for a worker to come: the caller takes tiles too, and waits for those alone that
// workers have taken. On a busy machine that may be a scheduler's time slice now and then.
//
// How long a thread spins before it sleeps:
//
//   it waits                                              spins
//   as a worker, for a job                                50 us
//   as a caller, for tiles that workers have taken        200 us
//   for a circuit that another thread runs (recorder.cc)  200 us, helping meanwhile
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "hologram/parallel.h"
#include "src/runtime/threads/futex.h"
#include "src/runtime/threads/placement.h"

namespace hologram::internal {

inline constexpr int kMaxWorkers = 1024;
inline constexpr int kJobSlots = 64;

struct alignas(128) JobSlot {
  std::atomic<uint64_t> word{0};   // whether a guest may join << 63 | threads << 48 | tiles left
  std::atomic<uint32_t> share{1};  // take tiles left / share at once
  // Fixed while tiles are taken or left.
  TileFunction function = nullptr;
  void* context = nullptr;
  int64_t end = 0;
  uint32_t float_mode = 0;
  std::atomic<int> processor{-1};  // of the caller, as the job began
  // Tiles finished by workers, and the caller's wish to be woken when that changes.
  alignas(64) std::atomic<int64_t> finished{0};
  std::atomic<uint32_t> waiting{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
};

struct alignas(128) WorkerThread {
  std::atomic<uint32_t> sleeping{0};
  std::atomic<int64_t> tiles{0};
  ThreadPlace place;
};

struct WorkerPool {
  alignas(64) std::atomic<uint64_t> taken{0};  // slots in use, by bit
  alignas(64) std::atomic<uint32_t> published{0};
  JobSlot slots[kJobSlots];
  std::atomic<WorkerThread*> workers[kMaxWorkers] = {};  // index 0 is the caller: unused
  std::atomic<int> alive{0};                             // workers 1..alive run
  std::atomic<int> threads{0};                           // num_threads; 0 until known
  std::mutex mutex;                                      // starting workers
  std::atomic<ThreadTeam> team{nullptr};
  std::atomic<bool (*)()> team_is_awake{nullptr};
  std::atomic<int64_t> team_used_until{0};  // for any thread
  std::atomic<int> beside{0};               // threads that run circuits beside the program
  std::atomic<int (*)()> count_source{nullptr};
  std::atomic<int64_t> team_tiles{0};
  std::atomic<int64_t> jobs{0};
  std::atomic<int64_t> guest_tiles{0};
  std::atomic<bool> guest{false};  // one at a time, so that a job never has two
  Bell bell;
};

}  // namespace hologram::internal
