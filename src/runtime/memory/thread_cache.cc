// SPDX-License-Identifier: MIT
// Caches of threads, their registry, the statistics they add up to, and what fork does to them.
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <new>

#include "hologram/memory.h"
#include "src/runtime/memory/buffer_access.h"
#include "src/runtime/memory/linear_pool.h"
#include "src/runtime/memory/memory_watch.h"
#include "src/runtime/memory/os_memory.h"

namespace hologram {
namespace internal {

constinit thread_local ThreadCache* t_cache = nullptr;
std::atomic<uint64_t> g_trim_epoch{0};

namespace {

// Set when the cache of this thread is gone; later blocks go to the shared lists.
constinit thread_local bool t_ended = false;

constexpr size_t kListBytes = size_t{512} << 10;  // kept in one list at most
constexpr size_t kCacheBytes = size_t{16} << 20;  // kept by one thread, looked at now and then
constexpr size_t kLookEveryBytes = size_t{4} << 20;

struct Counter {
  std::atomic<int64_t> current{0};
  std::atomic<int64_t> peak{0};
  std::atomic<int64_t> total{0};
  // The values of `total`, and of `total` less what was live, at the last reset: threads go on
  // adding to their own totals.
  int64_t total_before = 0;
  int64_t freed_before = 0;

  void raise_peak(int64_t value) {
    int64_t seen = peak.load(std::memory_order_relaxed);
    while (value > seen && !peak.compare_exchange_weak(seen, value)) {
    }
  }
};

// Leaked on purpose, as the lists.
struct Registry {
  std::mutex mutex;
  ThreadCache* live = nullptr;
  ThreadCache* spare = nullptr;
  ThreadCache* lost = nullptr;  // of threads that a fork left behind
  pthread_key_t key{};
  bool key_made = false;

  Counter bytes;
  Counter requested;
  Counter blocks;
  Counter boundary_blocks;
  std::atomic<int64_t> boundary_reserved{0};
  std::atomic<int64_t> retries{0};
  std::atomic<int64_t> out_of_memory{0};
};

void end_of_thread(void* cache);
void lock_caches();
void unlock_caches();
void forget_other_threads();

Registry& registry() {
  static Registry* instance = [] {
    auto* r = new Registry;
    r->key_made = pthread_key_create(&r->key, end_of_thread) == 0;
    pthread_atfork(lock_caches, unlock_caches, forget_other_threads);
    return r;
  }();
  return *instance;
}

void unlink(Registry& r, ThreadCache* cache) {
  (cache->prev != nullptr ? cache->prev->next : r.live) = cache->next;
  if (cache->next != nullptr) cache->next->prev = cache->prev;
}

void end_of_thread(void* argument) {
  auto* cache = static_cast<ThreadCache*>(argument);
  flush_cache(cache);
  cache->tally.tell();
  t_cache = nullptr;
  t_ended = true;
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  unlink(r, cache);
  cache->next = r.spare;
  r.spare = cache;
}

void lock_caches() {
  registry().mutex.lock();
  large_lock_all();
  central_lock_all();
}

void unlock_caches() {
  central_unlock_all();
  large_unlock_all();
  registry().mutex.unlock();
}

// Caches of threads that the child does not have may be half changed: what they hold is given up,
// what they counted is kept.
void forget_other_threads() {
  Registry& r = registry();
  for (ThreadCache* cache = r.live; cache != nullptr;) {
    ThreadCache* next = cache->next;
    if (cache != t_cache) {
      cache->tally.tell();
      unlink(r, cache);
      cache->next = r.lost;
      r.lost = cache;
    }
    cache = next;
  }
  unlock_caches();
}

int64_t sum(std::atomic<int64_t> Tally::*field) {
  int64_t total = 0;
  for (ThreadCache* cache = registry().live; cache != nullptr; cache = cache->next) {
    total += (cache->tally.*field).load(std::memory_order_relaxed);
  }
  return total;
}

MemoryStat merged(Counter& counter, int64_t current, int64_t peak, int64_t total) {
  MemoryStat stat;
  const int64_t shared = counter.current.load(std::memory_order_relaxed);
  stat.current = shared + current;
  counter.raise_peak(shared + std::max(peak, current));
  stat.peak = counter.peak.load(std::memory_order_relaxed);
  const int64_t added = counter.total.load(std::memory_order_relaxed) + total;
  stat.total = added - counter.total_before;
  // A thread may be between its counts.
  stat.freed = std::max<int64_t>(added - stat.current - counter.freed_before, 0);
  return stat;
}

}  // namespace

void Tally::tell() {
  Registry& r = registry();
  const int64_t peak_here = bytes_peak.load(std::memory_order_relaxed);
  const auto move = [](std::atomic<int64_t>& from, std::atomic<int64_t>& to) {
    const int64_t value = from.load(std::memory_order_relaxed);
    from.store(0, std::memory_order_relaxed);
    return to.fetch_add(value, std::memory_order_relaxed);
  };
  const int64_t before = move(bytes, r.bytes.current);
  bytes_peak.store(0, std::memory_order_relaxed);
  r.bytes.raise_peak(before + peak_here);
  move(bytes_total, r.bytes.total);
  move(requested, r.requested.current);
  move(requested_total, r.requested.total);
  move(blocks, r.blocks.current);
  move(blocks_total, r.blocks.total);
  r.requested.raise_peak(r.requested.current.load(std::memory_order_relaxed));
  r.blocks.raise_peak(r.blocks.current.load(std::memory_order_relaxed));
}

uint32_t cache_limit(int size_class) {
  // As many as the results of one circuit, which are all released at its end, and those of the
  // next.
  if (size_class == kBareClass) return 2048;
  return static_cast<uint32_t>(std::clamp<size_t>(kListBytes / class_bytes(size_class), 2, 128));
}

ThreadCache* make_thread_cache() {
  if (t_ended) return nullptr;
  Registry& r = registry();
  if (!r.key_made) return nullptr;
  std::lock_guard lock(r.mutex);
  ThreadCache* cache = r.spare;
  if (cache != nullptr) {
    r.spare = cache->next;
  } else {
    cache = new (std::nothrow) ThreadCache;
    if (cache == nullptr) return nullptr;
    for (int c = 0; c < kCachedClasses; ++c) cache->lists[c].limit = cache_limit(c);
  }
  if (pthread_setspecific(r.key, cache) != 0) {
    cache->next = r.spare;
    r.spare = cache;
    return nullptr;
  }
  cache->refilled = 0;
  cache->trim_epoch = g_trim_epoch.load(std::memory_order_relaxed);
  cache->prev = nullptr;
  cache->next = r.live;
  if (r.live != nullptr) r.live->prev = cache;
  r.live = cache;
  t_cache = cache;
  return cache;
}

void flush_cache(ThreadCache* cache) noexcept {
  for (int c = 0; c < kCachedClasses; ++c) {
    ThreadCache::List& list = cache->lists[c];
    central_return(c, BufferList{list.head, list.count});
    list.head = nullptr;
    list.count = 0;
  }
}

void refresh_cache(ThreadCache* cache) noexcept {
  const uint64_t epoch = g_trim_epoch.load(std::memory_order_relaxed);
  bool flush = cache->trim_epoch != epoch;
  if (cache->refilled > kLookEveryBytes) {
    cache->refilled = 0;
    size_t held = 0;
    for (int c = 0; c < kSmallClasses; ++c) held += cache->lists[c].count * class_bytes(c);
    flush = flush || held > kCacheBytes;
  }
  if (!flush) return;
  cache->trim_epoch = epoch;
  flush_cache(cache);
}

void count_retry() noexcept { registry().retries.fetch_add(1, std::memory_order_relaxed); }
void count_out_of_memory() noexcept {
  registry().out_of_memory.fetch_add(1, std::memory_order_relaxed);
}
void count_boundary_block(int64_t change) noexcept {
  Counter& counter = registry().boundary_blocks;
  const int64_t now = counter.current.fetch_add(change, std::memory_order_relaxed) + change;
  if (change > 0) counter.total.fetch_add(change, std::memory_order_relaxed);
  counter.raise_peak(now);
}
void count_boundary_reserved(int64_t change) noexcept {
  registry().boundary_reserved.fetch_add(change, std::memory_order_relaxed);
}

}  // namespace internal

MemoryStats memory_stats() {
  using internal::Tally;
  internal::Registry& r = internal::registry();
  MemoryStats s;
  {
    std::lock_guard lock(r.mutex);
    s.allocated_bytes =
        internal::merged(r.bytes, internal::sum(&Tally::bytes), internal::sum(&Tally::bytes_peak),
                         internal::sum(&Tally::bytes_total));
    const int64_t requested = internal::sum(&Tally::requested);
    s.requested_bytes =
        internal::merged(r.requested, requested, requested, internal::sum(&Tally::requested_total));
    const int64_t blocks = internal::sum(&Tally::blocks);
    s.active_blocks =
        internal::merged(r.blocks, blocks, blocks, internal::sum(&Tally::blocks_total));
    s.boundary_blocks = internal::merged(r.boundary_blocks, 0, 0, 0);
  }
  s.boundary_reserved_bytes = r.boundary_reserved.load(std::memory_order_relaxed);
  const internal::OsCounters os = internal::os_counters();
  s.reserved_bytes = os.reserved;
  s.cached_bytes = os.reserved.current - s.allocated_bytes.current;
  s.cached_large_bytes = static_cast<int64_t>(internal::large_cached_bytes());
  s.os_allocations = os.allocations;
  s.os_frees = os.frees;
  s.retries = r.retries.load(std::memory_order_relaxed);
  s.out_of_memory = r.out_of_memory.load(std::memory_order_relaxed);
  s.memory_limit = static_cast<int64_t>(memory_limit());
  s.max_cached_bytes = static_cast<int64_t>(max_cached_bytes());
  return s;
}

void reset_peak_memory_stats() {
  using internal::Tally;
  internal::Registry& r = internal::registry();
  std::lock_guard lock(r.mutex);
  for (auto* cache = r.live; cache != nullptr; cache = cache->next) {
    cache->tally.bytes_peak.store(cache->tally.bytes.load());
  }
  r.bytes.peak.store(r.bytes.current.load() + internal::sum(&Tally::bytes));
  r.requested.peak.store(r.requested.current.load() + internal::sum(&Tally::requested));
  r.blocks.peak.store(r.blocks.current.load() + internal::sum(&Tally::blocks));
  r.boundary_blocks.peak.store(r.boundary_blocks.current.load());
  internal::reset_os_peak();
}

void reset_accumulated_memory_stats() {
  using internal::Tally;
  internal::Registry& r = internal::registry();
  std::lock_guard lock(r.mutex);
  const auto reset = [](internal::Counter& counter, int64_t current, int64_t total) {
    counter.total_before = counter.total.load() + total;
    counter.freed_before = counter.total_before - counter.current.load() - current;
  };
  reset(r.bytes, internal::sum(&Tally::bytes), internal::sum(&Tally::bytes_total));
  reset(r.requested, internal::sum(&Tally::requested), internal::sum(&Tally::requested_total));
  reset(r.blocks, internal::sum(&Tally::blocks), internal::sum(&Tally::blocks_total));
  reset(r.boundary_blocks, 0, 0);
  r.retries.store(0);
  r.out_of_memory.store(0);
  internal::reset_os_totals();
}

}  // namespace hologram
