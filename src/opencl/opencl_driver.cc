// SPDX-License-Identifier: MIT
// See opencl_driver.h.
#include "src/opencl/opencl_driver.h"

#include <sys/mman.h>

#include <iterator>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "src/gpu/kernel_text.h"
#include "src/opencl/prologue.h"

namespace hologram::opencl {
namespace {

using gpu::Launch;
using gpu::Place;
using gpu::Traits;

constexpr size_t kPageBytes = 4096;
size_t mapped_bytes(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

Traits traits_of(DeviceId device) {
  Traits traits;
  const auto doubles = device_info<Ulong>(device, kDeviceDoubleFpConfig);
  traits.has_double = (doubles & kFpRoundToNearest) != 0;
  const auto singles = device_info<Ulong>(device, kDeviceSingleFpConfig);
  traits.divides_exactly = (singles & kFpCorrectlyRoundedDivideSqrt) != 0;
  traits.parameter_bytes = device_info<size_t>(device, kDeviceMaxParameterSize);
  traits.group_items = device_info<size_t>(device, kDeviceMaxWorkGroupSize);
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

Mark as_mark(const std::shared_ptr<void>& mark) { return static_cast<Mark>(mark.get()); }
Memory as_memory(void* block) { return static_cast<Memory>(block); }

std::string build_log(Program program, DeviceId device) {
  size_t bytes = 0;
  if (api()->GetProgramBuildInfo(program, device, kProgramBuildLog, 0, nullptr, &bytes) !=
      kSuccess) {
    return "no log";
  }
  std::string log(bytes, '\0');
  api()->GetProgramBuildInfo(program, device, kProgramBuildLog, bytes, log.data(), nullptr);
  return log;
}

// A program with one kernel.
class BuiltKernel final : public gpu::CompiledKernel {
 public:
  BuiltKernel(Context context, DeviceId device, const std::string& options,
              const std::string& source) {
    Int code = kSuccess;
    const char* text = source.c_str();
    program_ = api()->CreateProgramWithSource(context, 1, &text, nullptr, &code);
    check(code, "clCreateProgramWithSource");
    code = api()->BuildProgram(program_, 1, &device, options.c_str(), nullptr, nullptr);
    if (code != kSuccess) {
      const std::string log = build_log(program_, device);
      api()->ReleaseProgram(program_);
      fail(ErrorKind::kInternal, "opencl: the driver's compiler refuses a program (", code,
           "): ", log, "\n", source);
    }
    kernel_ = api()->CreateKernel(program_, gpu::kKernelName, &code);
    if (code != kSuccess) api()->ReleaseProgram(program_);
    check(code, "clCreateKernel");
  }
  ~BuiltKernel() override {
    api()->ReleaseKernel(kernel_);
    api()->ReleaseProgram(program_);
  }
  KernelObject kernel() const { return kernel_; }

 private:
  Program program_ = nullptr;
  KernelObject kernel_ = nullptr;
};

class OpenClDriver final : public gpu::Driver {
 public:
  explicit OpenClDriver(DeviceId id)
      : id_(id),
        traits_(traits_of(id)),
        takes_turns_(device_text(id, kDeviceName).find("Oclgrind") != std::string::npos),
        context_(make_context(id)),
        queue_(make_queue(context_, id)) {}

  DeviceProperties properties() const override {
    DeviceProperties p;
    p.name = device_text(id_, kDeviceName);
    p.architecture = device_text(id_, kDeviceVersion);
    p.backend = BackendType::kOpenCl;
    p.total_memory = device_info<Ulong>(id_, kDeviceGlobalMemSize);
    p.processors = static_cast<int>(device_info<Uint>(id_, kDeviceMaxComputeUnits));
    return p;
  }
  const Traits& traits() const override { return traits_; }
  size_t largest_block() const override { return device_info<Ulong>(id_, kDeviceMaxMemAllocSize); }

  void* allocate(size_t bytes) override {
    Int code = kSuccess;
    const Memory memory = api()->CreateBuffer(context_, kMemReadWrite, bytes, nullptr, &code);
    if (code != kSuccess) return nullptr;
    void* address = ::mmap(nullptr, mapped_bytes(bytes), PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
      api()->ReleaseMemObject(memory);
      return nullptr;
    }
    std::unique_lock lock(mutex_);
    blocks_.emplace(reinterpret_cast<uintptr_t>(address), Block{memory, bytes});
    return address;
  }
  void release(void* address, size_t bytes) noexcept override {
    std::unique_lock lock(mutex_);
    const auto at = blocks_.find(reinterpret_cast<uintptr_t>(address));
    // It is kept until the commands that use it have run.
    api()->ReleaseMemObject(at->second.memory);
    ::munmap(address, mapped_bytes(bytes));
    blocks_.erase(at);
  }
  Place place(const void* address) const override {
    const auto value = reinterpret_cast<uintptr_t>(address);
    std::shared_lock lock(mutex_);
    auto after = blocks_.upper_bound(value);
    if (after != blocks_.begin()) {
      const auto& [begin, block] = *std::prev(after);
      if (value - begin < block.bytes) return {block.memory, value - begin};
    }
    fail(ErrorKind::kInternal, "opencl: address ", address, " is not in memory of this device");
  }

  void write(void* to, const void* from, size_t nbytes) override {
    const Place at = place(to);
    const auto own = turn();
    check(api()->EnqueueWriteBuffer(queue_, as_memory(at.block), kTrue, at.offset, nbytes, from, 0,
                                    nullptr, nullptr),
          "clEnqueueWriteBuffer");
  }
  void read(void* to, const void* from, size_t nbytes) override {
    const Place at = place(from);
    const auto own = turn();
    check(api()->EnqueueReadBuffer(queue_, as_memory(at.block), kTrue, at.offset, nbytes, to, 0,
                                   nullptr, nullptr),
          "clEnqueueReadBuffer");
  }
  void copy(void* to, const void* from, size_t nbytes) override {
    const Place source = place(from), target = place(to);
    const auto own = turn();
    check(api()->EnqueueCopyBuffer(queue_, as_memory(source.block), as_memory(target.block),
                                   source.offset, target.offset, nbytes, 0, nullptr, nullptr),
          "clEnqueueCopyBuffer");
  }

  std::shared_ptr<const gpu::CompiledKernel> build(const std::string& text) override {
    std::string source(kPrologue);
    if (traits_.has_double) source += kDoubles;
    return std::make_shared<BuiltKernel>(context_, id_, options_of(traits_), source + text);
  }

  void launch(const Launch& launch) override {
    const KernelObject kernel = static_cast<const BuiltKernel*>(launch.kernel)->kernel();
    Uint position = 0;
    const auto argument = [&](size_t bytes, const void* value) {
      check(api()->SetKernelArg(kernel, position++, bytes, value), "clSetKernelArg");
    };
    for (void* const& block : launch.blocks) argument(sizeof(Memory), &block);
    const size_t bytes = launch.words.size_bytes();
    Memory memory = nullptr;
    if (launch.words_in_memory) {
      Int code = kSuccess;
      memory = api()->CreateBuffer(context_, kMemReadOnly | kMemCopyHostPointer, bytes,
                                   const_cast<int64_t*>(launch.words.data()), &code);
      check(code, "clCreateBuffer");
    }
    const std::shared_ptr<void> released(memory, [](void* words) {
      if (words != nullptr) api()->ReleaseMemObject(as_memory(words));
    });
    if (memory != nullptr) {
      argument(sizeof(void*), &memory);
    } else {
      argument(bytes, launch.words.data());
    }
    const size_t global = launch.groups * launch.group_items;
    const auto own = turn();
    check(api()->EnqueueNDRangeKernel(queue_, kernel, 1, nullptr, &global, &launch.group_items, 0,
                                      nullptr, nullptr),
          "clEnqueueNDRangeKernel");
  }

  void flush() override {
    const auto own = turn();
    check(api()->Flush(queue_), "clFlush");
  }
  void finish() override {
    const auto own = turn();
    check(api()->Finish(queue_), "clFinish");
  }

  std::shared_ptr<void> mark() override {
    Mark mark = nullptr;
    const auto own = turn();
    check(api()->EnqueueMarkerWithWaitList(queue_, 0, nullptr, &mark),
          "clEnqueueMarkerWithWaitList");
    std::shared_ptr<void> shared(
        mark, [](void* event) { api()->ReleaseEvent(static_cast<Mark>(event)); });
    check(api()->Flush(queue_), "clFlush");
    return shared;
  }
  bool is_done(const std::shared_ptr<void>& mark) const override {
    Int status = kComplete;
    check(api()->GetEventInfo(as_mark(mark), kEventCommandExecutionStatus, sizeof status, &status,
                              nullptr),
          "clGetEventInfo");
    return status <= kComplete;  // below: it ended with an error
  }
  void wait(const std::shared_ptr<void>& mark) const override {
    const Mark waited = as_mark(mark);
    const auto own = turn();
    check(api()->WaitForEvents(1, &waited), "clWaitForEvents");
  }
  double elapsed_ms(const std::shared_ptr<void>& begin,
                    const std::shared_ptr<void>& end) const override {
    const auto nanoseconds = [](const std::shared_ptr<void>& mark) {
      Ulong time = 0;
      check(api()->GetEventProfilingInfo(as_mark(mark), kProfilingCommandEnd, sizeof time, &time,
                                         nullptr),
            "clGetEventProfilingInfo");
      return static_cast<double>(time);
    };
    return (nanoseconds(end) - nanoseconds(begin)) * 1e-6;
  }

 private:
  struct Block {
    Memory memory;
    size_t bytes;
  };

  // oclgrind runs what is queued in the thread that asks, and only one may ask at a time.
  std::unique_lock<std::mutex> turn() const {
    return takes_turns_ ? std::unique_lock(turns_) : std::unique_lock<std::mutex>();
  }

  const DeviceId id_;
  const Traits traits_;
  const bool takes_turns_;
  mutable std::mutex turns_;
  const Context context_;
  const Queue queue_;
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, Block> blocks_;  // by address
};

}  // namespace

std::unique_ptr<gpu::Driver> make_driver(DeviceId device) {
  return std::make_unique<OpenClDriver>(device);
}

}  // namespace hologram::opencl
