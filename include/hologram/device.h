// SPDX-License-Identifier: MIT
// Backends and devices: what can hold memory and run work, and the registry of those present.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "hologram/api.h"
#include "hologram/stream.h"

namespace hologram {

namespace circuit {
struct Plan;
struct PlanLimits;
struct Bindings;
}  // namespace circuit
namespace internal {
class Recorder;
}  // namespace internal

// The numbering is part of the C ABI: append only.
enum class BackendType : uint8_t { kCpu = 0, kCuda = 1, kMetal = 2, kOpenCl = 3 };
inline constexpr int kBackendCount = 4;

HOLOGRAM_API const char* backend_name(BackendType backend);
// "cpu", "cuda", "metal", "opencl", or "auto" for the default; anything else, or a backend without
// a device here, throws Error(kInvalidArgument) that lists what is available.
HOLOGRAM_API BackendType parse_backend(std::string_view name);
HOLOGRAM_API bool is_backend_available(BackendType backend);
HOLOGRAM_API std::vector<BackendType> list_available_backends();
// Why the backend of that name has no device here, for people: "this build has no metal devices".
// Empty where it has one.
HOLOGRAM_API std::string why_unavailable(std::string_view backend);
// HOLOGRAM_BACKEND where that is set and available, else the CPU.
HOLOGRAM_API BackendType default_backend();

struct DeviceProperties {
  std::string name;          // "AMD EPYC 9575F", ...
  std::string architecture;  // the instruction set in use: "avx512", "sm_90", ...
  BackendType backend = BackendType::kCpu;
  size_t total_memory = 0;
  int processors = 0;  // hardware threads or multiprocessors this process may use
  size_t l1_bytes = 0;
  size_t l2_bytes = 0;
  size_t l3_bytes = 0;
};

// One place that holds memory and runs work. Devices live from registration to the end of the
// process, so references to them, and to their streams, never dangle.
class HOLOGRAM_API Device {
 public:
  virtual ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  BackendType kind() const { return kind_; }
  int index() const { return index_; }
  // Whether the processor can read and write the memory in place.
  bool is_host_memory() const { return host_memory_; }
  virtual std::string name() const = 0;
  virtual DeviceProperties properties() const = 0;

  // Memory straight from the device, for pools to divide; null when there is none.
  virtual void* allocate_raw(size_t nbytes) = 0;
  virtual void free_raw(void* data, size_t nbytes) noexcept = 0;
  virtual SystemMemory memory_info() const = 0;
  // What of its memory is in use and cached. Host devices share the linear pool, and its counts.
  virtual MemoryStats memory_stats() const;
  virtual void reset_peak_memory_stats();
  virtual void reset_accumulated_memory_stats();
  // Gives memory that is cached, not in use, back to the system.
  virtual void empty_cache();

  // Ordered on the stream; the host side of a copy may be reused when the call returns. What is
  // recorded runs before.
  virtual void copy_from_host(Stream& stream, void* device, const void* host, size_t nbytes) = 0;
  virtual void copy_to_host(Stream& stream, void* host, const void* device, size_t nbytes) = 0;
  virtual void copy_within(Stream& stream, void* to, const void* from, size_t nbytes) = 0;

  // Runs the kernels of a plan, on up to max_threads threads (0: num_threads()). Returns when they
  // are done; a device with memory of its own may return when they are queued, since whatever
  // touches that memory is queued behind them. Called for one plan at a time. Error(kNotSupported)
  // where runs_plans() is false.
  virtual void run_plan(circuit::Plan& plan, const circuit::Bindings& bindings, int max_threads);
  // Whether ops on this device's buffers can be recorded; see recorder.h.
  bool runs_plans() const { return plan_limits_ != nullptr; }
  // What plans for this device keep to; null where runs_plans() is false.
  const circuit::PlanLimits* plan_limits() const { return plan_limits_; }
  // How many kernels of plans the device could not launch and left to the host, and the bytes that
  // were copied for them; see RecorderStats::host_kernels.
  uint64_t host_kernels() const { return host_kernels_.load(std::memory_order_relaxed); }
  uint64_t host_bytes() const { return host_bytes_.load(std::memory_order_relaxed); }
  // The last circuit that ran: whatever was recorded up to it is done.
  uint64_t done_epoch() const { return done_epoch_.load(std::memory_order_acquire); }
  // The last circuit that the program has waited for, or found done when it asked for a value. What
  // is recorded may depend on it, as it follows from what the program did; done_epoch() depends on
  // how fast the worker is. Never above done_epoch() but for the moment in which a circuit ends.
  uint64_t observed_epoch() const { return observed_epoch_.load(std::memory_order_acquire); }

  // What is recorded on the device runs before anything below happens, so submitted work, marks and
  // waits see the results of every op called before. (Recorded work runs when it is asked for;
  // query() asks for it. Errors of that, which query() does not throw, are kept for
  // synchronize.)

  // Runs work(context) after everything submitted to the stream before. Host devices run it at once
  // on the caller, and its exceptions reach the caller.
  virtual void submit(Stream& stream, void (*work)(void*), void* context);
  virtual bool query(const Stream& stream) const;
  // Waits for the stream, or for every stream, then raises an error kept on one.
  virtual void synchronize(Stream& stream);
  virtual void synchronize();
  virtual void record(Event& event, Stream& stream);
  virtual void wait(Stream& stream, const Event& event);
  virtual bool query(const Event& event) const;
  virtual void synchronize(const Event& event);
  // Of two events that are done.
  virtual double elapsed_ms(const Event& begin, const Event& end) const;

  Stream& default_stream() { return stream(0); }
  // Streams of a fixed pool, handed out in turn; priority below 0 is urgent.
  Stream& next_pool_stream(int priority = 0);
  // The stream that has this id; Error(kIndex) for ids this device never gives out.
  Stream& stream(int64_t id);

 protected:
  // limits: those of the plans that the device runs (src/circuit/plan_limits.h), unchanged for its
  // life; null where it runs none.
  Device(BackendType kind, bool host_memory, const circuit::PlanLimits* limits = nullptr);

  // For devices with queues of their own: what was put in a stream, the device's own mark in an
  // event, and the stream that it marks.
  static void count_submitted(Stream& stream);
  static std::shared_ptr<void> mark_of(const Event& event);
  static void set_mark(Event& event, Stream& stream, std::shared_ptr<void> mark);
  void count_host_kernels(uint64_t kernels, uint64_t bytes) {
    host_kernels_.fetch_add(kernels, std::memory_order_relaxed);
    host_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

 private:
  friend HOLOGRAM_API int register_device(std::unique_ptr<Device> device);
  friend class internal::Recorder;
  // Runs what is recorded; errors are kept on the default stream.
  bool settle() const;

  const BackendType kind_;
  const bool host_memory_;
  const circuit::PlanLimits* const plan_limits_;
  int index_ = -1;
  std::atomic<Stream*> streams_[Stream::kPerDevice] = {};
  std::atomic<uint32_t> next_stream_[2] = {};
  std::atomic<internal::Recorder*> recorder_{nullptr};
  std::atomic<uint64_t> done_epoch_{0};
  std::atomic<uint64_t> observed_epoch_{0};
  std::atomic<uint64_t> host_kernels_{0};
  std::atomic<uint64_t> host_bytes_{0};
};

// Adds a device under the next index, which it returns.
HOLOGRAM_API int register_device(std::unique_ptr<Device> device);
// Registers what this machine has of what this build knows: the CPU, always with index 0, then the
// backends that HOLOGRAM_DEVICES names ("cpu,opencl"), in that order; where it is not set, the
// devices of OpenCL whose hardware is an accelerator. Called by the first look at the registry;
// harmless when called again.
HOLOGRAM_API void register_builtin_devices();

HOLOGRAM_API int device_count();
// Error(kIndex), saying how many there are, for an index that is not one.
HOLOGRAM_API Device& device(int index);
// The first device of a backend; Error(kInvalidArgument) that lists what is available.
HOLOGRAM_API Device& device(BackendType backend);

// The device and stream that new work of this thread goes to.
HOLOGRAM_API int current_device();
HOLOGRAM_API void set_current_device(int index);
HOLOGRAM_API Stream& current_stream(int device_index);
HOLOGRAM_API void set_current_stream(Stream& stream);

namespace internal {
// How the registry reaches the folders above it; set while the library loads.
HOLOGRAM_API void set_device_registrar(void (*registrar)());
// What why_unavailable() is to say. `why` lives as long as the process.
HOLOGRAM_API void note_unavailable(BackendType backend, const char* why);
}  // namespace internal

}  // namespace hologram
