// SPDX-License-Identifier: MIT
// Allocation and release: the thread's own lists first, then the shared ones, then the system.
#include "src/runtime/memory/linear_pool.h"

#include <cstdio>
#include <limits>
#include <string>

#include "hologram/device.h"
#include "hologram/error.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"
#include "src/runtime/memory/buffer_access.h"
#include "src/runtime/memory/idle_trim.h"
#include "src/runtime/memory/memory_watch.h"
#include "src/runtime/memory/os_memory.h"
#include "src/runtime/memory/page_heap.h"

namespace hologram {
namespace internal {
namespace {

[[gnu::always_inline]] inline void start(Buffer* b, Device& device, size_t nbytes) {
  BufferAccess::refs(b).store(1, std::memory_order_relaxed);
  BufferAccess::pool(b) = PoolKind::kLinear;
  BufferAccess::dtype(b) = Dtype::kUInt8;
  BufferAccess::nbytes(b) = nbytes;
  BufferAccess::device(b) = &device;
  BufferAccess::recorded(b).store(0, std::memory_order_relaxed);
}

std::string size_text(size_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 6) {
    value /= 1024;
    ++unit;
  }
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

[[noreturn]] void out_of_memory(const Device& device, size_t nbytes) {
  if (device.is_host_memory()) count_out_of_memory();
  note_memory({.kind = MemoryEvent::kOutOfMemory,
               .bytes = nbytes,
               .requested = nbytes,
               .device = device.index()});
  const MemoryStats s = device.memory_stats();
  fail(ErrorKind::kOutOfMemory, "out of memory: tried to allocate ", size_text(nbytes), " (",
       nbytes, " bytes) on ", device.name(), ":", device.index(), "; ",
       size_text(static_cast<size_t>(s.allocated_bytes.current)), " in use, ",
       size_text(static_cast<size_t>(s.cached_bytes)), " cached, limit ",
       size_text(static_cast<size_t>(s.memory_limit)), ". Free buffers, ",
       device.is_host_memory() ? "make the work smaller, or raise the limit (HOLOGRAM_MEMORY_LIMIT)"
                               : "or make the work smaller");
}

void count_allocated(ThreadCache* cache, size_t capacity, size_t nbytes) {
  if (cache != nullptr) {
    cache->tally.allocated(capacity, nbytes);
  } else {
    Tally once;
    once.allocated(capacity, nbytes);
    once.tell();
  }
}

void count_freed(ThreadCache* cache, size_t capacity, size_t nbytes) {
  if (cache != nullptr) {
    cache->tally.freed(capacity, nbytes);
  } else {
    Tally once;
    once.freed(capacity, nbytes);
    once.tell();
  }
}

// A block of a small or the bare class; null when memory is out.
Buffer* small_allocate(ThreadCache* cache, int size_class) {
  if (cache == nullptr) return central_fetch(size_class, 1).pop();
  ThreadCache::List& list = cache->lists[size_class];
  if (list.head == nullptr) {
    note_pool_use();
    refresh_cache(cache);
    BufferList batch = central_fetch(size_class, batch_size(size_class));
    if (batch.count == 0) return nullptr;
    list.head = batch.head;
    list.count = batch.count;
    cache->refilled += batch.count * BufferAccess::capacity(batch.head);
  }
  Buffer* b = list.head;
  list.head = BufferAccess::next(b);
  --list.count;
  return b;
}

void small_release(ThreadCache* cache, Buffer* b) noexcept {
  const int c = BufferAccess::size_class(b);
  if (cache == nullptr) {
    BufferList one;
    one.push(b);
    central_return(c, one);
    return;
  }
  ThreadCache::List& list = cache->lists[c];
  if (list.count >= list.limit) {
    note_pool_use();
    BufferList all{list.head, list.count};
    central_return(c, all.take(batch_size(c)));
    list.head = all.head;
    list.count = all.count;
  }
  BufferAccess::next(b) = list.head;
  list.head = b;
  ++list.count;
}

// A block with a span to itself; null when memory is out.
Buffer* medium_allocate(ThreadCache* cache, size_t nbytes) {
  note_pool_use();
  Buffer* b = small_allocate(cache, kBareClass);
  if (b == nullptr) return nullptr;
  const size_t bytes = class_bytes(size_class(nbytes));
  Span* span = take_span(bytes + kPage);
  if (span == nullptr) {
    small_release(cache, b);
    return nullptr;
  }
  BufferAccess::size_class(b) = static_cast<uint16_t>(kMediumBlock);
  BufferAccess::data(b) = span->base + span->colour;
  BufferAccess::capacity(b) = bytes;
  BufferAccess::owner(b) = span;
  return b;
}

void medium_release(Buffer* b) noexcept {
  note_pool_use();
  auto* span = static_cast<Span*>(BufferAccess::owner(b));
  BufferAccess::size_class(b) = kBareClass;
  give_header(b);
  give_span(span);
}

Buffer* device_allocate(Device& device, size_t nbytes) {
  Buffer* b = take_header(device, nbytes);
  void* data = nbytes != 0 ? device.allocate_raw(nbytes) : nullptr;
  // Values that recorded work alone needs, as below.
  if (data == nullptr && nbytes != 0 && release_recorded(device))
    data = device.allocate_raw(nbytes);
  if (data == nullptr && nbytes != 0) {
    give_header(b);
    out_of_memory(device, nbytes);
  }
  BufferAccess::pool(b) = PoolKind::kDevice;
  BufferAccess::data(b) = data;
  BufferAccess::capacity(b) = nbytes;
  return b;
}

[[gnu::noinline]] Buffer* allocate_slowly(Device& device, size_t nbytes) {
  if (!device.is_host_memory()) return device_allocate(device, nbytes);
  if (nbytes > kMaxRequest || nbytes > memory_limit()) out_of_memory(device, nbytes);
  ThreadCache* cache = t_cache != nullptr ? t_cache : make_thread_cache();
  const int c = nbytes == 0 ? kBareClass : size_class(nbytes);
  const auto attempt = [&] {
    if (nbytes <= kMaxSmall) return small_allocate(cache, c);
    return nbytes <= kMaxMedium ? medium_allocate(cache, nbytes) : large_allocate(nbytes);
  };
  Buffer* b = attempt();
  if (b == nullptr) {
    empty_cache();
    b = attempt();
    // Eager execution would have released values that only recorded work needs.
    if (b == nullptr && release_recorded(device)) {
      empty_cache();
      b = attempt();
    }
    if (b == nullptr) out_of_memory(device, nbytes);
    count_retry();
  }
  start(b, device, nbytes);
  count_allocated(cache, BufferAccess::capacity(b), nbytes);
  return b;
}

[[gnu::noinline]] void recycle_slowly(Buffer* b) noexcept {
  ThreadCache* cache = t_cache != nullptr ? t_cache : make_thread_cache();
  switch (BufferAccess::pool(b)) {
    case PoolKind::kLinear:
      count_freed(cache, BufferAccess::capacity(b), BufferAccess::nbytes(b));
      if (const size_t capacity = BufferAccess::capacity(b); capacity <= kMaxSmall) {
        small_release(cache, b);
      } else if (capacity <= kMaxMedium) {
        medium_release(b);
      } else {
        large_release(b);
      }
      return;
    case PoolKind::kBoundary:
    case PoolKind::kForeign: {
      auto* deleter = BufferAccess::deleter(b);
      void* context = BufferAccess::pool(b) == PoolKind::kBoundary ? b : BufferAccess::owner(b);
      if (deleter != nullptr) deleter(context);
      break;
    }
    case PoolKind::kDevice:
      if (BufferAccess::data(b) != nullptr) {
        BufferAccess::device(b)->free_raw(BufferAccess::data(b), BufferAccess::capacity(b));
      }
      break;
    case PoolKind::kDeferred:
      if (auto* donor = static_cast<Buffer*>(BufferAccess::owner(b))) donor->release();
      break;
  }
  give_header(b);
}

// A deferred header and the memory lent to it, if any.
[[gnu::always_inline]] inline bool recycle_deferred(ThreadCache* cache, Buffer* b) noexcept {
  ThreadCache::List& list = cache->lists[kBareClass];
  if (list.count >= list.limit) return false;
  if (auto* donor = static_cast<Buffer*>(BufferAccess::owner(b))) {
    BufferAccess::owner(b) = nullptr;
    BufferAccess::data(b) = nullptr;
    BufferAccess::capacity(b) = 0;
    donor->release();
  }
  BufferAccess::next(b) = list.head;
  list.head = b;
  ++list.count;
  return true;
}

}  // namespace

Buffer* take_header(Device& device, size_t nbytes) {
  ThreadCache* cache = t_cache != nullptr ? t_cache : make_thread_cache();
  Buffer* b = small_allocate(cache, kBareClass);
  if (b == nullptr) {
    empty_cache();
    b = small_allocate(cache, kBareClass);
    if (b == nullptr) out_of_memory(device, nbytes);
  }
  start(b, device, nbytes);
  return b;
}

void give_header(Buffer* b) noexcept {
  BufferAccess::pool(b) = PoolKind::kLinear;
  BufferAccess::data(b) = nullptr;
  BufferAccess::capacity(b) = 0;
  BufferAccess::owner(b) = nullptr;
  BufferAccess::deleter(b) = nullptr;
  small_release(t_cache, b);
}

void adopt_memory(Buffer* b, Buffer* donor) noexcept {
  BufferAccess::owner(b) = donor;
  BufferAccess::capacity(b) = BufferAccess::capacity(donor);
  BufferAccess::publish_data(b, BufferAccess::data(donor));
}

void recycle_buffer(Buffer* b) noexcept {
  if (is_memory_watched()) [[unlikely]]
    note_buffer(MemoryEvent::kFree, b);
  BufferAccess::refs(b).store(0, std::memory_order_relaxed);  // for list_memory()
  ThreadCache* cache = t_cache;
  if (cache != nullptr && BufferAccess::pool(b) == PoolKind::kDeferred) {
    if (recycle_deferred(cache, b)) return;
  } else if (cache != nullptr && BufferAccess::pool(b) == PoolKind::kLinear) [[likely]] {
    const unsigned c = BufferAccess::size_class(b);
    if (c < kCachedClasses) [[likely]] {
      ThreadCache::List& list = cache->lists[c];
      if (list.count < list.limit) [[likely]] {
        BufferAccess::next(b) = list.head;
        list.head = b;
        ++list.count;
        cache->tally.freed(BufferAccess::capacity(b), BufferAccess::nbytes(b));
        return;
      }
    }
  }
  recycle_slowly(b);
}

const bool g_poisoning = is_poisoning();

// As allocate_buffer(), and no one is told.
[[gnu::always_inline]] inline Buffer* allocate_unwatched(Device& device, size_t nbytes) {
  ThreadCache* cache = t_cache;
  // nbytes - 1 wraps for zero, which goes the slow way too.
  if (cache != nullptr && nbytes - 1 < kMaxSmall && device.is_host_memory()) [[likely]] {
    ThreadCache::List& list = cache->lists[size_class(nbytes)];
    if (Buffer* b = list.head; b != nullptr) [[likely]] {
      list.head = BufferAccess::next(b);
      --list.count;
      start(b, device, nbytes);
      cache->tally.allocated(BufferAccess::capacity(b), nbytes);
      return b;
    }
  }
  return allocate_slowly(device, nbytes);
}

}  // namespace internal

Buffer* allocate_buffer(Device& device, size_t nbytes) {
  return internal::allocate_for(device, nbytes, 0);
}

Buffer* internal::allocate_for(Device& device, size_t nbytes, uint64_t mark) {
  Buffer* b = allocate_unwatched(device, nbytes);
  if (g_poisoning && device.is_host_memory()) [[unlikely]]
    poison(BufferAccess::data(b), nbytes);
  if (is_memory_watched()) [[unlikely]]
    note_buffer(MemoryEvent::kAllocate, b, mark);
  return b;
}

Buffer* wrap_buffer(Device& device, void* data, size_t nbytes, void (*deleter)(void*),
                    void* context) {
  if (data == nullptr && nbytes != 0) {
    fail(ErrorKind::kInvalidArgument, "wrap_buffer: data is null but nbytes is ", nbytes,
         "; pass the address of that many bytes");
  }
  Buffer* b = internal::take_header(device, nbytes);
  internal::BufferAccess::pool(b) = PoolKind::kForeign;
  internal::BufferAccess::data(b) = data;
  internal::BufferAccess::capacity(b) = nbytes;
  internal::BufferAccess::deleter(b) = deleter;
  internal::BufferAccess::owner(b) = context;
  return b;
}

Buffer* allocate_deferred(Device& device, size_t nbytes) {
  if (nbytes > internal::kMaxSmall && (nbytes > internal::kMaxRequest || nbytes > memory_limit())) {
    internal::out_of_memory(device, nbytes);
  }
  Buffer* b;
  internal::ThreadCache* cache = internal::t_cache;
  if (cache != nullptr && cache->lists[internal::kBareClass].head != nullptr) [[likely]] {
    internal::ThreadCache::List& list = cache->lists[internal::kBareClass];
    b = list.head;
    list.head = internal::BufferAccess::next(b);
    --list.count;
    // Thousands of headers may be in use, more than the nearest cache holds.
    __builtin_prefetch(list.head, 1);
    internal::start(b, device, nbytes);
  } else {
    b = internal::take_header(device, nbytes);
  }
  internal::BufferAccess::pool(b) = PoolKind::kDeferred;
  return b;
}

size_t allocation_size(size_t nbytes) {
  if (nbytes == 0 || nbytes > internal::kMaxRequest) return nbytes;
  return internal::class_bytes(internal::size_class(nbytes));
}

void empty_cache() {
  if (internal::ThreadCache* cache = internal::t_cache) internal::flush_cache(cache);
  internal::g_trim_epoch.fetch_add(1, std::memory_order_relaxed);
  internal::central_trim();
  internal::large_trim(0);
}

}  // namespace hologram
