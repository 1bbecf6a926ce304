// SPDX-License-Identifier: MIT
// Tells an observer what becomes of memory, and lists the memory that there is.
#include "src/runtime/memory/memory_watch.h"

#include <algorithm>
#include <map>

#include "hologram/device.h"
#include "src/runtime/memory/buffer_access.h"
#include "src/runtime/memory/linear_pool.h"
#include "src/runtime/memory/page_heap.h"

namespace hologram {
namespace internal {

constinit std::atomic<void (*)(const MemoryEvent&)> g_memory_observer{nullptr};
constinit std::atomic<HeaderSlab*> g_header_slabs{nullptr};

void note_memory(const MemoryEvent& event) {
  const auto observer = g_memory_observer.load(std::memory_order_acquire);
  if (observer != nullptr) observer(event);
}

void note_segment(MemoryEvent::Kind kind, const void* address, size_t bytes) {
  note_memory({.kind = kind,
               .address = reinterpret_cast<uintptr_t>(address),
               .bytes = bytes,
               .requested = bytes});
}

void note_buffer(MemoryEvent::Kind kind, Buffer* b, uint64_t mark) {
  const bool owns =
      BufferAccess::pool(b) == PoolKind::kLinear || BufferAccess::pool(b) == PoolKind::kDevice;
  if (!owns || BufferAccess::data(b) == nullptr || BufferAccess::capacity(b) == 0) return;
  note_memory({.kind = kind,
               .address = reinterpret_cast<uintptr_t>(BufferAccess::data(b)),
               .bytes = BufferAccess::capacity(b),
               .requested = BufferAccess::nbytes(b),
               .device = BufferAccess::device(b)->index(),
               .mark = mark});
}

}  // namespace internal

void set_memory_observer(void (*observer)(const MemoryEvent&)) {
  internal::g_memory_observer.store(observer, std::memory_order_release);
}

std::vector<MemorySegment> list_memory(const Device& device) {
  const bool host = device.is_host_memory();
  std::map<uintptr_t, MemorySegment> segments;
  if (host) {
    for (const internal::SpanPlace& span : internal::list_spans()) {
      segments[span.address] = {.address = span.address, .bytes = span.bytes, .blocks = {}};
    }
  }
  const auto* slab = internal::g_header_slabs.load(std::memory_order_acquire);
  for (; slab != nullptr; slab = slab->next) {
    for (size_t i = 0; i < slab->count; ++i) {
      Buffer* b = slab->headers + i;
      const PoolKind pool = internal::BufferAccess::pool(b);
      const auto address = reinterpret_cast<uintptr_t>(internal::BufferAccess::data(b));
      const size_t bytes = internal::BufferAccess::capacity(b);
      if (pool != (host ? PoolKind::kLinear : PoolKind::kDevice) || address == 0 || bytes == 0) {
        continue;
      }
      if (!host && (internal::BufferAccess::device(b) != &device || b->use_count() == 0)) continue;
      const bool active = b->use_count() != 0;
      const MemoryBlock block{address, bytes, active ? internal::BufferAccess::nbytes(b) : 0,
                              active};
      const bool in_span = host && bytes <= internal::kMaxMedium;
      if (!in_span) {
        segments[address] = {.address = address, .bytes = bytes, .large = true, .blocks = {block}};
        continue;
      }
      auto span = segments.upper_bound(address);
      if (span == segments.begin()) continue;
      --span;
      if (address - span->first < span->second.bytes) span->second.blocks.push_back(block);
    }
  }
  std::vector<MemorySegment> result;
  for (auto& [address, segment] : segments) {
    std::vector<MemoryBlock>& blocks = segment.blocks;
    std::sort(blocks.begin(), blocks.end(),
              [](const MemoryBlock& a, const MemoryBlock& b) { return a.address < b.address; });
    // What no block has, before, between and after them.
    std::vector<MemoryBlock> whole;
    uintptr_t end = segment.address;
    const auto fill_to = [&](uintptr_t next) {
      if (end < next) whole.push_back({end, next - end, 0, false});
    };
    for (const MemoryBlock& block : blocks) {
      fill_to(block.address);
      whole.push_back(block);
      end = block.address + block.bytes;
    }
    fill_to(segment.address + segment.bytes);
    blocks = std::move(whole);
    result.push_back(std::move(segment));
  }
  return result;
}

}  // namespace hologram
