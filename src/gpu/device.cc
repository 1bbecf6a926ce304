// SPDX-License-Identifier: MIT
// See device.h. The driver's one queue serves all streams of a device, so whatever is put there
// sees what was put there before, from whatever thread and stream.
#include "src/gpu/device.h"

#include <unistd.h>

#include <mutex>
#include <utility>
#include <vector>

#include "hologram/error.h"
#include "hologram/recorder.h"
#include "src/circuit/plan_cache.h"
#include "src/circuit/plan_limits.h"
#include "src/gpu/kernel_cache.h"
#include "src/gpu/kernel_text.h"
#include "src/gpu/memory.h"
#include "src/gpu/plan_code.h"
#include "src/gpu/products.h"
#include "src/runtime/memory/os_memory.h"

namespace hologram::gpu {
namespace {

// Rows may be of any length, since nothing of it is kept.
circuit::PlanLimits limits_of(const Traits& traits, const circuit::NativeOps& native) {
  return {.row_bytes = INT64_MAX,
          .max_arguments = max_arguments(traits),
          .native = &native,
          .call_result = product_result,
          .fuse_rows_of_calls = false,
          .narrow_call_operands = false};
}

class GpuDevice final : public Device {
 public:
  GpuDevice(BackendType kind, std::unique_ptr<Driver> driver)
      : Device(kind, /*host_memory=*/false, &limits_),
        driver_(std::move(driver)),
        native_(native_ops(driver_->traits())),
        limits_(limits_of(driver_->traits(), native_)),
        memory_(*driver_, driver_->properties().total_memory),
        kernels_(*driver_) {}

  std::string name() const override { return backend_name(kind()); }
  DeviceProperties properties() const override { return driver_->properties(); }

  void* allocate_raw(size_t nbytes) override {
    check_process("allocate");
    void* const data = memory_.allocate(nbytes);
    if (data != nullptr && internal::is_poisoning()) poison(data, nbytes);
    return data;
  }
  void free_raw(void* data, size_t nbytes) noexcept override {
    if (::getpid() == process_) memory_.release(data, nbytes);
  }
  SystemMemory memory_info() const override {
    const MemoryStats stats = memory_.stats();
    return {memory_.total() - static_cast<size_t>(stats.allocated_bytes.current), memory_.total()};
  }
  MemoryStats memory_stats() const override { return memory_.stats(); }
  void reset_peak_memory_stats() override { memory_.reset_peaks(); }
  void reset_accumulated_memory_stats() override { memory_.reset_totals(); }
  void empty_cache() override {
    if (::getpid() == process_) memory_.trim();
  }

  void copy_from_host(Stream& stream, void* to, const void* from, size_t nbytes) override {
    if (!begin_copy(stream, nbytes)) return;
    driver_->write(to, from, nbytes);
  }
  void copy_to_host(Stream& stream, void* to, const void* from, size_t nbytes) override {
    if (!begin_copy(stream, nbytes)) return;
    driver_->read(to, from, nbytes);
    fault_.raise();
  }
  void copy_within(Stream& stream, void* to, const void* from, size_t nbytes) override {
    if (to == from || !begin_copy(stream, nbytes)) return;
    const char* const source = static_cast<const char*>(from);
    const char* const target = static_cast<char*>(to);
    const size_t distance =
        static_cast<size_t>(source > target ? source - target : target - source);
    if (distance >= nbytes) return driver_->copy(to, from, nbytes);
    // A copy must not write where it reads.
    void* apart = memory_.allocate(nbytes);
    if (apart == nullptr) {
      fail(ErrorKind::kOutOfMemory, name(), ": no memory for a copy of ", nbytes,
           " bytes onto themselves; free buffers, or copy in pieces");
    }
    driver_->copy(apart, from, nbytes);
    driver_->copy(to, apart, nbytes);
    memory_.release(apart, nbytes);
  }

  void run_plan(circuit::Plan& plan, const circuit::Bindings& bindings, int max_threads) override {
    check_process("run_plan");
    std::lock_guard lock(launch_mutex_);
    if (plan.code == nullptr || plan.code->sizes != plan.sizes) {
      plan.code = std::make_unique<PlanCode>(plan, machine_);
      plan.code->sizes = plan.sizes;
      circuit::plan_cache().note_code(plan);
    }
    static_cast<const PlanCode&>(*plan.code).run(machine_, bindings, max_threads, plan.running);
    driver_->flush();
  }

  void submit(Stream& stream, void (*work)(void*), void* context) override {
    synchronize(stream);
    count_submitted(stream);
    work(context);
  }
  bool query(const Stream& stream) const override {
    if (!Device::query(stream)) return false;
    std::shared_ptr<void> mark;
    {
      std::lock_guard lock(mark_mutex_);
      if (asked_ == nullptr) asked_ = mark_now();
      mark = asked_;
      if (driver_->is_done(mark)) asked_ = nullptr;
    }
    return driver_->is_done(mark);
  }
  void synchronize(Stream& stream) override {
    flush(*this);
    check_process("synchronize");
    driver_->finish();
    fault_.raise();
    Device::synchronize(stream);
  }
  using Device::synchronize;
  void record(Event& event, Stream& stream) override {
    flush(*this);
    set_mark(event, stream, mark_now());
  }
  void wait(Stream& stream, const Event& event) override {
    if (&event.stream()->device() != this) Device::wait(stream, event);
  }
  bool query(const Event& event) const override {
    const std::shared_ptr<void> mark = mark_of(event);
    return mark == nullptr || driver_->is_done(mark);
  }
  void synchronize(const Event& event) override {
    const std::shared_ptr<void> mark = mark_of(event);
    if (mark == nullptr) return;
    driver_->wait(mark);
    fault_.raise();
  }
  double elapsed_ms(const Event& begin, const Event& end) const override {
    return driver_->elapsed_ms(mark_of(begin), mark_of(end));
  }

 private:
  // A driver's threads and locks do not survive a fork.
  void check_process(const char* what) const {
    if (::getpid() == process_) return;
    fail(ErrorKind::kState, what, ": the ", name(), " device ", index(),
         " was opened before this process was forked; use it in a process that was spawned");
  }

  std::shared_ptr<void> mark_now() const {
    check_process("record");
    return driver_->mark();
  }

  void poison(void* data, size_t nbytes) {
    std::vector<char> bytes(nbytes);
    internal::poison(bytes.data(), nbytes);
    driver_->write(data, bytes.data(), nbytes);
  }

  // What is recorded comes first; false where there is nothing to copy.
  bool begin_copy(Stream& stream, size_t nbytes) {
    check_process("copy");
    flush(*this);
    count_submitted(stream);
    return nbytes != 0;
  }

  const std::unique_ptr<Driver> driver_;
  const pid_t process_ = ::getpid();
  const circuit::NativeOps native_;
  const circuit::PlanLimits limits_;
  DeviceMemory memory_;
  KernelCache kernels_;
  std::mutex launch_mutex_;
  FaultWord fault_{*driver_};
  Machine machine_{
      *this,    *driver_,
      kernels_, limits_,
      fault_,   [this](uint64_t kernels, uint64_t bytes) {
                     count_host_kernels(kernels, bytes); }};
  mutable std::mutex mark_mutex_;
  mutable std::shared_ptr<void> asked_;  // behind all that was queued when query() was called
};

}  // namespace

std::unique_ptr<Device> make_device(BackendType kind, std::unique_ptr<Driver> driver) {
  return std::make_unique<GpuDevice>(kind, std::move(driver));
}

}  // namespace hologram::gpu
