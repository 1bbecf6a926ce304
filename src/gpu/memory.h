// SPDX-License-Identifier: MIT
// The memory of a device: a caching allocator of its driver's blocks.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "hologram/memory.h"
#include "src/gpu/driver.h"

namespace hologram::gpu {

// Freed blocks are kept by size. The queue runs in order, so the next owner's work comes after the
// last one's. Thread-safe.
class DeviceMemory {
 public:
  DeviceMemory(Driver& driver, size_t total) : driver_(driver), total_(total) {}

  // Null where neither the device nor the cache has so much.
  void* allocate(size_t nbytes);
  void release(void* address, size_t nbytes) noexcept;
  // Gives back what is cached.
  void trim() noexcept;

  MemoryStats stats() const;
  void reset_peaks();
  void reset_totals();
  size_t total() const { return total_; }

 private:
  void* make_block(size_t bytes);
  void destroy(void* address, size_t bytes) noexcept;
  void trim_locked() noexcept;

  Driver& driver_;
  const size_t total_;
  mutable std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;  // by size
  MemoryStats stats_;
};

}  // namespace hologram::gpu
