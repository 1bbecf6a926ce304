// SPDX-License-Identifier: MIT
// Large blocks: mapped one by one with huge pages, and kept for reuse, because page faults cost
// more than the arithmetic done on fresh memory.
#include <algorithm>
#include <mutex>

#include "hologram/memory.h"
#include "src/runtime/memory/buffer_access.h"
#include "src/runtime/memory/idle_trim.h"
#include "src/runtime/memory/linear_pool.h"
#include "src/runtime/memory/memory_watch.h"
#include "src/runtime/memory/os_memory.h"

namespace hologram::internal {
namespace {

// Headers of large blocks say kFirstLabel + bin, which no other header does.
constexpr int kFirstLabel = kMediumBlock + 1;
constexpr int kFirstClass = size_class(kMaxMedium + 1);
constexpr int kBins = kSizeClasses - kFirstClass;
int bin_of(Buffer* b) { return BufferAccess::size_class(b) - kFirstLabel; }

struct LargePool {
  std::mutex mutex;
  Buffer* free[kBins] = {};  // doubly linked through next and prev
  Buffer* oldest = nullptr;  // all free blocks, through older and newer
  Buffer* newest = nullptr;
  std::atomic<size_t> cached{0};
};

// Leaked on purpose, as the other lists.
LargePool& large_pool() {
  static LargePool* instance = new LargePool;
  return *instance;
}

// With the lock held: takes a free block out of both of its lists.
void unlink(LargePool& p, Buffer* b) {
  const int bin = bin_of(b);
  Buffer* next = BufferAccess::next(b);
  Buffer* prev = BufferAccess::prev(b);
  (prev != nullptr ? BufferAccess::next(prev) : p.free[bin]) = next;
  if (next != nullptr) BufferAccess::prev(next) = prev;
  Buffer* older = BufferAccess::older(b);
  Buffer* newer = BufferAccess::newer(b);
  (older != nullptr ? BufferAccess::newer(older) : p.oldest) = newer;
  (newer != nullptr ? BufferAccess::older(newer) : p.newest) = older;
  p.cached.store(p.cached.load(std::memory_order_relaxed) - BufferAccess::capacity(b),
                 std::memory_order_relaxed);
}

Buffer* take_cached(LargePool& p, int first) {
  std::lock_guard lock(p.mutex);
  // A block of the next class wastes little; instead of a larger one a new mapping is better.
  for (int bin = first; bin < std::min(first + 2, kBins); ++bin) {
    if (Buffer* b = p.free[bin]; b != nullptr) {
      unlink(p, b);
      return b;
    }
  }
  return nullptr;
}

}  // namespace

Buffer* large_allocate(size_t nbytes) {
  note_pool_use();
  LargePool& p = large_pool();
  const int bin = size_class(nbytes) - kFirstClass;
  if (Buffer* cached = take_cached(p, bin)) return cached;

  const size_t bytes = class_bytes(kFirstClass + bin);
  if (!reserve_bytes(bytes)) {
    const size_t now = p.cached.load(std::memory_order_relaxed);
    large_trim(now > bytes ? now - bytes : 0);
    if (!reserve_bytes(bytes)) return nullptr;
  }
  Buffer* b = central_fetch(kBareClass, 1).pop();
  void* data = b != nullptr ? os_map(bytes) : nullptr;
  if (data == nullptr) {
    unreserve_bytes(bytes);
    if (b != nullptr) give_header(b);
    return nullptr;
  }
  BufferAccess::size_class(b) = static_cast<uint16_t>(kFirstLabel + bin);
  BufferAccess::data(b) = data;
  BufferAccess::capacity(b) = bytes;
  note_segment(MemoryEvent::kReserve, data, bytes);
  return b;
}

void large_release(Buffer* b) noexcept {
  note_pool_use();
  LargePool& p = large_pool();
  const size_t limit = max_cached_bytes();
  {
    std::lock_guard lock(p.mutex);
    Buffer*& first = p.free[bin_of(b)];
    BufferAccess::next(b) = first;
    BufferAccess::prev(b) = nullptr;
    if (first != nullptr) BufferAccess::prev(first) = b;
    first = b;
    BufferAccess::older(b) = p.newest;
    BufferAccess::newer(b) = nullptr;
    (p.newest != nullptr ? BufferAccess::newer(p.newest) : p.oldest) = b;
    p.newest = b;
    const size_t cached = p.cached.load(std::memory_order_relaxed) + BufferAccess::capacity(b);
    p.cached.store(cached, std::memory_order_relaxed);
    if (cached <= limit) return;
  }
  large_trim(limit);
}

void large_trim(size_t keep_bytes) noexcept {
  LargePool& p = large_pool();
  while (true) {
    Buffer* victim;
    {
      std::lock_guard lock(p.mutex);
      if (p.cached.load(std::memory_order_relaxed) <= keep_bytes) return;
      victim = p.oldest;
      unlink(p, victim);
    }
    note_segment(MemoryEvent::kUnreserve, BufferAccess::data(victim),
                 BufferAccess::capacity(victim));
    // Unmapping walks page tables for long, so it happens outside the lock.
    os_unmap(BufferAccess::data(victim), BufferAccess::capacity(victim));
    unreserve_bytes(BufferAccess::capacity(victim));
    BufferAccess::data(victim) = nullptr;
    BufferAccess::capacity(victim) = 0;
    BufferAccess::size_class(victim) = kBareClass;
    give_header(victim);
  }
}

size_t large_cached_bytes() { return large_pool().cached.load(std::memory_order_relaxed); }

void large_lock_all() { large_pool().mutex.lock(); }
void large_unlock_all() { large_pool().mutex.unlock(); }

}  // namespace hologram::internal
