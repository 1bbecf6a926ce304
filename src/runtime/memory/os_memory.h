// SPDX-License-Identifier: MIT
// Memory from the operating system, counted against the limit; where tests make it fail, and fill
// what is fresh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hologram/memory.h"
#include "src/runtime/memory/size_class.h"

namespace hologram::internal {

inline constexpr size_t kHugePage = size_t{2} << 20;

// The system's pages: 4, 16 or 64 KiB. It discards whole ones, and rounds the length up to them.
struct SystemPages {
  size_t (*bytes)();
  int (*discard)(void* data, size_t bytes);
};
size_t system_page();
// For tests, before anything is allocated. Null gives the system's own back.
void set_system_pages(const SystemPages* pages);

// Zeroed memory, aligned to a huge page and advised to use them when it is at least that large,
// else to a page. Null when the system refuses. `bytes` is a multiple of kPage.
void* os_map(size_t bytes);
void os_unmap(void* data, size_t bytes) noexcept;
// Gives back the pages that lie whole in this memory; the addresses stay ours and read as zero when
// touched again.
void os_discard(void* data, size_t bytes) noexcept;

// Counts `bytes` as reserved; false, and nothing counted, when that would pass the limit.
bool reserve_bytes(size_t bytes);
void unreserve_bytes(size_t bytes) noexcept;

struct OsCounters {
  MemoryStat reserved;
  int64_t allocations = 0;
  int64_t frees = 0;
};
OsCounters os_counters();
void reset_os_peak();
void reset_os_totals();

// HOLOGRAM_POISON=1: fresh memory holds a pattern, so that a result which depends on what memory
// held before is a wrong one. Read once, as the library is loaded.
bool is_poisoning();
// Fills memory with 0x7ff5 in every 16 bits: a NaN in each floating type, a signalling one in
// float64; odd as an integer of 16 bits and more; no bool.
void poison(void* data, size_t nbytes) noexcept;

}  // namespace hologram::internal
