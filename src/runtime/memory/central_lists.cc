// SPDX-License-Identifier: MIT
// The shared lists of small blocks.
#include <algorithm>
#include <mutex>
#include <new>
#include <numeric>

#include "src/runtime/memory/buffer_access.h"
#include "src/runtime/memory/linear_pool.h"
#include "src/runtime/memory/memory_watch.h"
#include "src/runtime/memory/os_memory.h"
#include "src/runtime/memory/page_heap.h"

namespace hologram::internal {
namespace {

// Classes share locks, so that fork has few to take.
constexpr int kShards = 8;
struct alignas(64) Shard {
  std::mutex mutex;
};

constexpr size_t kHeaderSlab = size_t{256} << 10;

// Leaked on purpose: buffers are released until the very end of the process.
struct Central {
  Shard shards[kShards];
  BufferList lists[kCachedClasses];
};

Central& central() {
  static Central* instance = new Central;
  return *instance;
}

// Headers come from slabs of their own, so that the data of neighbours stay dense.
BufferList carve_headers() {
  BufferList list;
  char* slab = static_cast<char*>(os_map(kHeaderSlab));
  auto* known = slab != nullptr ? new (std::nothrow) HeaderSlab : nullptr;
  if (known == nullptr) {
    if (slab != nullptr) os_unmap(slab, kHeaderSlab);
    return list;
  }
  for (size_t at = kHeaderSlab; at >= sizeof(Buffer); at -= sizeof(Buffer)) {
    Buffer* header = BufferAccess::construct(slab + at - sizeof(Buffer));
    BufferAccess::size_class(header) = kBareClass;
    list.push(header);
  }
  // The first header is where the loop ended.
  known->headers = list.head;
  known->count = list.count;
  known->next = g_header_slabs.load(std::memory_order_relaxed);
  while (!g_header_slabs.compare_exchange_weak(known->next, known, std::memory_order_release)) {
  }
  return list;
}

// All blocks of a new span; empty when memory is out.
BufferList carve(int size_class) {
  if (size_class == kBareClass) return carve_headers();
  const SpanCut cut = cut_span(size_class);
  const uint32_t blocks = static_cast<uint32_t>(cut.blocks);
  BufferList headers;
  while (headers.count < blocks) {
    BufferList more = central_fetch(kBareClass, blocks - headers.count);
    if (more.count == 0) break;
    headers.append(more);
  }
  Span* span = headers.count == blocks ? take_span(span_bytes(size_class)) : nullptr;
  if (span == nullptr) {
    central_return(kBareClass, headers);
    return {};
  }
  span->blocks = blocks;
  size_t number = 0;
  for (Buffer* b = headers.head; b != nullptr; b = BufferAccess::next(b)) {
    BufferAccess::size_class(b) = static_cast<uint16_t>(size_class);
    BufferAccess::pool(b) =
        PoolKind::kLinear;  // list_memory() looks at blocks that were never used
    BufferAccess::data(b) = span->base + number * cut.stride;
    BufferAccess::capacity(b) = class_bytes(size_class);
    BufferAccess::owner(b) = span;
    number = (number + cut.step) % blocks;
  }
  return headers;
}

// How far apart within their pages blocks are from the two that are handed out before them, as are
// the operands and the result of an op. A kilobyte is enough.
size_t sum_apart(const SpanCut& cut) {
  const auto place = [&](size_t k) { return k * cut.step % cut.blocks * cut.stride; };
  size_t sum = 0;
  for (size_t k = 1; k < cut.blocks; ++k) {
    for (size_t before = 1; before <= std::min<size_t>(k, 2); ++before) {
      const size_t apart = (place(k) - place(k - before)) % kPage;
      sum += std::min({apart, kPage - apart, 4 * kColour});
    }
  }
  return sum;
}

}  // namespace

SpanCut cut_span(int size_class) {
  const size_t size = class_bytes(size_class);
  const size_t bytes = round_to_pages(span_bytes(size_class));
  if (size < kPage) return {bytes / size, size, 1};
  const size_t blocks = bytes / (size + kColour);
  const size_t room = (bytes - blocks * size) / blocks;
  SpanCut cut{blocks, size + kColour, 1};
  size_t widest = sum_apart(cut);
  for (size_t more = kColour; more <= std::min(room, 5 * kColour); more += kColour) {
    for (size_t step = 1; step < blocks; ++step) {
      if (std::gcd(step, blocks) != 1) continue;
      const SpanCut other{blocks, size + more, step};
      if (const size_t apart = sum_apart(other); apart > widest) widest = apart, cut = other;
    }
  }
  return cut;
}

void BufferList::push(Buffer* buffer) {
  BufferAccess::next(buffer) = head;
  head = buffer;
  ++count;
}

Buffer* BufferList::pop() {
  Buffer* buffer = head;
  if (buffer != nullptr) {
    head = BufferAccess::next(buffer);
    --count;
  }
  return buffer;
}

BufferList BufferList::take(uint32_t wanted) {
  BufferList taken;
  if (wanted == 0 || head == nullptr) return taken;
  taken.head = head;
  Buffer* last = head;
  taken.count = 1;
  while (taken.count < wanted && BufferAccess::next(last) != nullptr) {
    last = BufferAccess::next(last);
    ++taken.count;
  }
  head = BufferAccess::next(last);
  BufferAccess::next(last) = nullptr;
  count -= taken.count;
  return taken;
}

void BufferList::append(BufferList other) {
  if (other.head == nullptr) return;
  Buffer* last = other.head;
  while (BufferAccess::next(last) != nullptr) last = BufferAccess::next(last);
  BufferAccess::next(last) = head;
  head = other.head;
  count += other.count;
}

BufferList central_fetch(int size_class, uint32_t count) {
  Central& c = central();
  {
    std::lock_guard lock(c.shards[size_class % kShards].mutex);
    BufferList& list = c.lists[size_class];
    if (list.head != nullptr) return list.take(count);
  }
  BufferList carved = carve(size_class);
  BufferList result = carved.take(count);
  if (carved.count != 0) central_return(size_class, carved);
  return result;
}

void central_return(int size_class, BufferList list) noexcept {
  if (list.head == nullptr) return;
  Central& c = central();
  std::lock_guard lock(c.shards[size_class % kShards].mutex);
  c.lists[size_class].append(list);
}

void central_trim() noexcept {
  Central& c = central();
  for (int size_class = 0; size_class < kSmallClasses; ++size_class) {
    BufferList kept;
    BufferList bare;
    Span* empty = nullptr;
    {
      std::lock_guard lock(c.shards[size_class % kShards].mutex);
      BufferList& list = c.lists[size_class];
      for (Buffer* b = list.head; b != nullptr; b = BufferAccess::next(b)) {
        ++static_cast<Span*>(BufferAccess::owner(b))->seen_free;
      }
      // Blocks of a span that is free altogether come off; its count runs down to find the last.
      while (Buffer* b = list.pop()) {
        Span* span = static_cast<Span*>(BufferAccess::owner(b));
        if (span->seen_free < span->blocks) {
          kept.push(b);
          continue;
        }
        // Once for each span: at its first block.
        const char* data = static_cast<char*>(BufferAccess::data(b));
        if (static_cast<size_t>(data - span->base) < BufferAccess::capacity(b)) {
          span->next = empty;
          empty = span;
        }
        BufferAccess::size_class(b) = kBareClass;
        BufferAccess::data(b) = nullptr;
        BufferAccess::capacity(b) = 0;
        BufferAccess::owner(b) = nullptr;
        bare.push(b);
      }
      for (Buffer* b = kept.head; b != nullptr; b = BufferAccess::next(b)) {
        static_cast<Span*>(BufferAccess::owner(b))->seen_free = 0;
      }
      list = kept;
    }
    central_return(kBareClass, bare);
    while (empty != nullptr) {
      Span* span = empty;
      empty = span->next;
      span->seen_free = 0;
      give_span(span);
    }
  }
  trim_spans();
}

void central_lock_all() {
  Central& c = central();
  for (Shard& shard : c.shards) shard.mutex.lock();
  spans_lock();
}

void central_unlock_all() {
  Central& c = central();
  spans_unlock();
  for (Shard& shard : c.shards) shard.mutex.unlock();
}

}  // namespace hologram::internal
