// SPDX-License-Identifier: MIT
// Hologram's linear pool as PyTorch's device allocator, and host memory as its own pinned memory.
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <pthread.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "device/tensor.h"
#include "hologram/error.h"

namespace hologram_torch {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::DeviceStats;

Stat to_stat(const hologram::MemoryStat& s) {
  Stat stat;
  stat.current = s.current;
  stat.peak = s.peak;
  stat.allocated = s.total;
  stat.freed = s.freed;
  return stat;
}

void fill_stats(StatArray& array, const hologram::MemoryStat& s) {
  array[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)] = to_stat(s);
}

class Allocator final : public c10::DeviceAllocator {
 public:
  // As PyTorch has it of allocators of devices: on the current one.
  c10::DataPtr allocate(size_t nbytes) override { return allocate_bytes(nbytes, index_of({})); }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    std::memcpy(dest, src, count);
  }
  bool initialized() override { return true; }
  void emptyCache([[maybe_unused]] c10::MempoolId_t pool) override {
    flush_recorded();
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) memory_device(i).empty_cache();
  }
  // What is recorded keeps its buffers, so no stream needs to.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  // What is recorded gets its memory first, so that the numbers are those of the tensors there are.
  DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    flush_recorded();
    const hologram::MemoryStats s = memory_device(index).memory_stats();
    DeviceStats stats;
    fill_stats(stats.allocated_bytes, s.allocated_bytes);
    fill_stats(stats.active_bytes, s.allocated_bytes);
    fill_stats(stats.requested_bytes, s.requested_bytes);
    fill_stats(stats.reserved_bytes, s.reserved_bytes);
    fill_stats(stats.allocation, s.active_blocks);
    fill_stats(stats.active, s.active_blocks);
    stats.num_alloc_retries = s.retries;
    stats.num_ooms = s.out_of_memory;
    stats.num_device_alloc = s.os_allocations;
    stats.num_device_free = s.os_frees;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    memory_device(index).reset_accumulated_memory_stats();
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    memory_device(index).reset_peak_memory_stats();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const hologram::SystemMemory m = memory_device(index).memory_info();
    return {m.available, m.total};
  }
};

// "Pinned" memory: the device computes in host memory, so a copy from any page is as good as
// another, and nothing is locked. What was asked for as pinned is remembered and answers so, as
// libraries expect of an accelerator.
class HostAllocator final : public at::HostAllocator {
 public:
  HostAllocator() {
    // A child of a fork, such as a DataLoader's worker, finds the lock free.
    pthread_atfork([] { lock_for_fork(true); }, [] { lock_for_fork(false); },
                   [] { lock_for_fork(false); });
  }
  c10::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) return c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU));
    auto block = std::make_unique<Block>(Block{c10::GetCPUAllocator()->allocate(nbytes)});
    char* const bytes = static_cast<char*>(block->memory.get());
    {
      const std::lock_guard lock(mutex_);
      blocks_.emplace(bytes, nbytes);
    }
    return c10::DataPtr(bytes, block.release(), &release, c10::Device(c10::DeviceType::CPU));
  }
  // Whether the byte at `pointer` belongs to a block that is alive.
  bool holds(const void* pointer) const {
    const char* const byte = static_cast<const char*>(pointer);
    const std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(byte);
    if (after == blocks_.begin()) return false;
    const auto& [begin, nbytes] = *std::prev(after);
    return byte < begin + nbytes;
  }

  // The deleter needs the context that allocate() made.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    std::memcpy(dest, src, count);
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  struct Block {
    c10::DataPtr memory;
  };
  static void release(void* context);
  static void lock_for_fork(bool locked);

  // Not a std::shared_mutex: glibc's knows its writer by thread, so that a forked child, whose
  // thread is another one, could not unlock it.
  mutable std::mutex mutex_;
  std::map<const char*, size_t> blocks_;  // by address
};

// Leaked on purpose: tensors may be freed after static destructors have run.
Allocator* const g_allocator = new Allocator();
HostAllocator* const g_host_allocator = new HostAllocator();

c10::AllocatorRegisterer<kDeviceType> g_register_allocator(g_allocator);

// Storages that PyTorch makes without us (torch.UntypedStorage, torch.load) are watched as ours
// are.
c10::intrusive_ptr<c10::StorageImpl> create_storage(c10::StorageImpl::use_byte_size_t tag,
                                                    c10::SymInt nbytes, c10::DataPtr data,
                                                    c10::Allocator* allocator, bool resizable) {
  auto storage = data ? c10::make_intrusive<c10::StorageImpl>(tag, std::move(nbytes),
                                                              std::move(data), allocator, resizable)
                      : c10::make_intrusive<c10::StorageImpl>(tag, nbytes, allocator, resizable);
  watch(*storage);
  return storage;
}

struct RegisterStorages {
  RegisterStorages() { c10::SetStorageImplCreate(kDeviceType, &create_storage); }
} g_register_storages;

at::HostAllocatorRegistry<kDeviceType> g_register_host_allocator(g_host_allocator);

void HostAllocator::lock_for_fork(bool locked) {
  std::mutex& mutex = g_host_allocator->mutex_;
  locked ? mutex.lock() : mutex.unlock();
}

void HostAllocator::release(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  const std::lock_guard lock(g_host_allocator->mutex_);
  g_host_allocator->blocks_.erase(static_cast<const char*>(block->memory.get()));
}

}  // namespace

c10::Allocator* device_allocator() { return g_allocator; }
at::Allocator* host_allocator() { return g_host_allocator; }
bool is_pinned_address(const void* pointer) { return g_host_allocator->holds(pointer); }

hologram::Device& memory_device(c10::DeviceIndex index) {
  static hologram::Device& cpu = hologram::device(0);
  if (C10_LIKELY(index == 0)) return cpu;
  check_index(index);
  return hologram::device(index);
}

c10::DeviceIndex device_count() { return static_cast<c10::DeviceIndex>(hologram::device_count()); }

void check_index(int64_t index) {
  const c10::DeviceIndex count = device_count();
  TORCH_CHECK(index >= 0 && index < count, "hologram: no device hologram:", index, "; there ",
              count == 1 ? "is 1 (hologram:0)"
                         : "are " + std::to_string(count) +
                               " (hologram:0 to hologram:" + std::to_string(count - 1) + ")");
}

c10::DeviceIndex index_of(const std::optional<c10::Device>& wish) {
  if (!wish.has_value() || !wish->has_index()) {
    return static_cast<c10::DeviceIndex>(hologram::current_device());
  }
  if (wish->index() != 0) check_index(wish->index());
  return wish->index();
}

bool is_host_device(c10::DeviceIndex index) {
  return index < 0 || memory_device(index).is_host_memory();
}

void flush_recorded() {
  try {
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) hologram::flush(memory_device(i));
  } catch (const std::exception& error) {
    rethrow_as_torch(error, 0);
  }
}

void release_buffer(void* buffer) {
  auto* const given = static_cast<hologram::Buffer*>(buffer);
  if (C10_UNLIKELY(may_profile_memory())) report_given_back(*given);
  given->release();
}

void rethrow_as_torch(const std::exception& error, size_t nbytes) {
  if (const auto* ours = dynamic_cast<const hologram::Error*>(&error)) {
    if (ours->kind() == hologram::ErrorKind::kOutOfMemory && may_profile_memory()) {
      report_out_of_memory(nbytes);
    }
    TORCH_CHECK_WITH(OutOfMemoryError, ours->kind() != hologram::ErrorKind::kOutOfMemory,
                     ours->what());
    TORCH_CHECK_INDEX(ours->kind() != hologram::ErrorKind::kIndex, ours->what());
    TORCH_CHECK(false, ours->what());
  }
  TORCH_CHECK_WITH(OutOfMemoryError, dynamic_cast<const std::bad_alloc*>(&error) == nullptr,
                   "hologram: out of memory, tried to allocate ", nbytes, " bytes");
  throw;
}

}  // namespace hologram_torch
