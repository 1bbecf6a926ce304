// SPDX-License-Identifier: MIT
// Streams and events of devices that run work on the thread that submits it.
#include "hologram/stream.h"

#include <utility>

#include "hologram/device.h"
#include "hologram/error.h"
#include "hologram/recorder.h"

namespace hologram {

void Stream::submit_erased(void (*work)(void*), void* context) {
  device_.submit(*this, work, context);
}

bool Stream::query() const { return device_.query(*this); }
void Stream::synchronize() { device_.synchronize(*this); }

void Stream::keep_error(std::exception_ptr error) noexcept {
  if (error == nullptr) return;
  std::lock_guard lock(mutex_);
  if (error_ != nullptr) return;
  error_ = std::move(error);
  has_error_.store(true, std::memory_order_release);
}

void Stream::raise_kept_error() {
  if (!has_error()) return;
  std::exception_ptr error;
  {
    std::lock_guard lock(mutex_);
    error = std::exchange(error_, nullptr);
    has_error_.store(false, std::memory_order_release);
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void Event::record(Stream& stream) {
  Stream* before = stream_.load(std::memory_order_acquire);
  if (before != nullptr && &before->device() != &stream.device()) {
    fail(ErrorKind::kInvalidArgument, "event was recorded on device ", before->device().index(),
         " and cannot be recorded on device ", stream.device().index(),
         "; make one event per device");
  }
  stream.device().record(*this, stream);
}

bool Event::query() const {
  const Stream* stream = this->stream();
  return stream == nullptr || stream->device().query(*this);
}

void Event::synchronize() {
  if (Stream* stream = this->stream()) stream->device().synchronize(*this);
}

void Event::block(Stream& stream) {
  if (recorded()) stream.device().wait(stream, *this);
}

double Event::elapsed_ms(const Event& end) const {
  if (!timing_ || !end.timing_) {
    fail(ErrorKind::kInvalidArgument,
         "both events must be created with timing enabled to measure elapsed time");
  }
  if (!recorded() || !end.recorded()) {
    fail(ErrorKind::kState, "both events must be recorded before measuring elapsed time");
  }
  if (!query() || !end.query()) {
    fail(ErrorKind::kState,
         "both events must be completed before measuring elapsed time; synchronize first");
  }
  return stream()->device().elapsed_ms(*this, end);
}

// The defaults of Device: work is done when submit returns, so only what is recorded has to be
// waited for.

void Device::submit(Stream& stream, void (*work)(void*), void* context) {
  flush(*this);
  stream.submitted_.fetch_add(1, std::memory_order_acq_rel);
  struct Done {
    Stream& stream;
    ~Done() { stream.completed_.fetch_add(1, std::memory_order_acq_rel); }
  } done{stream};
  work(context);
}

bool Device::query(const Stream& stream) const {
  return settle() && stream.completed() >= stream.submitted();
}

void Device::synchronize(Stream& stream) {
  flush(*this);
  stream.raise_kept_error();
}

void Device::synchronize() {
  flush(*this);
  for (std::atomic<Stream*>& place : streams_) {
    if (Stream* stream = place.load(std::memory_order_acquire)) synchronize(*stream);
  }
}

void Device::record(Event& event, Stream& stream) {
  flush(*this);
  event.sequence_.store(stream.submitted(), std::memory_order_relaxed);
  event.nanoseconds_.store(std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::chrono::steady_clock::now().time_since_epoch())
                               .count(),
                           std::memory_order_relaxed);
  event.stream_.store(&stream, std::memory_order_release);
}

bool Device::query(const Event& event) const {
  const Stream* stream = event.stream();
  return stream == nullptr ||
         stream->completed() >= event.sequence_.load(std::memory_order_acquire);
}

double Device::elapsed_ms(const Event& begin, const Event& end) const {
  return static_cast<double>(end.nanoseconds_.load(std::memory_order_acquire) -
                             begin.nanoseconds_.load(std::memory_order_acquire)) *
         1e-6;
}

void Device::count_submitted(Stream& stream) {
  stream.submitted_.fetch_add(1, std::memory_order_acq_rel);
  stream.completed_.fetch_add(1, std::memory_order_acq_rel);
}

std::shared_ptr<void> Device::mark_of(const Event& event) {
  std::lock_guard lock(event.mutex_);
  return event.mark_;
}

void Device::set_mark(Event& event, Stream& stream, std::shared_ptr<void> mark) {
  {
    std::lock_guard lock(event.mutex_);
    event.mark_.swap(mark);
  }
  event.stream_.store(&stream, std::memory_order_release);
}

void Device::wait(Stream&, const Event& event) { event.stream()->device().synchronize(event); }
void Device::synchronize(const Event&) {}

}  // namespace hologram
