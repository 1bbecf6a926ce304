// SPDX-License-Identifier: MIT
// See device_memory.h.
#include "src/opencl/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace hologram::opencl {
namespace {

constexpr size_t kPageBytes = 4096;
size_t mapped_bytes(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

void grow(MemoryStat& stat, size_t amount) {
  stat.current += static_cast<int64_t>(amount);
  stat.total += static_cast<int64_t>(amount);
  stat.peak = std::max(stat.peak, stat.current);
}
void shrink(MemoryStat& stat, size_t amount) { stat.current -= static_cast<int64_t>(amount); }

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
  if (bytes > largest_ || static_cast<size_t>(stats_.reserved_bytes.current) + bytes > total_) {
    return nullptr;
  }
  Int code = kSuccess;
  const Memory memory = api()->CreateBuffer(context_, kMemReadWrite, bytes, nullptr, &code);
  if (code != kSuccess) return nullptr;
  void* address = ::mmap(nullptr, mapped_bytes(bytes), PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    api()->ReleaseMemObject(memory);
    return nullptr;
  }
  blocks_.emplace(reinterpret_cast<uintptr_t>(address), Block{memory, bytes});
  grow(stats_.reserved_bytes, bytes);
  ++stats_.os_allocations;
  return address;
}

// With the lock held.
void DeviceMemory::destroy(uintptr_t address) noexcept {
  const auto at = blocks_.find(address);
  // The driver keeps the memory until the commands that use it have run.
  api()->ReleaseMemObject(at->second.memory);
  ::munmap(reinterpret_cast<void*>(address), mapped_bytes(at->second.bytes));
  shrink(stats_.reserved_bytes, at->second.bytes);
  ++stats_.os_frees;
  blocks_.erase(at);
}

void* DeviceMemory::allocate(size_t nbytes) {
  const size_t bytes = allocation_size(nbytes);
  std::lock_guard lock(mutex_);
  void* address = nullptr;
  if (std::vector<uintptr_t>& cached = free_[bytes]; !cached.empty()) {
    address = reinterpret_cast<void*>(cached.back());
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
  std::lock_guard lock(mutex_);
  const auto at = blocks_.find(reinterpret_cast<uintptr_t>(address));
  const size_t bytes = at->second.bytes;
  shrink(stats_.allocated_bytes, bytes);
  shrink(stats_.requested_bytes, nbytes);
  shrink(stats_.active_blocks, 1);
  try {
    free_[bytes].push_back(at->first);
  } catch (const std::bad_alloc&) {
    destroy(at->first);
  }
}

void DeviceMemory::trim() noexcept {
  std::lock_guard lock(mutex_);
  trim_locked();
}

void DeviceMemory::trim_locked() noexcept {
  for (const auto& [bytes, cached] : free_) {
    for (const uintptr_t address : cached) destroy(address);
  }
  free_.clear();
}

DeviceMemory::Place DeviceMemory::find(const void* address) const {
  const auto value = reinterpret_cast<uintptr_t>(address);
  std::lock_guard lock(mutex_);
  auto after = blocks_.upper_bound(value);
  if (after != blocks_.begin()) {
    const auto& [begin, block] = *std::prev(after);
    if (value - begin < block.bytes) return {block.memory, value - begin};
  }
  fail(ErrorKind::kInternal, "opencl: address ", address, " is not in memory of this device");
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
  for_stats(stats_, [](MemoryStat& stat) { stat.total = 0; });
  stats_.os_allocations = stats_.os_frees = stats_.retries = stats_.out_of_memory = 0;
}

}  // namespace hologram::opencl
