// SPDX-License-Identifier: MIT
// Worker threads that claim tiles of published jobs from a shared counter.
//
// A job sits in a slot whose `word` holds how many threads may take part and how many tiles are
// left; taking tiles is one compare-and-swap of that word. Success gives it a part of the job that
// the slot describes then, whatever it saw before, so a late worker can never touch a job
// that is over: its swap fails or finds another job's tiles, which it may then run. The caller
// waits only for tiles that were taken and not finished.
//
// A job of a thread that runs circuits beside the program also has a place for one guest, a
// thread that waits for it: a bit of the word says so.
#include "hologram/parallel.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <climits>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

#include "hologram/error.h"
#include "src/runtime/threads/float_mode.h"
#include "src/runtime/threads/futex.h"
#include "src/runtime/threads/processors.h"
#include "src/runtime/threads/spin.h"
#include "src/runtime/threads/worker_pool.h"
#include "src/runtime/threads/worker_scope.h"

namespace hologram {
namespace internal {
namespace {

constexpr int kWakeFanOut = 4;
constexpr int kTilesBits = 48;
constexpr uint64_t kTilesMask = (uint64_t{1} << kTilesBits) - 1;
constexpr uint64_t kGuestBit = uint64_t{1} << 63;

// Longer than workers commonly differ: one that wakes its caller may get it onto its processor.
constexpr int64_t kWaitSpin = 200'000;
// How long a lent team is used after its owner has. Then its threads have to fall asleep first,
// with the caller working alone: a small part of this.
constexpr int64_t kTeamUse = 200'000'000;
// At most how long its threads spin after a region (libgomp: 5 to 8 ms).
constexpr int64_t kTeamSpins = 10'000'000;
// How often a thread looks whether they do.
constexpr int64_t kLookEvery = 500'000;
constinit thread_local int t_depth = 0;
// What a thread knows of its lent team.
struct TeamUse {
  int64_t until = 0;      // the owner has used it lately, so that it is used until then
  int64_t last_job = 0;   // when our last job on it ended
  int64_t looked_at = 0;  // when it was asked last
  bool is_awake = false;  // and what it said
};
constinit thread_local TeamUse t_team;
// Of a thread that runs circuits beside the program: how many threads these may use.
constinit thread_local int t_beside = 0;

struct TileScope {
  TileScope() { ++t_depth; }
  ~TileScope() { --t_depth; }
};

WorkerPool& pool();

int threads_of(uint64_t word) { return static_cast<int>((word & ~kGuestBit) >> kTilesBits); }

// Takes tiles for thread `id`; false when none are left or the job wants fewer threads. A guest's
// id is what follows those of the job's threads.
template <bool is_guest = false>
bool claim(JobSlot& slot, std::conditional_t<is_guest, int&, int> id, int64_t& begin,
           int64_t& end) {
  uint64_t word = slot.word.load(std::memory_order_acquire);
  while (true) {
    const uint64_t left = word & kTilesMask;
    if (left == 0 || (is_guest ? (word & kGuestBit) == 0 : id >= threads_of(word))) return false;
    const uint64_t take = std::max<uint64_t>(1, left / slot.share.load(std::memory_order_relaxed));
    if (slot.word.compare_exchange_weak(word, word - take, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
      begin = slot.end - static_cast<int64_t>(left);
      end = begin + static_cast<int64_t>(take);
      if (is_guest) id = threads_of(word);
      return true;
    }
  }
}

// Runs claimed tiles; when one throws, keeps the first error and takes all tiles that are left.
// Returns how many tiles are finished by that.
int64_t run_claimed(JobSlot& slot, int id, int64_t begin, int64_t end) {
  const FloatModeScope mode(slot.float_mode);
  try {
    slot.function(slot.context, begin, end, id);
    return end - begin;
  } catch (...) {
    if (!slot.failed.exchange(true)) slot.error = std::current_exception();
    const uint64_t left = slot.word.exchange(0, std::memory_order_acq_rel) & kTilesMask;
    return end - begin + static_cast<int64_t>(left);
  }
}

void call_if_asleep(WorkerPool& p, int id) {
  WorkerThread* w = p.workers[id].load(std::memory_order_acquire);
  if (w == nullptr || w->sleeping.load() == 0 || w->sleeping.exchange(0) == 0) return;
  w->place.send_elsewhere();
  futex_wake(w->sleeping, 1);
}

// Wakes the sleeping among the threads that `id` is to wake: a tree, so that no one wakes many.
void call_children(WorkerPool& p, int id, int threads) {
  const int first = id * kWakeFanOut + 1;
  for (int child = first; child < std::min(first + kWakeFanOut, threads); ++child) {
    call_if_asleep(p, child);
  }
}

// Counts finished tiles, and wakes the caller of the job if it waits.
void settle(JobSlot& slot, int64_t tiles) {
  slot.finished.fetch_add(tiles, std::memory_order_seq_cst);
  // The job may be over from here on; a wake-up that hits the slot's next user is harmless.
  if (slot.waiting.load(std::memory_order_seq_cst) != 0 && slot.waiting.exchange(0) != 0) {
    futex_wake(slot.waiting, 1);
  }
}

// Runs whatever is claimable; whether there was anything.
bool work_on_slots(WorkerPool& p, WorkerThread& self, int id) {
  bool worked = false;
  for (uint64_t bits = p.taken.load(std::memory_order_seq_cst); bits != 0; bits &= bits - 1) {
    JobSlot& slot = p.slots[std::countr_zero(bits)];
    const uint64_t word = slot.word.load(std::memory_order_seq_cst);
    if ((word & kTilesMask) == 0) continue;
    self.place.leave(slot.processor.load(std::memory_order_relaxed));
    call_children(p, id, threads_of(word));
    int64_t begin = 0, end = 0;
    while (claim(slot, id, begin, end)) {
      worked = true;
      const int64_t settled = run_claimed(slot, id, begin, end);
      self.tiles.store(self.tiles.load(std::memory_order_relaxed) + end - begin,
                       std::memory_order_relaxed);
      settle(slot, settled);
    }
  }
  return worked;
}

void* worker_main(void* argument) {
  const int id = static_cast<int>(reinterpret_cast<intptr_t>(argument));
  WorkerPool& p = pool();
  WorkerThread& self = *p.workers[id].load(std::memory_order_acquire);
  const TileScope scope;  // a parallel_for in a tile runs inline
  self.place.enter(id);
  while (true) {
    uint32_t seen = p.published.load(std::memory_order_acquire);
    while (work_on_slots(p, self, id)) seen = p.published.load(std::memory_order_acquire);

    if (spin_until([&] { return p.published.load(std::memory_order_acquire) != seen; })) continue;
    self.sleeping.store(1, std::memory_order_seq_cst);
    if (p.published.load(std::memory_order_seq_cst) == seen) {
      while (self.sleeping.load(std::memory_order_acquire) != 0) futex_wait(self.sleeping, 1);
    } else {
      self.sleeping.store(0, std::memory_order_relaxed);
    }
  }
}

// Starts workers until `wanted` run or the system refuses; how many run.
int ensure_workers(WorkerPool& p, int wanted) {
  int alive = p.alive.load(std::memory_order_acquire);
  if (alive >= wanted) return alive;
  std::lock_guard lock(p.mutex);
  alive = p.alive.load(std::memory_order_relaxed);
  pthread_attr_t attributes;
  if (alive >= wanted || pthread_attr_init(&attributes) != 0) return alive;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  // Signals are for the threads the program knows of.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (alive < wanted) {
    WorkerThread* w = p.workers[alive + 1].load(std::memory_order_relaxed);
    if (w == nullptr && (w = new (std::nothrow) WorkerThread) == nullptr) break;
    p.workers[alive + 1].store(w, std::memory_order_release);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, worker_main,
                       reinterpret_cast<void*>(static_cast<intptr_t>(alive + 1))) != 0) {
      break;
    }
    ++alive;
    p.alive.store(alive, std::memory_order_release);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return alive;
}

// The child has none of the workers, nor the callers whose jobs are in the slots.
void make_pool_again() {
  WorkerPool& p = pool();
  p.alive.store(0);
  p.taken.store(0);
  p.team.store(nullptr);
  p.team_used_until.store(0);
  t_team = {};
  p.guest.store(false);
  p.beside.store(0);
  p.bell.forget_sleepers();
  for (JobSlot& slot : p.slots) {
    slot.word.store(0);
    slot.waiting.store(0);
  }
  for (std::atomic<WorkerThread*>& place : p.workers) {
    if (WorkerThread* w = place.load()) w->sleeping.store(0);
  }
  p.mutex.unlock();
}

WorkerPool& pool() {
  static WorkerPool* instance = [] {
    auto* p = new WorkerPool;  // leaked: workers use it until the process is gone
    pthread_atfork([] { pool().mutex.lock(); }, [] { pool().mutex.unlock(); }, make_pool_again);
    return p;
  }();
  return *instance;
}

int default_threads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    const long wish = std::strtol(text, nullptr, 10);
    if (wish > 0) return static_cast<int>(std::min<long>(wish, kMaxWorkers));
  }
  return std::min(processors(), kMaxWorkers);
}

JobSlot* take_slot(WorkerPool& p) {
  uint64_t taken = p.taken.load(std::memory_order_relaxed);
  while (taken != ~uint64_t{0}) {
    const int i = std::countr_one(taken);
    if (p.taken.compare_exchange_weak(taken, taken | uint64_t{1} << i)) return &p.slots[i];
  }
  return nullptr;
}

// Waits until workers have settled `target` tiles.
void await(JobSlot& slot, int64_t target) {
  const int64_t since = now_ns();
  while (slot.finished.load(std::memory_order_acquire) != target) {
    if (now_ns() - since < kWaitSpin) {
      for (int i = 0; i < 16; ++i) pause();
      continue;
    }
    slot.waiting.store(1, std::memory_order_seq_cst);
    if (slot.finished.load(std::memory_order_seq_cst) != target) futex_wait(slot.waiting, 1);
    slot.waiting.store(0, std::memory_order_relaxed);
  }
}

// A job as the members of a lent team see it. Its slot is none of the pool's: a worker that came by
// would take a member's number, and no thread would wait for it.
struct TeamJob {
  const void* caller;  // a thread-local address that tells the caller from the others
  JobSlot slot{};
  std::atomic<int> next_id{1};
  std::atomic<int64_t> others_tiles{0};
};

void run_member(void* argument) {
  auto& job = *static_cast<TeamJob*>(argument);
  const bool is_caller = job.caller == &t_depth;
  const int id = is_caller ? 0 : job.next_id.fetch_add(1, std::memory_order_relaxed);
  const TileScope scope;
  int64_t begin = 0, end = 0;
  int64_t tiles = 0;
  while (claim(job.slot, id, begin, end)) tiles += run_claimed(job.slot, id, begin, end);
  if (!is_caller) job.others_tiles.fetch_add(tiles, std::memory_order_relaxed);
}

// Puts a job into a slot, from which threads take it at once; `sharers` divide its tiles.
void offer(JobSlot& slot, TileFunction function, void* context, int64_t tiles, int threads,
           int sharers, bool guest) {
  slot.function = function;
  slot.context = context;
  slot.end = tiles;
  slot.float_mode = float_mode();
  slot.share.store(static_cast<uint32_t>(4 * sharers), std::memory_order_relaxed);
  slot.word.store((guest ? kGuestBit : 0) | static_cast<uint64_t>(threads) << kTilesBits |
                      static_cast<uint64_t>(tiles),
                  std::memory_order_seq_cst);
}

// On threads lent by another runtime, all of which have ended their part when team() returns.
void run_on_team(WorkerPool& p, ThreadTeam team, int64_t tiles, int threads, TileFunction function,
                 void* context) {
  TeamJob job{&t_depth};
  JobSlot& slot = job.slot;
  offer(slot, function, context, tiles, threads, threads, /*guest=*/false);
  p.jobs.fetch_add(1, std::memory_order_relaxed);
  team(threads, &run_member, &job);
  t_team.last_job = now_ns();
  p.team_tiles.fetch_add(job.others_tiles.load(), std::memory_order_relaxed);
  if (slot.error != nullptr) std::rethrow_exception(std::move(slot.error));
}

// On `threads` of the pool, the caller included; a guest may join.
void run_shared(WorkerPool& p, JobSlot& slot, int64_t tiles, int threads, bool guest,
                TileFunction function, void* context) {
  slot.processor.store(this_processor(), std::memory_order_relaxed);
  slot.finished.store(0, std::memory_order_relaxed);
  slot.failed.store(false, std::memory_order_relaxed);
  offer(slot, function, context, tiles, threads, threads + int{guest}, guest);
  p.published.fetch_add(1, std::memory_order_seq_cst);
  call_children(p, 0, threads);
  if (guest) p.bell.ring();
  p.jobs.fetch_add(1, std::memory_order_relaxed);

  int64_t settled = 0, from = 0, to = 0;
  while (claim(slot, 0, from, to)) settled += run_claimed(slot, 0, from, to);
  if (slot.finished.load(std::memory_order_acquire) != tiles - settled) {
    await(slot, tiles - settled);
  }
  std::exception_ptr error;
  if (slot.failed.load(std::memory_order_acquire)) std::swap(error, slot.error);
  p.taken.fetch_and(~(uint64_t{1} << (&slot - p.slots)), std::memory_order_release);
  if (error != nullptr) std::rethrow_exception(error);
}

// The lent team of the calling thread: asleep, used by its owner, or spinning after a job of ours.
enum class TeamState { kAsleep, kUsed, kFading };

TeamState team_state(WorkerPool& p, int64_t now) {
  if (p.team.load(std::memory_order_acquire) == nullptr) return TeamState::kAsleep;
  if (now < t_team.until) return TeamState::kUsed;
  const auto is_awake = p.team_is_awake.load(std::memory_order_acquire);
  if (is_awake == nullptr) return TeamState::kAsleep;
  if (now - t_team.looked_at >= kLookEvery) {
    t_team.looked_at = now;
    t_team.is_awake = is_awake();
  }
  if (!t_team.is_awake) return TeamState::kAsleep;
  if (now - t_team.last_job < kTeamSpins) return TeamState::kFading;
  note_team_in_use();
  return TeamState::kUsed;
}

// For a thread beside the program: never on a lent team, which is tied to the threads that program
// knows of, and with a place left for a thread that comes to wait.
void run_beside(WorkerPool& p, int64_t tiles, int threads, TileFunction function, void* context) {
  const int helpers = threads > 2 ? std::min(threads - 2, ensure_workers(p, threads - 2)) : 0;
  if (JobSlot* slot = take_slot(p); slot != nullptr) {
    run_shared(p, *slot, tiles, helpers + 1, /*guest=*/true, function, context);
  } else {
    function(context, 0, tiles, 0);
  }
}

}  // namespace

void run_tiles(int64_t tiles, int max_threads, TileFunction function, void* context) {
  if (max_threads < 0) {
    fail(ErrorKind::kInvalidArgument, "parallel_for: max_threads is ", max_threads,
         "; pass a positive number, or 0 for num_threads()");
  }
  int wish = max_threads == 0 ? num_threads() : std::min(max_threads, kMaxWorkers);
  // A thread beside the program is one of them.
  if (t_beside == 0 && wish > 1 && pool().beside.load(std::memory_order_relaxed) > 0) --wish;
  int threads = static_cast<int>(std::min<int64_t>(wish, tiles));
  if (threads <= 1 || t_depth != 0 || static_cast<uint64_t>(tiles) > kTilesMask) {
    function(context, 0, tiles, 0);
    return;
  }
  WorkerPool& p = pool();
  const TileScope scope;
  if (t_beside != 0) return run_beside(p, tiles, threads, function, context);
  // The team, where its threads run anyway. Else ours, which stop spinning sooner, are the same for
  // all threads, and serve the recorder's worker too.
  if (const ThreadTeam lent = p.team.load();
      lent != nullptr && team_state(p, now_ns()) == TeamState::kUsed) {
    // Always the same number: a team that changes its size starts and ends threads.
    return run_on_team(p, lent, tiles, wish, function, context);
  }
  threads = std::min(threads, ensure_workers(p, threads - 1) + 1);
  JobSlot* slot = threads > 1 ? take_slot(p) : nullptr;
  if (slot == nullptr) {
    function(context, 0, tiles, 0);
    return;
  }
  run_shared(p, *slot, tiles, threads, /*guest=*/false, function, context);
}

bool does_team_spin(int64_t now) {
  WorkerPool& p = pool();
  return now < p.team_used_until.load(std::memory_order_relaxed) ||
         (t_beside == 0 && num_threads() > 1 && team_state(p, now) != TeamState::kAsleep);
}

Bell& beside_bell() { return pool().bell; }

WorkerScope::WorkerScope(int threads) : outer_(std::exchange(t_beside, std::max(threads, 1))) {
  WorkerPool& p = pool();
  p.beside.fetch_add(1, std::memory_order_relaxed);
}
WorkerScope::~WorkerScope() {
  pool().beside.fetch_sub(1, std::memory_order_relaxed);
  t_beside = outer_;
}

bool is_beside_claimable() {
  WorkerPool& p = pool();
  for (uint64_t bits = p.taken.load(std::memory_order_seq_cst); bits != 0; bits &= bits - 1) {
    const uint64_t word = p.slots[std::countr_zero(bits)].word.load(std::memory_order_seq_cst);
    if ((word & kGuestBit) != 0 && (word & kTilesMask) != 0) return true;
  }
  return false;
}

bool help_beside() {
  WorkerPool& p = pool();
  if (t_depth != 0 || !is_beside_claimable() || p.guest.exchange(true)) return false;
  bool helped = false;
  {
    const TileScope scope;
    for (uint64_t bits = p.taken.load(std::memory_order_seq_cst); bits != 0; bits &= bits - 1) {
      JobSlot& slot = p.slots[std::countr_zero(bits)];
      int id = 0;
      int64_t begin = 0, end = 0;
      while (claim<true>(slot, id, begin, end)) {
        helped = true;
        const int64_t settled = run_claimed(slot, id, begin, end);
        p.guest_tiles.fetch_add(end - begin, std::memory_order_relaxed);
        settle(slot, settled);
      }
    }
  }
  p.guest.store(false, std::memory_order_release);
  return helped;
}

}  // namespace internal

int num_threads() {
  if (internal::t_beside != 0) return internal::t_beside;
  internal::WorkerPool& p = internal::pool();
  if (int (*count)() = p.count_source.load(std::memory_order_relaxed)) {
    return std::clamp(count(), 1, internal::kMaxWorkers);
  }
  const int threads = p.threads.load(std::memory_order_relaxed);
  if (threads != 0) [[likely]]
    return threads;
  int unknown = 0;
  p.threads.compare_exchange_strong(unknown, internal::default_threads());
  return p.threads.load(std::memory_order_relaxed);
}

void set_num_threads(int threads) {
  if (threads < 1) {
    fail(ErrorKind::kInvalidArgument, "set_num_threads: ", threads,
         " is not a number of threads; pass 1 or more");
  }
  internal::pool().count_source.store(nullptr);
  internal::pool().threads.store(std::min(threads, internal::kMaxWorkers));
}

void set_thread_count_source(int (*count)()) { internal::pool().count_source.store(count); }

void set_thread_team(ThreadTeam team, bool (*is_awake)()) {
  internal::WorkerPool& p = internal::pool();
  p.team_is_awake.store(is_awake);
  p.team.store(team);
  if (team != nullptr) return;
  p.team_used_until.store(0);
  internal::t_team = {};
}

void note_team_in_use() {
  internal::WorkerPool& p = internal::pool();
  if (p.team.load(std::memory_order_relaxed) == nullptr || num_threads() <= 1) return;
  internal::t_team.until = internal::now_ns() + internal::kTeamUse;
  p.team_used_until.store(internal::t_team.until, std::memory_order_relaxed);
}

bool in_parallel_region() { return internal::t_depth != 0; }

ParallelStats parallel_stats() {
  internal::WorkerPool& p = internal::pool();
  ParallelStats s;
  s.jobs = p.jobs.load();
  s.workers = p.alive.load();
  s.worker_tiles = p.team_tiles.load() + p.guest_tiles.load();
  for (int i = 1; i <= s.workers; ++i) {
    if (internal::WorkerThread* w = p.workers[i].load()) s.worker_tiles += w->tiles.load();
  }
  return s;
}

}  // namespace hologram
