// SPDX-License-Identifier: MIT
// See memory.h.
#include "src/gpu/memory.h"

#include <algorithm>
#include <new>

namespace hologram::gpu {
namespace {

void grow(MemoryStat& stat, size_t amount) {
  stat.current += static_cast<int64_t>(amount);
  stat.total += static_cast<int64_t>(amount);
  stat.peak = std::max(stat.peak, stat.current);
}
void shrink(MemoryStat& stat, size_t amount) {
  stat.current -= static_cast<int64_t>(amount);
  stat.freed += static_cast<int64_t>(amount);
}

template <class Stats, class F>
void for_stats(Stats& stats, F&& f) {
  for (auto* stat : {&stats.allocated_bytes, &stats.requested_bytes, &stats.reserved_bytes,
                     &stats.active_blocks}) {
    f(*stat);
  }
}

}  // namespace

// With the lock held.
void* DeviceMemory::make_block(size_t bytes) {
  if (bytes > driver_.largest_block() ||
      static_cast<size_t>(stats_.reserved_bytes.current) + bytes > total_) {
    return nullptr;
  }
  void* const address = driver_.allocate(bytes);
  if (address == nullptr) return nullptr;
  grow(stats_.reserved_bytes, bytes);
  ++stats_.os_allocations;
  return address;
}

// With the lock held.
void DeviceMemory::destroy(void* address, size_t bytes) noexcept {
  driver_.release(address, bytes);
  shrink(stats_.reserved_bytes, bytes);
  ++stats_.os_frees;
}

void* DeviceMemory::allocate(size_t nbytes) {
  const size_t bytes = allocation_size(nbytes);
  std::lock_guard lock(mutex_);
  void* address = nullptr;
  if (std::vector<void*>& cached = free_[bytes]; !cached.empty()) {
    address = cached.back();
    cached.pop_back();
  } else {
    address = make_block(bytes);
    if (address == nullptr && stats_.reserved_bytes.current > stats_.allocated_bytes.current) {
      trim_locked();
      address = make_block(bytes);
      if (address != nullptr) ++stats_.retries;
    }
  }
  if (address == nullptr) {
    ++stats_.out_of_memory;
    return nullptr;
  }
  grow(stats_.allocated_bytes, bytes);
  grow(stats_.requested_bytes, nbytes);
  grow(stats_.active_blocks, 1);
  return address;
}

void DeviceMemory::release(void* address, size_t nbytes) noexcept {
  const size_t bytes = allocation_size(nbytes);
  std::lock_guard lock(mutex_);
  shrink(stats_.allocated_bytes, bytes);
  shrink(stats_.requested_bytes, nbytes);
  shrink(stats_.active_blocks, 1);
  try {
    free_[bytes].push_back(address);
  } catch (const std::bad_alloc&) {
    destroy(address, bytes);
  }
}

void DeviceMemory::trim() noexcept {
  std::lock_guard lock(mutex_);
  trim_locked();
}

void DeviceMemory::trim_locked() noexcept {
  for (const auto& [bytes, cached] : free_) {
    for (void* const address : cached) destroy(address, bytes);
  }
  free_.clear();
}

MemoryStats DeviceMemory::stats() const {
  std::lock_guard lock(mutex_);
  MemoryStats stats = stats_;
  stats.cached_bytes = stats.reserved_bytes.current - stats.allocated_bytes.current;
  stats.memory_limit = static_cast<int64_t>(total_);
  stats.max_cached_bytes = stats.memory_limit;
  return stats;
}

void DeviceMemory::reset_peaks() {
  std::lock_guard lock(mutex_);
  for_stats(stats_, [](MemoryStat& stat) { stat.peak = stat.current; });
}

void DeviceMemory::reset_totals() {
  std::lock_guard lock(mutex_);
  for_stats(stats_, [](MemoryStat& stat) { stat.total = stat.freed = 0; });
  stats_.os_allocations = stats_.os_frees = stats_.retries = stats_.out_of_memory = 0;
}

}  // namespace hologram::gpu
