// SPDX-License-Identifier: MIT
// Slots of handles: taken from a lock-free stack or from blocks that double in size, never given
// back, so that a stale handle can always be looked at.
#include "src/capi/registry.h"

#include <sys/mman.h>

#include <memory>

#include "hologram/buffer.h"
#include "hologram/error.h"
#include "hologram/executor.h"
#include "hologram/tensor.h"

namespace hologram::capi {
namespace {

constinit Registry g_registry;

void drop(Kind kind, void* object) noexcept {
  switch (kind) {
    case Kind::kExecutor:
      delete static_cast<std::shared_ptr<Executor>*>(object);
      return;
    case Kind::kBuffer:
      static_cast<Buffer*>(object)->release();
      return;
    case Kind::kTensor:
      delete static_cast<Tensor*>(object);
      return;
    case Kind::kFree:
      return;
  }
}

}  // namespace

Registry& Registry::get() { return g_registry; }

uint32_t Registry::take_index() {
  uint64_t top = free_.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(top) != 0) {
    const uint32_t index = static_cast<uint32_t>(top) - 1;
    // Another thread may take the slot meanwhile: then the count above differs and we try again.
    const uint64_t next = at(index)->next.load(std::memory_order_relaxed);
    const uint64_t wish = ((top >> 32) + 1) << 32 | next;
    if (free_.compare_exchange_weak(top, wish, std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
      return index;
    }
  }
  uint32_t used = used_.load(std::memory_order_relaxed);
  while (true) {
    const uint64_t place = uint64_t{used} + (uint64_t{1} << kFirstShift);
    const int block = 63 - __builtin_clzll(place) - kFirstShift;
    if (block >= kBlocks || used == UINT32_MAX - 1) {
      fail(ErrorKind::kOutOfMemory, "out of memory: ", used, " handles are in use");
    }
    if (blocks_[block].load(std::memory_order_acquire) == nullptr) {
      const size_t bytes = sizeof(Slot) << (block + kFirstShift);
      // Zero pages are free slots of generation 0, and cost nothing before they are used.
      void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) {
        fail(ErrorKind::kOutOfMemory, "out of memory for ", bytes,
             " bytes of handles; free some handles or buffers");
      }
      Slot* none = nullptr;
      if (!blocks_[block].compare_exchange_strong(none, static_cast<Slot*>(memory),
                                                  std::memory_order_acq_rel)) {
        munmap(memory, bytes);
      }
    }
    if (used_.compare_exchange_weak(used, used + 1, std::memory_order_acq_rel)) return used;
  }
}

void Registry::give_slot(Slot* slot) noexcept {
  uint64_t top = free_.load(std::memory_order_relaxed);
  uint64_t wish = 0;
  do {
    slot->next.store(static_cast<uint32_t>(top), std::memory_order_relaxed);
    wish = ((top >> 32) + 1) << 32 | (uint64_t{slot->index} + 1);
  } while (!free_.compare_exchange_weak(top, wish, std::memory_order_acq_rel,
                                        std::memory_order_relaxed));
}

Slot* Registry::take_slot() {
  const uint32_t index = take_index();
  Slot* slot = at(index);
  slot->index = index;
  return slot;
}

uint64_t Registry::publish(Slot* slot, const Entry& entry) noexcept {
  slot->entry = entry;
  slot->device.store(entry.device, std::memory_order_release);
  const uint64_t free_state = slot->state.load(std::memory_order_relaxed);
  const uint64_t tag = uint64_t{static_cast<uint8_t>(entry.kind)} << 28 | generation_of(free_state);
  // From the store on, a thread that clears the registry may free the slot, and others take it.
  const uint64_t handle = tag << 32 | slot->index;
  live_.fetch_add(1, std::memory_order_relaxed);
  slot->state.store(tag << 32 | 1, std::memory_order_release);
  return handle;
}

// The last use is gone.
void Registry::destroy(Slot* slot) noexcept {
  drop(slot->entry.kind, std::exchange(slot->entry.object, nullptr));
  // Generations are not used twice, so a slot that has had all of them is not used again.
  if (generation_of(slot->state.load(std::memory_order_relaxed)) != kGenerationMask) {
    give_slot(slot);
  }
}

// Takes the handle out of a slot that is in `state`, whose use it was; false if the state changed.
bool Registry::retire(Slot* slot, uint64_t state) noexcept {
  const uint64_t generation = generation_of(state) + uint64_t{1};
  while (!slot->state.compare_exchange_weak(state, generation << 32 | static_cast<uint32_t>(state),
                                            std::memory_order_acq_rel, std::memory_order_relaxed)) {
    if (generation_of(state) + uint64_t{1} != generation || kind_of(state) == Kind::kFree) {
      return false;
    }
  }
  live_.fetch_sub(1, std::memory_order_relaxed);
  release(slot);
  return true;
}

bool Registry::remove(uint64_t handle, Kind kind) noexcept {
  Slot* slot = find(handle, kind);
  if (slot == nullptr) return false;
  const uint64_t state = slot->state.load(std::memory_order_acquire);
  return (state ^ handle) >> 32 == 0 && retire(slot, state);
}

void Registry::clear() noexcept {
  const uint32_t used = used_.load(std::memory_order_acquire);
  for (uint32_t index = 0; index < used; ++index) {
    Slot* slot = at(index);
    const uint64_t state = slot->state.load(std::memory_order_acquire);
    if (kind_of(state) != Kind::kFree) retire(slot, state);
  }
}

bool Registry::was_freed(uint64_t handle) noexcept {
  const auto index = static_cast<uint32_t>(handle);
  if (index >= used_.load(std::memory_order_acquire)) return false;
  return generation_of(handle) < generation_of(at(index)->state.load(std::memory_order_acquire));
}

}  // namespace hologram::capi
