// SPDX-License-Identifier: MIT
// The memory of an OpenCL device: a caching allocator whose blocks have addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "hologram/memory.h"
#include "src/opencl/cl_api.h"

namespace hologram::opencl {

// A block is a cl_mem and a range of addresses of the same size which nothing is mapped at: so
// offsets are added to its address as to any pointer, find() gives the memory back, and a host that
// reads or writes there faults instead of seeing what is not the device's. Freed blocks are kept by
// size; the queue runs in order, so the next owner's work comes after the last one's. Thread-safe.
class DeviceMemory {
 public:
  DeviceMemory(Context context, size_t total, size_t largest)
      : context_(context), total_(total), largest_(largest) {}

  // Null where neither the device nor the cache has so much.
  void* allocate(size_t nbytes);
  void release(void* address, size_t nbytes) noexcept;
  // Gives back what is cached.
  void trim() noexcept;

  // Where an address lies. Error(kInternal) for one that is not in a live block.
  struct Place {
    Memory memory = nullptr;
    size_t offset = 0;
  };
  Place find(const void* address) const;

  MemoryStats stats() const;
  void reset_peaks();
  void reset_totals();
  size_t total() const { return total_; }

 private:
  struct Block {
    Memory memory;
    size_t bytes;
  };
  void* make_block(size_t bytes);
  void destroy(uintptr_t address) noexcept;
  void trim_locked() noexcept;

  const Context context_;
  const size_t total_;
  const size_t largest_;
  mutable std::mutex mutex_;
  std::map<uintptr_t, Block> blocks_;              // by address
  std::map<size_t, std::vector<uintptr_t>> free_;  // by size
  MemoryStats stats_;
};

}  // namespace hologram::opencl
