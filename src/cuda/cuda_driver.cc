// SPDX-License-Identifier: MIT
// See cuda_driver.h.
#include "src/cuda/cuda_driver.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "src/cuda/cublaslt.h"
#include "src/cuda/nvrtc.h"
#include "src/gpu/kernel_text.h"

namespace hologram::cuda {
namespace {

using gpu::Launch;
using gpu::Place;
using gpu::Traits;

constexpr Stream kLegacyStream = nullptr;

constexpr Traits kTraits = {
    .has_double = true, .divides_exactly = true, .parameter_bytes = 4096, .group_items = 1024};

Address as_address(const void* data) { return reinterpret_cast<Address>(data); }
Mark as_mark(const std::shared_ptr<void>& mark) { return static_cast<Mark>(mark.get()); }

int attribute(DeviceId device, int which) {
  int value = 0;
  check(api()->DeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute ", which);
  return value;
}

int architecture_of(DeviceId device) {
  const int found =
      10 * attribute(device, kComputeCapabilityMajor) + attribute(device, kComputeCapabilityMinor);
  if (!supports(found)) {
    fail(ErrorKind::kNotSupported, "cuda: NVRTC ", nvrtc_version() / 1000, ".",
         nvrtc_version() % 1000, " does not compile for this GPU (sm_", found, ")");
  }
  return found;
}

// The primary context of a device, and what became of it: after some errors every call fails.
class Primary {
 public:
  explicit Primary(DeviceId device) : device_(device) {}
  ~Primary() {
    if (context_.load() != nullptr) api()->DevicePrimaryCtxRelease(device_);
  }
  Primary(const Primary&) = delete;
  Primary& operator=(const Primary&) = delete;

  // While it lasts, the context is the calling thread's. What was there before, PyTorch's choice of
  // a GPU, is there again afterwards; a thread that had none keeps this.
  class Current {
   public:
    explicit Current(Context context) {
      code_ = api()->CtxGetCurrent(&before_);
      if (code_ != kSuccess || before_ == context) return;
      code_ = api()->CtxSetCurrent(context);
      changed_ = code_ == kSuccess && before_ != nullptr;
    }
    ~Current() {
      if (changed_) api()->CtxSetCurrent(before_);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    Result code() const { return code_; }

   private:
    Context before_ = nullptr;
    bool changed_ = false;
    Result code_;
  };

  // Runs `call`, which gives a code, in the context; throws as cuda::check() does.
  template <class Call, class... Parts>
  void run(Call&& call, const char* name, const Parts&... asked) {
    expect(invoke(call), name, asked...);
  }
  // The code of `call`, which is run in the context.
  template <class Call>
  Result invoke(Call&& call) {
    if (is_lost_.load(std::memory_order_acquire)) [[unlikely]]
      fail_lost();
    const Current current(context());
    return current.code() == kSuccess ? call() : current.code();
  }
  // Throws where it is an error.
  template <class... Parts>
  void expect(Result code, const char* name, const Parts&... asked) {
    if (code == kSuccess) [[likely]]
      return;
    try {
      check(code, name, asked...);
    } catch (const Error& error) {
      if (is_sticky(code)) lose(error);
      throw;
    }
  }
  // For what is given back: there is nothing to say where the context or the driver is gone.
  template <class Call>
  void quietly(Call&& call) noexcept {
    const Context context = context_.load(std::memory_order_acquire);
    if (is_lost_.load(std::memory_order_acquire) || context == nullptr) return;
    const Current current(context);
    if (current.code() == kSuccess) call();
  }

 private:
  Context context() {
    if (const Context made = context_.load(std::memory_order_acquire)) [[likely]]
      return made;
    std::lock_guard lock(mutex_);
    Context made = context_.load();
    if (made != nullptr) return made;
    check(api()->DevicePrimaryCtxRetain(&made, device_), "cuDevicePrimaryCtxRetain", " of device ",
          device_);
    context_.store(made, std::memory_order_release);
    return made;
  }

  void lose(const Error& error) {
    std::lock_guard lock(mutex_);
    if (is_lost_.load()) return;
    why_lost_ = error.what();
    is_lost_.store(true, std::memory_order_release);
  }
  [[noreturn]] void fail_lost() const {
    fail(ErrorKind::kInternal,
         "cuda: the GPU cannot be used by this process any more, what is on it is lost, and a new "
         "process has to be started; before, ",
         why_lost_);
  }

  const DeviceId device_;
  std::mutex mutex_;
  std::atomic<Context> context_{nullptr};  // from the first call on that needs it
  std::atomic<bool> is_lost_{false};
  std::string why_lost_;
};

// A module with one kernel.
class LoadedKernel final : public gpu::CompiledKernel {
 public:
  LoadedKernel(std::shared_ptr<Primary> primary, const std::string& image, const std::string& text,
               int architecture)
      : primary_(std::move(primary)) {
    primary_->run([&] { return api()->ModuleLoadData(&module_, image.data()); }, "cuModuleLoadData",
                  " of ", image.size(), " bytes for sm_", architecture, " from the text\n", text);
    try {
      primary_->run([&] { return api()->ModuleGetFunction(&function_, module_, gpu::kKernelName); },
                    "cuModuleGetFunction", " of ", gpu::kKernelName, " from the text\n", text);
    } catch (...) {
      unload();
      throw;
    }
  }
  ~LoadedKernel() override { unload(); }
  Function function() const { return function_; }

 private:
  void unload() noexcept {
    primary_->quietly([&] {
      api()->StreamSynchronize(kLegacyStream);  // launches of it may be queued
      api()->ModuleUnload(module_);
    });
  }

  const std::shared_ptr<Primary> primary_;
  Module module_ = nullptr;
  Function function_ = nullptr;
};

// Memory for words that are more than parameters may take. A launch takes the next of it; where it
// is used up, all that was launched is waited for. The host's half is pinned, so that copies of it
// are queued like the launches.
class LongWords {
 public:
  explicit LongWords(Primary& primary) : primary_(primary) {}
  ~LongWords() { release(); }
  LongWords(const LongWords&) = delete;
  LongWords& operator=(const LongWords&) = delete;

  Address put(std::span<const int64_t> words) {
    const size_t bytes = words.size_bytes();
    if (bytes > size_ - used_) {
      primary_.run([] { return api()->StreamSynchronize(kLegacyStream); }, "cuStreamSynchronize",
                   " before memory for words is used again");
      used_ = 0;
      if (bytes > size_) grow(std::max(size_t{1} << 20, 2 * bytes));
    }
    const Address to = device_ + used_;
    char* const from = static_cast<char*>(host_) + used_;
    std::memcpy(from, words.data(), bytes);
    primary_.run([&] { return api()->MemcpyHtoDAsync(to, from, bytes, kLegacyStream); },
                 "cuMemcpyHtoDAsync", " of ", bytes, " bytes of words");
    used_ += (bytes + 15) / 16 * 16;
    used_ = std::min(used_, size_);
    return to;
  }

 private:
  void grow(size_t size) {
    release();
    primary_.run([&] { return api()->MemAllocHost(&host_, size); }, "cuMemAllocHost", " of ", size,
                 " bytes for words");
    primary_.run([&] { return api()->MemAlloc(&device_, size); }, "cuMemAlloc", " of ", size,
                 " bytes for words");
    size_ = size;
  }
  void release() noexcept {
    primary_.quietly([&] {
      if (host_ != nullptr) api()->MemFreeHost(host_);
      if (device_ != 0) api()->MemFree(device_);
    });
    host_ = nullptr;
    device_ = 0;
    size_ = used_ = 0;
  }

  Primary& primary_;
  void* host_ = nullptr;
  Address device_ = 0;
  size_t size_ = 0;
  size_t used_ = 0;
};

class CudaDriver final : public gpu::Driver {
 public:
  explicit CudaDriver(DeviceId id)
      : id_(id),
        architecture_(architecture_of(id)),
        primary_(std::make_shared<Primary>(id)),
        long_words_(*primary_) {}
  ~CudaDriver() override {
    primary_->quietly([&] { products_.close(); });
  }

  DeviceProperties properties() const override {
    DeviceProperties p;
    char name[256] = {};
    check(api()->DeviceGetName(name, sizeof name - 1, id_), "cuDeviceGetName");
    p.name = name;
    p.architecture = "sm_" + std::to_string(architecture_);
    p.backend = BackendType::kCuda;
    p.total_memory = largest_block();
    p.processors = attribute(id_, kMultiprocessorCount);
    p.l2_bytes = static_cast<size_t>(attribute(id_, kL2CacheSize));
    return p;
  }
  const Traits& traits() const override { return kTraits; }
  size_t largest_block() const override {
    size_t bytes = 0;
    check(api()->DeviceTotalMem(&bytes, id_), "cuDeviceTotalMem");
    return bytes;
  }

  void* allocate(size_t bytes) override {
    Address address = 0;
    const Result code = primary_->invoke([&] { return api()->MemAlloc(&address, bytes); });
    if (code == kOutOfMemory) return nullptr;
    primary_->expect(code, "cuMemAlloc", " of ", bytes, " bytes");
    return reinterpret_cast<void*>(address);
  }
  void release(void* address, size_t) noexcept override {
    // It waits for what is queued.
    primary_->quietly([&] { api()->MemFree(as_address(address)); });
  }
  // Kernels take addresses as they are.
  Place place(const void* address) const override { return {const_cast<void*>(address), 0}; }

  void write(void* to, const void* from, size_t nbytes) override {
    primary_->run([&] { return api()->MemcpyHtoD(as_address(to), from, nbytes); }, "cuMemcpyHtoD",
                  " of ", nbytes, " bytes to ", to);
  }
  void read(void* to, const void* from, size_t nbytes) override {
    primary_->run([&] { return api()->MemcpyDtoH(to, as_address(from), nbytes); }, "cuMemcpyDtoH",
                  " of ", nbytes, " bytes from ", from);
  }
  void copy(void* to, const void* from, size_t nbytes) override {
    primary_->run(
        [&] {
          return api()->MemcpyDtoDAsync(as_address(to), as_address(from), nbytes, kLegacyStream);
        },
        "cuMemcpyDtoDAsync", " of ", nbytes, " bytes from ", from, " to ", to);
  }

  std::shared_ptr<const gpu::CompiledKernel> build(const std::string& text) override {
    const Image image = compile(text, architecture_);
    return std::make_shared<LoadedKernel>(primary_, image.bytes, text, architecture_);
  }

  void launch(const Launch& launch) override {
    const Function function = static_cast<const LoadedKernel*>(launch.kernel)->function();
    if (launch.groups > INT_MAX) {
      fail(ErrorKind::kNotSupported, "cuda: a launch of ", launch.groups, " groups; at most ",
           INT_MAX, " are possible");
    }
    // Parameters as the kernel has them: pointers, then words or a pointer to them.
    parameters_.clear();
    for (void* const block : launch.blocks) {
      parameters_.push_back(static_cast<int64_t>(as_address(block)));
    }
    if (launch.words_in_memory) {
      parameters_.push_back(static_cast<int64_t>(long_words_.put(launch.words)));
    } else {
      parameters_.insert(parameters_.end(), launch.words.begin(), launch.words.end());
    }
    size_t bytes = parameters_.size() * sizeof(int64_t);
    void* extra[] = {kParametersAt, parameters_.data(), kParametersSize, &bytes, kParametersEnd};
    const auto groups = static_cast<unsigned>(launch.groups);
    const auto items = static_cast<unsigned>(launch.group_items);
    primary_->run(
        [&] {
          return api()->LaunchKernel(function, groups, 1, 1, items, 1, 1, 0, kLegacyStream, nullptr,
                                     extra);
        },
        "cuLaunchKernel", " of ", groups, " groups of ", items, " items with ", bytes,
        " bytes of parameters");
  }

  std::shared_ptr<const gpu::ProductAlgorithm> product_algorithm(
      const gpu::ProductProblem& problem) override {
    std::shared_ptr<const gpu::ProductAlgorithm> found;
    primary_->run(
        [&] {
          found = products_.algorithm(problem);
          return kSuccess;
        },
        "cuCtxSetCurrent");
    return found;
  }
  void launch(const gpu::ProductLaunch& launch) override {
    primary_->run(
        [&] {
          products_.launch(launch);
          return kSuccess;
        },
        "cuCtxSetCurrent");
  }

  void flush() override {}  // the driver begins at once
  void finish() override {
    primary_->run([] { return api()->StreamSynchronize(kLegacyStream); }, "cuStreamSynchronize");
  }

  std::shared_ptr<void> mark() override {
    Mark mark = nullptr;
    primary_->run([&] { return api()->EventCreate(&mark, 0); }, "cuEventCreate");
    std::shared_ptr<void> shared(mark, [primary = primary_](void* event) {
      primary->quietly([&] { api()->EventDestroy(static_cast<Mark>(event)); });
    });
    primary_->run([&] { return api()->EventRecord(mark, kLegacyStream); }, "cuEventRecord");
    return shared;
  }
  bool is_done(const std::shared_ptr<void>& mark) const override {
    const Result code = primary_->invoke([&] { return api()->EventQuery(as_mark(mark)); });
    if (code == kNotReady) return false;
    primary_->expect(code, "cuEventQuery");
    return true;
  }
  void wait(const std::shared_ptr<void>& mark) const override {
    primary_->run([&] { return api()->EventSynchronize(as_mark(mark)); }, "cuEventSynchronize");
  }
  double elapsed_ms(const std::shared_ptr<void>& begin,
                    const std::shared_ptr<void>& end) const override {
    float ms = 0;
    primary_->run([&] { return api()->EventElapsedTime(&ms, as_mark(begin), as_mark(end)); },
                  "cuEventElapsedTime");
    return static_cast<double>(ms);
  }

 private:
  const DeviceId id_;
  const int architecture_;
  const std::shared_ptr<Primary> primary_;
  LongWords long_words_;
  CublasLt products_;
  std::vector<int64_t> parameters_;  // of the launch that is under way
};

}  // namespace

std::unique_ptr<gpu::Driver> make_driver(DeviceId device) {
  return std::make_unique<CudaDriver>(device);
}

}  // namespace hologram::cuda
