// SPDX-License-Identifier: MIT
// The linear pool (a caching allocator for host memory) and the boundary pools (per-thread
// scratch).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hologram/api.h"
#include "hologram/buffer.h"

namespace hologram {

// A new buffer of nbytes on the device, its contents undefined, with one reference. Data are
// 64-byte aligned, 256 bytes from 4 KiB on, 2 MiB from 2 MiB on; below 1 MiB buffers of one size
// begin at different places of their pages. Zero bytes give a valid buffer whose data() is null.
// Throws Error(kOutOfMemory) that says what was asked, used, cached and allowed.
HOLOGRAM_API Buffer* allocate_buffer(Device& device, size_t nbytes);

// A buffer over memory of others. When the last reference goes, deleter(context) is called on
// whatever thread that happens; a null deleter means the memory outlives the process.
HOLOGRAM_API Buffer* wrap_buffer(Device& device, void* data, size_t nbytes, void (*deleter)(void*),
                                 void* context);

// --- Statistics and limits -------------------------------------------------------------------

struct MemoryStat {
  int64_t current = 0;
  int64_t peak = 0;  // since the start or the last reset_peak_memory_stats
  // Added and taken away since the start or the last reset_accumulated_memory_stats.
  int64_t total = 0;
  int64_t freed = 0;
};

// Bytes are those of whole blocks, as torch.cuda counts them. Peaks are exact while one thread
// allocates; with several they may be off by 1 MiB a thread.
struct MemoryStats {
  MemoryStat allocated_bytes;  // in live buffers of the linear pool
  MemoryStat requested_bytes;  // what the callers of those asked for (peak: as seen at reads)
  MemoryStat reserved_bytes;   // taken from the operating system, live or cached
  MemoryStat active_blocks;    // live buffers of the linear pool (peak: as seen at reads)
  MemoryStat boundary_blocks;  // live buffers in boundary pools
  int64_t boundary_reserved_bytes = 0;
  int64_t cached_bytes = 0;        // reserved - allocated
  int64_t cached_large_bytes = 0;  // the part of it in blocks of 1 MiB and more
  int64_t os_allocations = 0;
  int64_t os_frees = 0;
  int64_t retries = 0;        // allocations that succeeded only after emptying the caches
  int64_t out_of_memory = 0;  // allocations refused
  int64_t memory_limit = 0;   // the effective limit on reserved bytes
  int64_t max_cached_bytes = 0;
};

HOLOGRAM_API MemoryStats memory_stats();
HOLOGRAM_API void reset_peak_memory_stats();
// Makes every `total` and event count start from zero again.
HOLOGRAM_API void reset_accumulated_memory_stats();

// Gives cached memory back to the operating system: everything in the shared lists and in the
// calling thread's cache; other threads give theirs back at their next slow allocation.
HOLOGRAM_API void empty_cache();

// Refuses to reserve more than `bytes` (0: what the machine has). Also HOLOGRAM_MEMORY_LIMIT.
HOLOGRAM_API void set_memory_limit(size_t bytes);
HOLOGRAM_API size_t memory_limit();
// Large blocks cached beyond `bytes` are unmapped, oldest first. Also HOLOGRAM_MAX_CACHED_BYTES;
// by default a quarter of the memory limit.
HOLOGRAM_API void set_max_cached_bytes(size_t bytes);
HOLOGRAM_API size_t max_cached_bytes();

// Memory the operating system could still give, and all there is (container limits included).
struct SystemMemory {
  size_t available = 0;
  size_t total = 0;
};
HOLOGRAM_API SystemMemory system_memory();

// The bytes a request of this size takes from the linear pool; a cached block of 1 MiB and more may
// be one step larger.
HOLOGRAM_API size_t allocation_size(size_t nbytes);

// --- What memory is used for -----------------------------------------------------------------

// Something that happened to memory.
struct MemoryEvent {
  enum Kind : uint8_t {
    kAllocate,  // a buffer has the block
    kFree,      // it gives the block back
    kReserve,   // the pool took a segment from the operating system
    kUnreserve,
    kOutOfMemory,  // an allocation was refused
  };
  Kind kind = kAllocate;
  uintptr_t address = 0;  // 0 for kOutOfMemory
  size_t bytes = 0;       // of the whole block or segment; for kOutOfMemory what was asked for
  size_t requested = 0;
  int device = 0;
  // Of the op whose result the block is for, where ops are marked (set_marking() in trace.h).
  uint64_t mark = 0;
};
// Called where it happens, on any thread, maybe with locks of the pool held: it must not throw,
// allocate buffers, or wait for a thread that may do so. Null for none.
HOLOGRAM_API void set_memory_observer(void (*observer)(const MemoryEvent&));

struct MemoryBlock {
  uintptr_t address = 0;
  size_t bytes = 0;
  size_t requested = 0;  // 0 where it is free
  bool active = false;   // a buffer has it
};
// Memory that the pool has from the operating system (or a device) in one piece.
struct MemorySegment {
  uintptr_t address = 0;
  size_t bytes = 0;
  bool large = false;  // one block, mapped by itself
  std::vector<MemoryBlock> blocks;
};
// By address; host devices share the pool, and its segments. Blocks that other threads allocate or
// free meanwhile are shown as they were or as they are.
HOLOGRAM_API std::vector<MemorySegment> list_memory(const Device& device);

// --- Boundary pool ---------------------------------------------------------------------------

// 96 classes of 12,288 bytes in one contiguous piece of memory, sized to stay in a core's L2. Each
// begins at another place of its page than its neighbours.
// acquire and release may be called from any thread; the memory is meant for one.
class HOLOGRAM_API BoundaryPool {
 public:
  static constexpr int kClasses = 96;
  static constexpr size_t kClassBytes = 12288;
  static constexpr size_t kClassFloats = kClassBytes / sizeof(float);
  static constexpr size_t kClassStride = kClassBytes + 1280;  // from a class to the next

  BoundaryPool();
  ~BoundaryPool();
  BoundaryPool(const BoundaryPool&) = delete;
  BoundaryPool& operator=(const BoundaryPool&) = delete;

  // Start of class c, 256-byte aligned. The memory is mapped at the first call of slot or acquire.
  float* slot(int c) { return reinterpret_cast<float*>(base() + c * kClassStride); }

  // Claims the lowest free class; -1 when all are taken.
  int acquire();
  void release(int c) noexcept;
  int free_classes() const;

 private:
  char* base() {
    char* p = base_.load(std::memory_order_acquire);
    return p != nullptr ? p : map();
  }
  char* map();

  std::atomic<char*> base_{nullptr};
  std::atomic<uint64_t> taken_[2];
};

// The calling thread's own scratch pool; it lives until the thread ends.
HOLOGRAM_API BoundaryPool& this_thread_pool();

// A class of this thread's pool for the duration of a scope.
class BoundarySlot {
 public:
  BoundarySlot() : pool_(this_thread_pool()), class_(pool_.acquire()) {}
  ~BoundarySlot() {
    if (class_ >= 0) pool_.release(class_);
  }
  BoundarySlot(const BoundarySlot&) = delete;
  BoundarySlot& operator=(const BoundarySlot&) = delete;
  // Null when all 96 classes are taken.
  float* data() const { return class_ >= 0 ? pool_.slot(class_) : nullptr; }

 private:
  BoundaryPool& pool_;
  int class_;
};

// --- For tests -------------------------------------------------------------------------------

namespace testing {
// The operating system refuses `count` requests from the nth on (1 is the next one); nth 0 stops.
HOLOGRAM_API void fail_os_allocations(int64_t nth, int64_t count = INT64_MAX);
}  // namespace testing

}  // namespace hologram
