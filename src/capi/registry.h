// SPDX-License-Identifier: MIT
// Handles: numbers that stand for objects, checked for kind and generation at every use.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "hologram/dtype.h"

namespace hologram {

class Device;

namespace capi {

enum class Kind : uint8_t { kFree = 0, kExecutor = 1, kBuffer = 2, kTensor = 3 };

// What a handle stands for. `object` is owned: a heap std::shared_ptr<Executor>, one reference to a
// Buffer, or a heap Tensor.
struct Entry {
  void* object = nullptr;
  Device* device = nullptr;
  // Of a buffer: where its elements begin, in elements, and how many there are.
  int64_t offset = 0;
  int64_t length = 0;
  Dtype dtype = Dtype::kFloat32;
  bool read_only = false;
  Kind kind = Kind::kFree;
};

// A handle is kind (4 bits), generation (28), index of a slot (32). A slot's state is the upper
// half of the handle that it stands for, with kind kFree when there is none, and below it a count
// of users, of which the handle itself is one. So one compare-and-swap finds that a handle is valid
// and keeps its object alive; the thread that drops the last use destroys it. Nothing ever waits.
struct alignas(64) Slot {
  std::atomic<uint64_t> state;
  std::atomic<Device*> device;  // entry.device, for readers that take no use
  Entry entry;                  // fixed while there are users
  std::atomic<uint32_t> next;   // in the list of free slots: index + 1
  uint32_t index;
};
static_assert(sizeof(Slot) == 64);

class Registry {
 public:
  // The process's own; it is never destroyed.
  static Registry& get();

  // Takes over the object. Error(kOutOfMemory), the object then stays the caller's.
  uint64_t add(const Entry& entry) { return publish(take_slot(), entry); }
  // The two halves of it, for objects that can only be made where nothing fails after: a slot is
  // published or given back.
  Slot* take_slot();
  uint64_t publish(Slot* slot, const Entry& entry) noexcept;
  void give_slot(Slot* slot) noexcept;
  // False for a handle that stands for nothing of this kind.
  bool remove(uint64_t handle, Kind kind) noexcept;
  void clear() noexcept;

  // A use of the handle's object, to be given to release(); null where remove() would give false.
  Slot* acquire(uint64_t handle, Kind kind) noexcept {
    Slot* slot = find(handle, kind);
    if (slot == nullptr) return nullptr;
    uint64_t state = slot->state.load(std::memory_order_relaxed);
    while ((state ^ handle) >> 32 == 0) {
      if (slot->state.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
        return slot;
      }
    }
    return nullptr;
  }
  void release(Slot* slot) noexcept {
    if (static_cast<uint32_t>(slot->state.fetch_sub(1, std::memory_order_acq_rel)) == 1) {
      destroy(slot);
    }
  }

  // The device of a valid handle, else null. Takes no use, so threads that share an executor do not
  // contend for its slot.
  Device* device_of(uint64_t handle, Kind kind) noexcept {
    Slot* slot = find(handle, kind);
    if (slot == nullptr) return nullptr;
    if ((slot->state.load(std::memory_order_acquire) ^ handle) >> 32 != 0) return nullptr;
    Device* device = slot->device.load(std::memory_order_acquire);
    // If the slot was given to another handle in between, the device may be that one's.
    return (slot->state.load(std::memory_order_relaxed) ^ handle) >> 32 == 0 ? device : nullptr;
  }

  // Whether the handle was given out and freed since: what an error says of it.
  bool was_freed(uint64_t handle) noexcept;
  bool is_live(uint64_t handle) noexcept { return device_of(handle, kind_of(handle)) != nullptr; }
  int64_t live() const noexcept { return live_.load(std::memory_order_relaxed); }

 private:
  static constexpr int kFirstShift = 10;  // block b holds 2^(kFirstShift + b) slots
  static constexpr int kBlocks = 22;
  static constexpr uint32_t kGenerationMask = (1U << 28) - 1;

  static Kind kind_of(uint64_t word) { return static_cast<Kind>(word >> 60); }
  static uint32_t generation_of(uint64_t word) {
    return static_cast<uint32_t>(word >> 32) & kGenerationMask;
  }
  Slot* at(uint32_t index) noexcept {
    const uint64_t place = uint64_t{index} + (uint64_t{1} << kFirstShift);
    const int block = 63 - __builtin_clzll(place) - kFirstShift;
    if (block >= kBlocks) return nullptr;
    Slot* first = blocks_[block].load(std::memory_order_acquire);
    if (first == nullptr) return nullptr;
    return first + (place - (uint64_t{1} << (block + kFirstShift)));
  }
  Slot* find(uint64_t handle, Kind kind) noexcept {
    return kind_of(handle) == kind ? at(static_cast<uint32_t>(handle)) : nullptr;
  }
  uint32_t take_index();
  void destroy(Slot* slot) noexcept;
  bool retire(Slot* slot, uint64_t state) noexcept;

  std::atomic<Slot*> blocks_[kBlocks];
  std::atomic<uint32_t> used_;  // slots ever taken
  // Free slots as a stack: a count of changes above index + 1 of the topmost (0: none).
  alignas(64) std::atomic<uint64_t> free_;
  alignas(64) std::atomic<int64_t> live_;
};

// A use for the duration of a scope.
class Use {
 public:
  Use() = default;
  explicit Use(Slot* slot) : slot_(slot) {}
  Use(Use&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  Use& operator=(Use&&) = delete;
  ~Use() {
    if (slot_ != nullptr) Registry::get().release(slot_);
  }
  explicit operator bool() const { return slot_ != nullptr; }
  const Entry& entry() const { return slot_->entry; }

 private:
  Slot* slot_ = nullptr;
};

}  // namespace capi
}  // namespace hologram
