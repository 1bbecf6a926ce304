// SPDX-License-Identifier: MIT
// The parts of the linear pool: caches per thread and shared lists of small blocks, medium blocks,
// mapped large blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "hologram/buffer.h"
#include "src/runtime/memory/size_class.h"

namespace hologram::internal {

// Buffers linked through next_, newest first.
struct BufferList {
  Buffer* head = nullptr;
  uint32_t count = 0;

  void push(Buffer* buffer);
  Buffer* pop();
  // Moves up to `count` buffers out.
  BufferList take(uint32_t count);
  void append(BufferList other);
};

// What one thread did since it last told the shared counters. Written by its thread alone, read by
// any, hence relaxed atomics with plain loads and stores.
struct Tally {
  std::atomic<int64_t> bytes{0};       // allocated minus freed
  std::atomic<int64_t> bytes_peak{0};  // the largest value of `bytes` since then
  std::atomic<int64_t> bytes_total{0};
  std::atomic<int64_t> requested{0};
  std::atomic<int64_t> requested_total{0};
  std::atomic<int64_t> blocks{0};
  std::atomic<int64_t> blocks_total{0};

  static void add(std::atomic<int64_t>& counter, int64_t amount) {
    counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  void allocated(size_t capacity, size_t nbytes) {
    const int64_t now = bytes.load(std::memory_order_relaxed) + static_cast<int64_t>(capacity);
    bytes.store(now, std::memory_order_relaxed);
    if (now > bytes_peak.load(std::memory_order_relaxed)) {
      bytes_peak.store(now, std::memory_order_relaxed);
    }
    add(bytes_total, static_cast<int64_t>(capacity));
    add(requested, static_cast<int64_t>(nbytes));
    add(requested_total, static_cast<int64_t>(nbytes));
    add(blocks, 1);
    add(blocks_total, 1);
    if (now > kTell) tell();
  }
  void freed(size_t capacity, size_t nbytes) {
    const int64_t now = bytes.load(std::memory_order_relaxed) - static_cast<int64_t>(capacity);
    bytes.store(now, std::memory_order_relaxed);
    add(requested, -static_cast<int64_t>(nbytes));
    add(blocks, -1);
    if (now < -kTell) tell();
  }
  // Moves everything to the shared counters.
  void tell();

  static constexpr int64_t kTell = int64_t{1} << 20;
};

struct alignas(64) ThreadCache {
  struct List {
    Buffer* head = nullptr;
    uint32_t count = 0;
    uint32_t limit = 0;  // blocks kept here at most
  };
  List lists[kCachedClasses];
  alignas(64) Tally tally;
  uint64_t trim_epoch = 0;
  size_t refilled = 0;  // bytes fetched since the total was last looked at
  ThreadCache* next = nullptr;
  ThreadCache* prev = nullptr;
};

// The calling thread's cache; null before its first allocation and after its end.
extern constinit thread_local ThreadCache* t_cache __attribute__((tls_model("initial-exec")));

// Makes the calling thread's cache; null while the thread is ending or when memory is out.
ThreadCache* make_thread_cache();
// How many blocks of a class a thread keeps, and how many move at a time.
uint32_t cache_limit(int size_class);
inline uint32_t batch_size(int size_class) { return (cache_limit(size_class) + 1) / 2; }
// Moves every block of the cache to the shared lists.
void flush_cache(ThreadCache* cache) noexcept;
// Before fetching: empties the cache when it was asked to or holds too much.
void refresh_cache(ThreadCache* cache) noexcept;
// Counts up when caches should be emptied.
extern std::atomic<uint64_t> g_trim_epoch;

// Shared lists of the small classes and of bare headers.
// Up to `count` blocks, at least one unless memory is out.
BufferList central_fetch(int size_class, uint32_t count);
void central_return(int size_class, BufferList list) noexcept;
// Gives free pages back to the system, those of spans whose blocks are all free among them.
void central_trim() noexcept;

// Large blocks. A null result means memory is out.
Buffer* large_allocate(size_t nbytes);
void large_release(Buffer* buffer) noexcept;
// Unmaps the blocks longest unused until at most keep_bytes are cached.
void large_trim(size_t keep_bytes) noexcept;
size_t large_cached_bytes();

// Runs what is recorded on the device, so that what only the recorder holds is released. False if
// nothing was done: nothing is recorded, or circuits are being run at this moment.
bool release_recorded(Device& device) noexcept;

// Around fork: nothing of the pool may be half changed in the child.
void central_lock_all();
void central_unlock_all();
void large_lock_all();
void large_unlock_all();

}  // namespace hologram::internal
