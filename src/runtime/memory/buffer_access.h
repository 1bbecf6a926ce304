// SPDX-License-Identifier: MIT
// The fields of a Buffer as the pools see them, and headers without memory.
#pragma once

#include "hologram/buffer.h"

namespace hologram::internal {

// Only pools include this: everyone else treats a buffer as fixed while it is referenced.
struct BufferAccess {
  static Buffer* construct(void* place) { return new (place) Buffer(); }
  static std::atomic<uint32_t>& refs(Buffer* b) { return b->refs_; }
  static uint16_t& size_class(Buffer* b) { return b->size_class_; }
  static PoolKind& pool(Buffer* b) { return b->pool_; }
  static Dtype& dtype(Buffer* b) { return b->dtype_; }
  static void*& data(Buffer* b) { return b->data_; }
  static size_t& nbytes(Buffer* b) { return b->nbytes_; }
  static size_t& capacity(Buffer* b) { return b->capacity_; }
  static Device*& device(Buffer* b) { return b->device_; }
  static Buffer*& next(Buffer* b) { return b->next_; }
  static void*& owner(Buffer* b) { return b->owner_; }
  static Buffer*& prev(Buffer* b) { return b->prev_; }
  static Buffer*& older(Buffer* b) { return b->older_; }
  static Buffer*& newer(Buffer* b) { return b->newer_; }
  static void (*&deleter(Buffer* b))(void*) { return b->deleter_; }
  static std::atomic<uint64_t>& recorded(Buffer* b) { return b->recorded_; }
  static uint32_t& exports(Buffer* b) { return b->exports_; }
  // Others may look at the same moment: they see no memory, or all of it.
  static void publish_data(Buffer* b, void* data) {
    std::atomic_ref<void*>(b->data_).store(data, std::memory_order_release);
  }
};

// A header with one reference and no memory, for pools that bring their own; give_header takes it
// back. Throws Error(kOutOfMemory).
Buffer* take_header(Device& device, size_t nbytes);
void give_header(Buffer* buffer) noexcept;

// Gives a deferred buffer the memory of `donor`, a buffer of at least its size that no one else
// holds; the donor is released with it.
void adopt_memory(Buffer* buffer, Buffer* donor) noexcept;

}  // namespace hologram::internal
