// SPDX-License-Identifier: MIT
// What the pools tell: whoever watches memory, see set_memory_observer(), and the counters.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hologram/buffer.h"
#include "hologram/memory.h"

namespace hologram::internal {

extern constinit std::atomic<void (*)(const MemoryEvent&)> g_memory_observer;

inline bool is_memory_watched() {
  return g_memory_observer.load(std::memory_order_relaxed) != nullptr;
}
// Calls the observer, where there is one.
void note_memory(const MemoryEvent& event);
// Pages that were reserved or given back.
void note_segment(MemoryEvent::Kind kind, const void* address, size_t bytes);
// A buffer that was allocated or is about to be recycled; nothing where it has no memory of its
// own.
void note_buffer(MemoryEvent::Kind kind, Buffer* buffer, uint64_t mark = 0);

// allocate_buffer() for the result of an op with a mark.
Buffer* allocate_for(Device& device, size_t nbytes, uint64_t mark);

// A piece of memory that headers were cut from; every header there is lies in one.
struct HeaderSlab {
  Buffer* headers = nullptr;
  size_t count = 0;
  HeaderSlab* next = nullptr;
};
// The latest; they are never taken back.
extern constinit std::atomic<HeaderSlab*> g_header_slabs;

// Counts of events that are too rare to be counted per thread.
void count_retry() noexcept;
void count_out_of_memory() noexcept;
void count_boundary_block(int64_t change) noexcept;
void count_boundary_reserved(int64_t change) noexcept;

}  // namespace hologram::internal
