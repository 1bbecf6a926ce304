// SPDX-License-Identifier: MIT
// An executor: a backend, a stream on it and the pools its buffers come from.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "hologram/api.h"
#include "hologram/buffer.h"
#include "hologram/device.h"

namespace hologram {

struct ExecutorStats {
  int64_t allocations = 0;           // buffers ever allocated here
  int64_t boundary_allocations = 0;  // those of them that got a boundary class
  int64_t bytes_requested = 0;
  int boundary_classes_free = 0;
  uint64_t work_submitted = 0;
};

// What runs ops for programs that use Hologram without a framework. Threads may share one. Buffers
// outlive their executor. After close() every use but close() throws Error(kState).
class HOLOGRAM_API Executor {
 public:
  static std::shared_ptr<Executor> with_backend(BackendType backend);
  // The default backend's first device.
  static std::shared_ptr<Executor> automatic();
  static std::shared_ptr<Executor> on_stream(Stream& stream);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  BackendType backend() const { return device_.kind(); }
  Device& device() const { return device_; }
  Stream& stream() const { return stream_; }

  // A buffer of `length` elements, contents undefined. One that fits a class of this executor's
  // boundary pool lives there while a class is free, else in the linear pool.
  BufferRef allocate(int64_t length, Dtype dtype = Dtype::kFloat32);

  void synchronize();
  void close() noexcept;
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // Throws Error(kState) naming `operation` when closed.
  void check_open(const char* operation) const;
  ExecutorStats stats() const;

 private:
  struct Pool;
  explicit Executor(Stream& stream);

  Device& device_;
  Stream& stream_;
  std::atomic<bool> closed_{false};
  std::atomic<Pool*> pool_{nullptr};
  std::atomic<int64_t> allocations_{0};
  std::atomic<int64_t> boundary_allocations_{0};
  std::atomic<int64_t> bytes_requested_{0};
};

}  // namespace hologram
