// SPDX-License-Identifier: MIT
// See opencl_device.h. One in-order queue serves all streams of a device, so whatever is put there
// sees what was put there before, from whatever thread and stream.
#include "src/opencl/opencl_device.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "hologram/device.h"
#include "hologram/recorder.h"
#include "src/circuit/plan_cache.h"
#include "src/circuit/plan_limits.h"
#include "src/opencl/device_memory.h"
#include "src/opencl/kernel_text.h"
#include "src/opencl/programs.h"
#include "src/runtime/device/host_fallback.h"
#include "src/runtime/memory/os_memory.h"

namespace hologram {
namespace opencl {
namespace {

// Rows and calls are the host's: elementwise work beside them stays on the device.
circuit::PlanLimits limits_of(DeviceId device, const circuit::NativeOps& native) {
  return {.max_arguments = max_arguments(device_info<size_t>(device, kDeviceMaxParameterSize)),
          .native = &native,
          .fuse_reductions = false,
          .fuse_row_functions = false,
          .fuse_call_results = false};
}

// A kernel of a plan, ready to be launched.
struct Launch {
  Launch() = default;
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  ~Launch() {
    if (layout != nullptr) api()->ReleaseMemObject(layout);
  }

  std::shared_ptr<const BuiltProgram> program;
  std::vector<uint32_t> slots;
  std::vector<KernelText::Number> numbers;
  Memory layout = nullptr;
  size_t layout_bytes = 0;
  int64_t items = 0;
};

// What the device made of a plan: launches, and runs of kernels that the host takes, in order.
struct Code final : circuit::PlanCode {
  struct Step {
    int first_kernel = 0;
    std::unique_ptr<Launch> launch;
    std::unique_ptr<internal::HostKernels> host;
  };
  std::vector<Step> steps;

  size_t bytes() const override {
    size_t bytes = sizeof(Code) + steps.capacity() * sizeof(Step);
    for (const Step& step : steps) {
      if (step.host != nullptr) bytes += step.host->bytes();
      if (step.launch == nullptr) continue;
      bytes += sizeof(Launch) + step.launch->layout_bytes + 4 * step.launch->slots.capacity() +
               sizeof(KernelText::Number) * step.launch->numbers.capacity();
    }
    return bytes;
  }
};

Traits traits_of(DeviceId device) {
  Traits traits;
  const auto doubles = device_info<Ulong>(device, kDeviceDoubleFpConfig);
  traits.has_double = (doubles & kFpRoundToNearest) != 0;
  const auto singles = device_info<Ulong>(device, kDeviceSingleFpConfig);
  traits.divides_exactly = (singles & kFpCorrectlyRoundedDivideSqrt) != 0;
  return traits;
}

std::string options_of(const Traits& traits) {
  std::string options = "-cl-std=CL1.2";
  if (traits.divides_exactly) options += " -cl-fp32-correctly-rounded-divide-sqrt";
  if (!traits.has_double) options += " -cl-single-precision-constant";
  return options;
}

Context make_context(DeviceId device) {
  Int code = kSuccess;
  const Context context = api()->CreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
  check(code, "clCreateContext");
  return context;
}

Queue make_queue(Context context, DeviceId device) {
  Int code = kSuccess;
  const Queue queue = api()->CreateCommandQueue(context, device, kQueueProfiling, &code);
  if (code != kSuccess) api()->ReleaseContext(context);
  check(code, "clCreateCommandQueue");
  return queue;
}

std::shared_ptr<void> shared_mark(Mark mark) {
  return {mark, [](void* event) { api()->ReleaseEvent(static_cast<Mark>(event)); }};
}
Mark as_mark(const std::shared_ptr<void>& mark) { return static_cast<Mark>(mark.get()); }

bool is_done(Mark mark) {
  Int status = kComplete;
  check(api()->GetEventInfo(mark, kEventCommandExecutionStatus, sizeof status, &status, nullptr),
        "clGetEventInfo");
  return status <= kComplete;  // below: it ended with an error
}

class OpenClDevice final : public Device {
 public:
  explicit OpenClDevice(DeviceId id)
      : Device(BackendType::kOpenCl, /*host_memory=*/false, &limits_),
        id_(id),
        traits_(traits_of(id)),
        native_(native_ops(traits_)),
        limits_(limits_of(id, native_)),
        context_(make_context(id)),
        queue_(make_queue(context_, id)),
        memory_(context_, device_info<Ulong>(id, kDeviceGlobalMemSize),
                device_info<Ulong>(id, kDeviceMaxMemAllocSize)),
        programs_(context_, id, options_of(traits_)) {}

  std::string name() const override { return "opencl"; }

  DeviceProperties properties() const override {
    DeviceProperties p;
    p.name = device_text(id_, kDeviceName);
    p.architecture = device_text(id_, kDeviceVersion);
    p.backend = BackendType::kOpenCl;
    p.total_memory = memory_.total();
    p.processors = static_cast<int>(device_info<Uint>(id_, kDeviceMaxComputeUnits));
    return p;
  }

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
    const DeviceMemory::Place place = memory_.find(to);
    check(api()->EnqueueWriteBuffer(queue_, place.memory, kTrue, place.offset, nbytes, from, 0,
                                    nullptr, nullptr),
          "clEnqueueWriteBuffer");
  }
  void copy_to_host(Stream& stream, void* to, const void* from, size_t nbytes) override {
    if (!begin_copy(stream, nbytes)) return;
    const DeviceMemory::Place place = memory_.find(from);
    check(api()->EnqueueReadBuffer(queue_, place.memory, kTrue, place.offset, nbytes, to, 0,
                                   nullptr, nullptr),
          "clEnqueueReadBuffer");
  }
  void copy_within(Stream& stream, void* to, const void* from, size_t nbytes) override {
    if (to == from || !begin_copy(stream, nbytes)) return;
    const DeviceMemory::Place source = memory_.find(from), target = memory_.find(to);
    const size_t distance = source.offset > target.offset ? source.offset - target.offset
                                                          : target.offset - source.offset;
    if (source.memory != target.memory || distance >= nbytes) {
      return enqueue_copy(source, target, nbytes);
    }
    // Commands must not copy to where they read.
    void* apart = memory_.allocate(nbytes);
    if (apart == nullptr) {
      fail(ErrorKind::kOutOfMemory, "opencl: no memory for a copy of ", nbytes,
           " bytes onto themselves; free buffers, or copy in pieces");
    }
    enqueue_copy(source, memory_.find(apart), nbytes);
    enqueue_copy(memory_.find(apart), target, nbytes);
    memory_.release(apart, nbytes);
  }

  void run_plan(circuit::Plan& plan, const circuit::Bindings& bindings, int max_threads) override {
    check_process("run_plan");
    std::lock_guard lock(launch_mutex_);  // a kernel's arguments are state of the kernel
    if (plan.code == nullptr || plan.code->sizes != plan.sizes) {
      plan.code = make_code(plan);
      plan.code->sizes = plan.sizes;
      circuit::plan_cache().note_code(plan);
    }
    for (const Code::Step& step : static_cast<const Code&>(*plan.code).steps) {
      plan.running = step.first_kernel;
      if (step.launch != nullptr) {
        launch(*step.launch, bindings);
        continue;
      }
      count_host_kernels(static_cast<uint64_t>(step.host->kernels()),
                         static_cast<uint64_t>(step.host->copied_bytes()));
      try {
        step.host->run(*this, bindings, max_threads);
      } catch (...) {
        plan.running += step.host->running();
        throw;
      }
    }
    check(api()->Flush(queue_), "clFlush");
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
      if (asked_ == nullptr) asked_ = make_mark();
      mark = asked_;
      if (is_done(as_mark(mark))) asked_ = nullptr;
    }
    return is_done(as_mark(mark));
  }
  void synchronize(Stream& stream) override {
    flush(*this);
    check_process("synchronize");
    check(api()->Finish(queue_), "clFinish");
    Device::synchronize(stream);
  }
  using Device::synchronize;
  void record(Event& event, Stream& stream) override {
    flush(*this);
    set_mark(event, stream, make_mark());
  }
  void wait(Stream& stream, const Event& event) override {
    if (&event.stream()->device() != this) Device::wait(stream, event);
  }
  bool query(const Event& event) const override {
    const std::shared_ptr<void> mark = mark_of(event);
    return mark == nullptr || is_done(as_mark(mark));
  }
  void synchronize(const Event& event) override {
    const std::shared_ptr<void> mark = mark_of(event);
    if (mark == nullptr) return;
    const Mark waited = as_mark(mark);
    check(api()->WaitForEvents(1, &waited), "clWaitForEvents");
  }
  double elapsed_ms(const Event& begin, const Event& end) const override {
    Ulong from = 0, to = 0;
    for (const auto& [event, time] : {std::pair{&begin, &from}, std::pair{&end, &to}}) {
      const std::shared_ptr<void> mark = mark_of(*event);
      check(api()->GetEventProfilingInfo(as_mark(mark), kProfilingCommandEnd, sizeof *time, time,
                                         nullptr),
            "clGetEventProfilingInfo");
    }
    return (static_cast<double>(to) - static_cast<double>(from)) * 1e-6;
  }

 private:
  // A driver's threads and locks do not survive a fork.
  void check_process(const char* what) const {
    if (::getpid() == process_) return;
    fail(ErrorKind::kState, what, ": the OpenCL device ", index(),
         " was opened before this process was forked; use it in a process that was spawned");
  }

  void poison(void* data, size_t nbytes) {
    std::vector<char> bytes(nbytes);
    internal::poison(bytes.data(), nbytes);
    const DeviceMemory::Place place = memory_.find(data);
    check(api()->EnqueueWriteBuffer(queue_, place.memory, kTrue, place.offset, nbytes, bytes.data(),
                                    0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
  }

  // What is recorded comes first; false where there is nothing to copy.
  bool begin_copy(Stream& stream, size_t nbytes) {
    check_process("copy");
    flush(*this);
    count_submitted(stream);
    return nbytes != 0;
  }
  void enqueue_copy(DeviceMemory::Place from, DeviceMemory::Place to, size_t nbytes) {
    check(api()->EnqueueCopyBuffer(queue_, from.memory, to.memory, from.offset, to.offset, nbytes,
                                   0, nullptr, nullptr),
          "clEnqueueCopyBuffer");
  }

  std::shared_ptr<void> make_mark() const {
    check_process("record");
    Mark mark = nullptr;
    check(api()->EnqueueMarkerWithWaitList(queue_, 0, nullptr, &mark),
          "clEnqueueMarkerWithWaitList");
    std::shared_ptr<void> shared = shared_mark(mark);
    check(api()->Flush(queue_), "clFlush");
    return shared;
  }

  std::unique_ptr<Launch> make_launch(KernelText text) {
    auto launch = std::make_unique<Launch>();
    launch->program = programs_.get(text.source);
    launch->slots = std::move(text.slots);
    launch->numbers = std::move(text.numbers);
    launch->items = text.items;
    if (text.layout.empty()) text.layout.push_back(0);
    launch->layout_bytes = text.layout.size() * sizeof(int64_t);
    Int code = kSuccess;
    launch->layout = api()->CreateBuffer(context_, kMemReadOnly | kMemCopyHostPointer,
                                         launch->layout_bytes, text.layout.data(), &code);
    check(code, "clCreateBuffer");
    return launch;
  }

  std::optional<KernelText> text_of(const circuit::Kernel& kernel) const {
    return kernel_text(kernel, traits_, native_);
  }

  std::unique_ptr<Code> make_code(const circuit::Plan& plan) {
    auto code = std::make_unique<Code>();
    const int count = static_cast<int>(plan.kernels.size());
    for (int k = 0; k < count;) {
      Code::Step& step = code->steps.emplace_back();
      step.first_kernel = k;
      if (auto text = text_of(plan.kernels[static_cast<size_t>(k)])) {
        step.launch = make_launch(*std::move(text));
        ++k;
        continue;
      }
      // What follows each other on the host needs no copies in between.
      int end = k + 1;
      while (end < count && !text_of(plan.kernels[static_cast<size_t>(end)])) ++end;
      step.host = std::make_unique<internal::HostKernels>(plan, k, end);
      k = end;
    }
    return code;
  }

  void launch(const Launch& launch, const circuit::Bindings& bindings) {
    if (launch.items == 0) return;
    const KernelObject kernel = launch.program->kernel();
    Uint position = 0;
    const auto argument = [&](size_t bytes, const void* value) {
      check(api()->SetKernelArg(kernel, position++, bytes, value), "clSetKernelArg");
    };
    const auto items = static_cast<Ulong>(launch.items);
    argument(sizeof items, &items);
    argument(sizeof(Memory), &launch.layout);
    for (const uint32_t slot : launch.slots) {
      const DeviceMemory::Place place = memory_.find(bindings.slots[slot]);
      const Ulong offset = place.offset;
      argument(sizeof(Memory), &place.memory);
      argument(sizeof offset, &offset);
    }
    for (const KernelText::Number& number : launch.numbers) {
      argument(number.dtype == Dtype::kFloat32 ? 4 : 8, &bindings.immediates[number.index]);
    }
    const size_t group = kGroupItems;
    const size_t global = (static_cast<size_t>(launch.items) + group - 1) / group * group;
    check(api()->EnqueueNDRangeKernel(queue_, kernel, 1, nullptr, &global, &group, 0, nullptr,
                                      nullptr),
          "clEnqueueNDRangeKernel");
  }

  const DeviceId id_;
  const pid_t process_ = ::getpid();
  const Traits traits_;
  const circuit::NativeOps native_;
  const circuit::PlanLimits limits_;
  const Context context_;
  const Queue queue_;
  DeviceMemory memory_;
  Programs programs_;
  std::mutex launch_mutex_;
  mutable std::mutex mark_mutex_;
  mutable std::shared_ptr<void> asked_;  // behind all that was queued when query() was called
};

bool is_usable(DeviceId device, bool all) {
  return (all || (device_info<Ulong>(device, kDeviceType) & kDeviceTypeCpu) == 0) &&
         device_info<Uint>(device, kDeviceAvailable) != 0 &&
         device_info<Uint>(device, kDeviceCompilerAvailable) != 0 &&
         device_info<size_t>(device, kDeviceMaxWorkGroupSize) >= kGroupItems;
}

// Whether this machine has what drivers of accelerators open. To load the drivers, which may start
// threads, takes a tenth of a second: not for every process on a machine without any.
bool may_have_accelerator() {
  constexpr const char* kNodes[] = {"/dev/dri", "/dev/nvidiactl", "/dev/kfd",
                                    "/dev/dxg", "/dev/mali0",     "/dev/kgsl-3d0"};
  return std::any_of(std::begin(kNodes), std::end(kNodes),
                     [](const char* node) { return ::access(node, F_OK) == 0; });
}

std::vector<DeviceId> find_devices() {
  std::vector<DeviceId> found;
  Uint count = 0;
  if (api()->GetPlatformIDs(0, nullptr, &count) != kSuccess || count == 0) return found;
  std::vector<Platform> platforms(count);
  if (api()->GetPlatformIDs(count, platforms.data(), nullptr) != kSuccess) return found;
  for (const Platform platform : platforms) {
    if (api()->GetDeviceIDs(platform, kDeviceTypeAll, 0, nullptr, &count) != kSuccess) continue;
    const size_t before = found.size();
    found.resize(before + count);
    if (count != 0 && api()->GetDeviceIDs(platform, kDeviceTypeAll, count, found.data() + before,
                                          nullptr) != kSuccess) {
      found.resize(before);
    }
  }
  return found;
}

}  // namespace
}  // namespace opencl

void register_opencl_devices(bool all) {
  static std::once_flag once;
  std::call_once(once, [all] {
    const auto note = [](const char* why) {
      internal::note_unavailable(BackendType::kOpenCl, why);
    };
    const bool named = *opencl::named_library() != 0;
    if (!all && !named && !opencl::may_have_accelerator()) {
      return note("no accelerator was found (HOLOGRAM_DEVICES=cpu,opencl takes any device)");
    }
    if (opencl::api() == nullptr) {
      if (named) std::fprintf(stderr, "hologram: %s\n", opencl::why_no_api());
      return note(opencl::why_no_api());
    }
    note("the driver has no device that can be used");
    for (const opencl::DeviceId id : opencl::find_devices()) {
      try {
        if (opencl::is_usable(id, all)) {
          register_device(std::make_unique<opencl::OpenClDevice>(id));
        }
      } catch (const Error& error) {
        // A device that does not work is none; the others may.
        std::fprintf(stderr, "hologram: an OpenCL device is left out: %s\n", error.what());
      }
    }
  });
}

}  // namespace hologram
