// SPDX-License-Identifier: MIT
// Bytes per op for PyTorch's profiler.
#include "device/memory_profile.h"

#include <c10/core/Allocator.h>

#include <exception>
#include <mutex>
#include <unordered_map>

#include "device/tensor.h"
#include "hologram/device.h"

namespace hologram_torch {

// Kineto tells when a profile begins (kineto.cc). Where it does not, each storage asks the thread.
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)
constinit std::atomic<int> g_profiles{0};
#else
constinit std::atomic<int> g_profiles{1};
#endif

namespace {

// Buffers whose storages show another address than at first. A storage that shows another one
// since before the profile is taken for one that shows the first.
struct Shown {
  std::mutex mutex;
  std::unordered_map<const hologram::Buffer*, void*> now;

  static Shown& get() {
    static Shown* instance = new Shown;  // leaked: memory is given back until the very end
    return *instance;
  }
};

void* first_shown(const hologram::Buffer& buffer) {
  return buffer.pool() == hologram::PoolKind::kDeferred ? nowhere_of(&buffer) : buffer.data();
}

void report(const hologram::Buffer& buffer, void* address, int64_t nbytes) {
  const hologram::MemoryStats s = buffer.device().memory_stats();
  c10::reportMemoryUsageToProfiler(address, nbytes, static_cast<size_t>(s.allocated_bytes.current),
                                   static_cast<size_t>(s.reserved_bytes.current),
                                   device(static_cast<c10::DeviceIndex>(buffer.device().index())));
}

int64_t bytes_of(const hologram::Buffer& buffer) { return static_cast<int64_t>(buffer.nbytes()); }

}  // namespace

void begin_memory_profile() {
  if (g_profiles.fetch_add(1) > 0) return;
  Shown& shown = Shown::get();
  const std::lock_guard lock(shown.mutex);
  shown.now.clear();
}

void end_memory_profile() { g_profiles.fetch_sub(1); }

// A profile lacks an entry rather than a program its memory: what cannot be noted is left out.

void report_taken(const hologram::Buffer& buffer) noexcept {
  if (!c10::memoryProfilingEnabled()) return;
  try {
    Shown& shown = Shown::get();
    {
      // Left by a buffer that was at this place.
      const std::lock_guard lock(shown.mutex);
      shown.now.erase(&buffer);
    }
    report(buffer, first_shown(buffer), bytes_of(buffer));
  } catch (const std::exception&) {
  }
}

void report_given_back(const hologram::Buffer& buffer) noexcept {
  if (!c10::memoryProfilingEnabled()) return;
  try {
    void* address = first_shown(buffer);
    Shown& shown = Shown::get();
    {
      const std::lock_guard lock(shown.mutex);
      if (const auto node = shown.now.extract(&buffer)) address = node.mapped();
    }
    report(buffer, address, -bytes_of(buffer));
  } catch (const std::exception&) {
  }
}

void report_moved(const hologram::Buffer& buffer, void* before, void* now) noexcept {
  if (before == now || !c10::memoryProfilingEnabled()) return;
  try {
    Shown& shown = Shown::get();
    {
      const std::lock_guard lock(shown.mutex);
      shown.now[&buffer] = now;
    }
    report(buffer, before, -bytes_of(buffer));
    report(buffer, now, bytes_of(buffer));
  } catch (const std::exception&) {
  }
}

void report_out_of_memory(size_t nbytes) noexcept {
  if (!c10::memoryProfilingEnabled()) return;
  try {
    const c10::DeviceIndex index = index_of({});
    const hologram::MemoryStats s = memory_device(index).memory_stats();
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(nbytes),
                                     static_cast<size_t>(s.allocated_bytes.current),
                                     static_cast<size_t>(s.reserved_bytes.current), device(index));
  } catch (const std::exception&) {
  }
}

}  // namespace hologram_torch
