// SPDX-License-Identifier: MIT
// Reference-counted memory: the block header every tensor, view and handle points at.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "hologram/api.h"
#include "hologram/dtype.h"

namespace hologram {

class Buffer;
class Device;

namespace internal {
struct BufferAccess;
// Takes a buffer whose last reference is gone back to its pool. Any thread, any time.
HOLOGRAM_API void recycle_buffer(Buffer* buffer) noexcept;
}  // namespace internal

// Which pool the bytes live in.
enum class PoolKind : uint8_t {
  kLinear = 0,    // the caching allocator
  kBoundary = 1,  // one of the 96 classes of an executor's boundary pool
  kForeign = 2,   // memory of others, given back through their deleter
  kDevice = 3,    // taken from a device that has no caching pool of its own
  kDeferred = 4,  // linear memory attached when first needed, see recorder.h
};

// A block of device memory with a reference count. Made by allocate_buffer and its siblings in
// memory.h with one reference; held through BufferRef, or by hand with retain and release.
// Everything but the contents and the version is fixed while references exist, so it may be read
// from any thread; a deferred buffer's data() and capacity() are null and 0 until it has memory.
// release() never blocks on the GIL, never runs user code (a foreign buffer's own deleter excepted)
// and is safe from any thread, during process exit and in forked children.
class alignas(64) Buffer {
 public:
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // Null exactly when nbytes() is 0 or the buffer is deferred and has no memory yet (foreign
  // buffers show what they were given).
  void* data() const {
    return std::atomic_ref<void*>(const_cast<void*&>(data_)).load(std::memory_order_acquire);
  }
  template <class T>
  T* data_as() const {
    return static_cast<T*>(data());
  }
  // Bytes asked for, and bytes that may be used without touching a neighbour.
  size_t nbytes() const { return nbytes_; }
  size_t capacity() const { return capacity_; }

  // A label for front ends that think in elements; the bytes do not depend on it.
  Dtype dtype() const { return dtype_; }
  void set_dtype(Dtype dtype) { dtype_ = dtype; }
  size_t length() const { return nbytes_ / itemsize(dtype_); }

  Device& device() const { return *device_; }
  PoolKind pool() const { return pool_; }
  // 0..95 for a buffer in a boundary pool, else -1.
  int class_index() const { return pool_ == PoolKind::kBoundary ? size_class_ : -1; }

  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    // A sole owner needs no read-modify-write: no other thread can change the count.
    if (refs_.load(std::memory_order_acquire) == 1 ||
        refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      internal::recycle_buffer(this);
    }
  }
  uint32_t use_count() const { return refs_.load(std::memory_order_acquire); }

  // The last circuit that recorded work on this buffer, 0 if none; see is_pending().
  uint64_t recorded_epoch() const {
    return recorded_.load(std::memory_order_acquire) >> kRecordedEpochShift;
  }
  static constexpr int kRecordedEpochShift = 20;
  // True if that circuit, or an earlier one that was not observed by then, writes it.
  bool is_written_by_recorded() const {
    return (recorded_.load(std::memory_order_relaxed) & kWrittenByRecorded) != 0;
  }
  static constexpr uint64_t kWrittenByRecorded = 4;
  // True for a buffer that never had memory and on which nothing was recorded.
  bool is_untouched() const {
    return recorded_.load(std::memory_order_relaxed) == 0 && data() == nullptr;
  }

 private:
  friend struct internal::BufferAccess;
  Buffer() = default;

  // First cache line: all that allocation and release touch.
  std::atomic<uint32_t> refs_{0};
  uint16_t size_class_ = 0;
  PoolKind pool_ = PoolKind::kLinear;
  Dtype dtype_ = Dtype::kUInt8;
  void* data_ = nullptr;
  size_t nbytes_ = 0;
  size_t capacity_ = 0;
  Device* device_ = nullptr;
  Buffer* next_ = nullptr;  // free lists
  void* owner_ = nullptr;   // boundary pool, foreign context, or who lent a deferred buffer memory
  // The recorder's: epoch << kRecordedEpochShift | slot in that circuit << 4 | flags. Written under
  // the lock of the device's recorder.
  std::atomic<uint64_t> recorded_{0};

  // Second cache line: large blocks' bookkeeping.
  Buffer* prev_ = nullptr;
  Buffer* older_ = nullptr;
  Buffer* newer_ = nullptr;
  void (*deleter_)(void*) = nullptr;
  uint32_t exports_ = 0;  // the recorder's, where recorded_ says that there are any
};
static_assert(sizeof(void*) != 8 || sizeof(Buffer) == 128, "two cache lines");

// Whether two buffers may share memory; null stands for any memory. Memory of a pool belongs to one
// buffer. Foreign memory may be that of a pool, which lent it out and got it back.
inline bool may_share_memory(const Buffer* a, const Buffer* b) {
  const auto is_pooled = [](const Buffer* buffer) {
    return buffer != nullptr && buffer->pool() != PoolKind::kForeign;
  };
  return a == b || !is_pooled(a) || !is_pooled(b);
}

// Bytes of a buffer from `offset` on. Without a buffer `offset` is an address.
struct ByteRange {
  const Buffer* buffer = nullptr;
  int64_t offset = 0;
  int64_t bytes = 0;
};
// Whether some byte may be part of both ranges, whatever owns the memory: false is certain. Of two
// buffers addresses decide; one that has no memory yet cannot have lent it. Memory that was lent is
// exported (see recorder.h), so nothing recorded waits to touch what two buffers share.
inline bool may_share_bytes(ByteRange a, ByteRange b) {
  if (!may_share_memory(a.buffer, b.buffer)) return false;
  if (a.buffer != b.buffer) {
    for (ByteRange* range : {&a, &b}) {
      if (range->buffer == nullptr) continue;
      void* const data = range->buffer->data();
      if (data == nullptr) return false;
      range->offset += static_cast<int64_t>(reinterpret_cast<intptr_t>(data));
    }
  }
  return a.bytes > 0 && b.bytes > 0 && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}
// All of a buffer.
inline ByteRange all_bytes(const Buffer& buffer) {
  return {&buffer, 0, static_cast<int64_t>(buffer.nbytes())};
}

// Owns one reference to a Buffer.
class BufferRef {
 public:
  BufferRef() = default;
  BufferRef(std::nullptr_t) {}  // NOLINT
  // Takes over the reference the caller holds.
  static BufferRef adopt(Buffer* buffer) {
    BufferRef ref;
    ref.buffer_ = buffer;
    return ref;
  }
  // Adds a reference of its own.
  static BufferRef share(Buffer* buffer) {
    if (buffer != nullptr) buffer->retain();
    return adopt(buffer);
  }
  BufferRef(const BufferRef& other) : buffer_(other.buffer_) {
    if (buffer_ != nullptr) buffer_->retain();
  }
  BufferRef(BufferRef&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferRef() { reset(); }

  void reset() {
    if (Buffer* buffer = std::exchange(buffer_, nullptr)) buffer->release();
  }
  // Gives the reference to the caller.
  Buffer* detach() { return std::exchange(buffer_, nullptr); }
  Buffer* get() const { return buffer_; }
  Buffer* operator->() const { return buffer_; }
  Buffer& operator*() const { return *buffer_; }
  explicit operator bool() const { return buffer_ != nullptr; }
  friend bool operator==(const BufferRef& a, const BufferRef& b) { return a.buffer_ == b.buffer_; }

 private:
  Buffer* buffer_ = nullptr;
};

}  // namespace hologram
