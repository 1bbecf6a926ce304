// SPDX-License-Identifier: MIT
// Streams (queues of work in order) and events (marks in them).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>

#include "hologram/api.h"
#include "hologram/memory.h"

namespace hologram {

class Device;

// An in-order queue on a device. Owned by its device and never destroyed, so it is passed by
// reference. Host devices run work as it is submitted, on the thread that submits it.
class HOLOGRAM_API Stream {
 public:
  static constexpr int kPoolSize = 32;                  // per priority
  static constexpr int kPerDevice = 1 + 2 * kPoolSize;  // the default, normal and urgent ones

  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int64_t id() const { return id_; }
  int priority() const { return priority_; }
  Device& device() const { return device_; }

  // Runs f() after everything submitted before.
  template <class F>
  void submit(F&& f) {
    using Function = std::remove_reference_t<F>;
    submit_erased([](void* context) { (*static_cast<Function*>(context))(); },
                  const_cast<void*>(static_cast<const void*>(&f)));
  }
  // Whether all submitted work is done; never throws. Recorded ops, which would otherwise wait
  // until they are asked for, are run first; false where memory did not suffice for that.
  bool query() const;
  // Waits for all submitted work, then raises the first error kept since the last time.
  void synchronize();

  // How many pieces of work were ever submitted, and how many are done.
  uint64_t submitted() const { return submitted_.load(std::memory_order_acquire); }
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }

  // Keeps an error that arose while running, for the next synchronize; the first one stays.
  void keep_error(std::exception_ptr error) noexcept;
  bool has_error() const { return has_error_.load(std::memory_order_acquire); }
  void raise_kept_error();

 private:
  friend class Device;
  Stream(Device& device, int64_t id, int priority)
      : device_(device), id_(id), priority_(priority) {}
  void submit_erased(void (*work)(void*), void* context);

  Device& device_;
  const int64_t id_;
  const int priority_;
  std::atomic<uint64_t> submitted_{0};
  std::atomic<uint64_t> completed_{0};
  std::atomic<bool> has_error_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

// A mark in a stream. One thread at a time may record it; any may query or wait.
class HOLOGRAM_API Event {
 public:
  explicit Event(bool timing = false) : timing_(timing) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  bool timing() const { return timing_; }
  bool recorded() const { return stream_.load(std::memory_order_acquire) != nullptr; }
  Stream* stream() const { return stream_.load(std::memory_order_acquire); }

  // Marks the point the stream has reached; recording again moves the mark.
  void record(Stream& stream);
  // Whether the marked work is done; true for an event that was never recorded.
  bool query() const;
  void synchronize();
  // Later work of `stream` waits for the mark.
  void block(Stream& stream);
  // Milliseconds from this mark to `end`. Both must be made with timing, recorded and done.
  double elapsed_ms(const Event& end) const;

 private:
  friend class Device;

  const bool timing_;
  std::atomic<Stream*> stream_{nullptr};
  std::atomic<uint64_t> sequence_{0};
  std::atomic<int64_t> nanoseconds_{0};
  mutable std::mutex mutex_;
  std::shared_ptr<void> mark_;  // what a device with queues of its own keeps here
};

}  // namespace hologram
