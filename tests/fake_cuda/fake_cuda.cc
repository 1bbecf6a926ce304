// SPDX-License-Identifier: MIT
// libcuda_fake.so, see fake_cuda.h. Each fake GPU is a driver of OpenCL on the first device that
// the machine's has.
#include "tests/fake_cuda/fake_cuda.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/cuda/cu_api.h"
#include "src/gpu/kernel_text.h"
#include "src/opencl/cl_api.h"
#include "src/opencl/opencl_driver.h"
#include "tests/fake_cuda/fake_text.h"

namespace hologram::cuda {

// A GPU with its primary context, what is in it, and what is queued on its one stream.
struct ContextObject {
  int ordinal = 0;
  std::unique_ptr<gpu::Driver> driver;
  int retained = 0;
  Result broken = kSuccess;
  std::map<Address, size_t> blocks;
  std::map<const char*, size_t> hosts;
  struct Queued {
    std::function<void()> work;
    Module module = nullptr;     // of a launch
    const char* host = nullptr;  // that a copy reads
  };
  std::deque<Queued> queue;
};
struct FunctionObject {
  Module module = nullptr;
};
struct ModuleObject {
  Context context = nullptr;
  fake_cuda::Text text;
  std::shared_ptr<const gpu::CompiledKernel> kernel;
  FunctionObject function;
};
struct EventObject {
  Context context = nullptr;
  bool recorded = false;
  std::shared_ptr<void> mark;
};

}  // namespace hologram::cuda

namespace hologram::fake_cuda {
namespace {

using namespace cuda;

constexpr int kArchitecture = 90;
constexpr size_t kMostQueued = 64;
constexpr size_t kMostGroups = 0x7fffffff;

struct Fault {
  int after = 0;
  Result code = kSuccess;
};

struct State {
  std::mutex mutex;
  bool initialized = false;
  bool ended = false;
  bool executes = true;
  std::vector<std::unique_ptr<ContextObject>> gpus;
  std::set<Module> modules;
  std::set<Mark> events;
  std::map<std::string, Fault> faults;
  std::string complaints;
  long launches = 0;
  std::map<std::string, long, std::less<>> notes;
};

State& state() {
  static State& made = *new State;  // processes end with it in use
  return made;
}

thread_local Context t_current = nullptr;

void* as_pointer(Address address) { return reinterpret_cast<void*>(address); }

Context gpu_of(DeviceId device) {
  const std::vector<std::unique_ptr<ContextObject>>& all = state().gpus;
  const auto at = static_cast<size_t>(device);
  return device >= 0 && at < all.size() ? all[at].get() : nullptr;
}

// What is said of a call that is wrong, and its code.
template <class... Parts>
Result complain(Result code, const Parts&... parts) {
  std::ostringstream text;
  text << "fake cuda: ";
  (text << ... << parts);
  text << '\n';
  State& s = state();
  s.complaints += text.str();
  const char* const log = std::getenv("FAKE_CUDA_LOG");
  std::FILE* const file = log != nullptr ? std::fopen(log, "a") : stderr;
  if (file != nullptr) std::fputs(text.str().c_str(), file);
  if (file != nullptr && file != stderr) std::fclose(file);
  return code;
}

Result fault_of(const std::string& name) {
  const auto at = state().faults.find(name);
  if (at == state().faults.end() || at->second.after-- > 0) return kSuccess;
  const Result code = at->second.code;
  state().faults.erase(at);
  return code;
}

void note_faults(const char* text) {
  std::istringstream all(text);
  for (std::string one; std::getline(all, one, ',');) {
    const size_t first = one.find(':'), second = one.find(':', first + 1);
    if (second == std::string::npos) continue;
    state().faults[one.substr(0, first)] = {std::atoi(&one[first + 1]),
                                            std::atoi(&one[second + 1])};
  }
}

// Runs what is queued.
void drain(Context context) {
  while (!context->queue.empty() && context->broken == kSuccess) {
    const auto next = std::move(context->queue.front());
    context->queue.pop_front();
    next.work();
  }
  if (context->broken != kSuccess) context->queue.clear();
}

void enqueue(Context context, ContextObject::Queued queued) {
  context->queue.push_back(std::move(queued));
  if (context->queue.size() > kMostQueued) drain(context);
}

// Every function: it needs what its kind says, may fail as a test wishes, and tells nothing of
// exceptions.
enum class Needs { kNothing, kInit, kContext };
template <class Body>
Result call(const char* name, Needs needs, Body&& body) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (s.ended) return kDeinitialized;
  if (needs != Needs::kNothing && !s.initialized) {
    return complain(kNotInitialized, name, " before cuInit");
  }
  if (needs == Needs::kContext) {
    if (t_current == nullptr) return complain(kInvalidContext, name, " without a current context");
    if (t_current->retained == 0) {
      return complain(kInvalidContext, name, " in a context that was released");
    }
    if (t_current->broken != kSuccess) return t_current->broken;
  }
  if (const Result code = fault_of(name); code != kSuccess) {
    if (needs == Needs::kContext && is_sticky(code)) t_current->broken = code;
    return code;
  }
  try {
    if constexpr (std::is_invocable_v<Body, Context>) {
      const Result code = body(t_current);
      return code == kSuccess ? t_current->broken : code;
    } else {
      return body();
    }
  } catch (const std::exception& error) {
    return complain(999, name, ": ", error.what());
  }
}

template <class Body>
Result of_device(const char* name, DeviceId device, Body&& body) {
  return call(name, Needs::kInit, [&] {
    ContextObject* const gpu = gpu_of(device);
    if (gpu == nullptr) return complain(kInvalidDevice, name, " of device ", device);
    body(*gpu);
    return Result{kSuccess};
  });
}
template <class Body>
Result of_event(const char* name, Mark event, Body&& body) {
  return call(name, Needs::kContext, [&](Context context) {
    if (!state().events.contains(event) || event->context != context) {
      return complain(kInvalidHandle, name, " of an event that is not of the current context");
    }
    return body(context);
  });
}

// Whether a range lies in a live block.
bool is_live(Context context, Address address, size_t bytes) {
  const auto after = context->blocks.upper_bound(address);
  if (after == context->blocks.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return address - begin < size && bytes <= size - (address - begin);
}
bool is_host(Context context, const char* from, size_t bytes) {
  const auto after = context->hosts.upper_bound(from);
  if (after == context->hosts.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return from + bytes <= begin + size;
}
Result check_range(Context context, const char* name, Address address, size_t bytes) {
  if (is_live(context, address, bytes)) return kSuccess;
  return complain(kInvalidValue, name, " of ", bytes, " bytes at ", as_pointer(address),
                  ", which are not all in one live block");
}

opencl::DeviceId first_device() {
  if (opencl::api() == nullptr) fail(ErrorKind::kInternal, opencl::why_no_api());
  const opencl::Api& cl = *opencl::api();
  opencl::Uint count = 0;
  opencl::check(cl.GetPlatformIDs(0, nullptr, &count), "clGetPlatformIDs");
  std::vector<opencl::Platform> platforms(count);
  opencl::check(cl.GetPlatformIDs(count, platforms.data(), nullptr), "clGetPlatformIDs");
  for (const opencl::Platform platform : platforms) {
    opencl::DeviceId device = nullptr;
    if (cl.GetDeviceIDs(platform, opencl::kDeviceTypeAll, 1, &device, &count) == opencl::kSuccess &&
        count != 0) {
      return device;
    }
  }
  fail(ErrorKind::kInternal, "OpenCL has no device");
}

// Runs a launch whose parameters were checked.
void execute(Context context, const ModuleObject& module, unsigned groups,
             const std::vector<int64_t>& parameters) {
  if (const Result code = fault_of("kernel"); code != kSuccess) {
    context->broken = code;
    return;
  }
  const Text& text = module.text;
  std::vector<void*> blocks;
  std::vector<int64_t> words(parameters.begin() + static_cast<ptrdiff_t>(text.pointers),
                             parameters.end());
  for (size_t k = 0; k < text.pointers; ++k) {
    const auto address = static_cast<Address>(parameters[k]);
    if (!is_live(context, address, 1)) {
      context->broken = complain(kIllegalAddress, "parameter ", k, " of a launch, ",
                                 as_pointer(address), ", is in no live block");
      return;
    }
    const gpu::Place place = context->driver->place(as_pointer(address));
    blocks.push_back(place.block);
    words.push_back(static_cast<int64_t>(place.offset));
  }
  if (!state().executes) return;
  context->driver->launch({.kernel = module.kernel.get(),
                           .blocks = blocks,
                           .words = words,
                           .words_in_memory = text.words_in_memory,
                           .groups = groups,
                           .group_items = text.group_items});
}

Result launch(Context context, Function function, unsigned groups, unsigned items, void** extra) {
  const auto at = std::find_if(state().modules.begin(), state().modules.end(),
                               [&](Module m) { return &m->function == function; });
  if (at == state().modules.end() || (*at)->context != context) {
    return complain(kInvalidHandle, "a launch of a function that is not of the current context");
  }
  const Module module = *at;
  if (extra[0] != kParametersAt || extra[2] != kParametersSize || extra[4] != kParametersEnd) {
    return complain(kInvalidValue, "a launch without parameters");
  }
  const size_t bytes = *static_cast<const size_t*>(extra[3]);
  if (bytes != module->text.parameter_bytes()) {
    return complain(kInvalidValue, "a launch with ", bytes, " bytes of parameters; the kernel has ",
                    module->text.parameter_bytes());
  }
  if (groups == 0 || groups > kMostGroups) {
    return complain(kInvalidValue, "a launch of ", groups, " groups");
  }
  if (items != module->text.group_items) {
    return complain(kLaunchOutOfResources, "a launch of groups of ", items,
                    " items; the kernel's have ", module->text.group_items);
  }
  const auto* const words = static_cast<const int64_t*>(extra[1]);
  ++state().launches;
  enqueue(context, {.work =
                        [context, module, groups,
                         parameters = std::vector<int64_t>(words, words + bytes / 8)] {
                          execute(context, *module, groups, parameters);
                        },
                    .module = module});
  return kSuccess;
}

Result load(Context context, Module* made, const char* image) {
  const std::string header = "fake sm_" + std::to_string(kArchitecture) + "\n";
  if (!std::string_view(image).starts_with(header)) {
    return complain(kInvalidImage, "an image that is not for sm_", kArchitecture);
  }
  auto module = std::make_unique<ModuleObject>();
  module->context = context;
  module->function.module = module.get();
  try {
    module->text = for_opencl(image + header.size(), context->driver->traits().parameter_bytes);
    module->kernel = context->driver->build(module->text.source);
  } catch (const Error& error) {
    return complain(kInvalidPtx, error.what());
  }
  state().modules.insert(module.get());
  *made = module.release();
  return kSuccess;
}

// What is in a context goes with it.
Result release(Context context) {
  if (context->retained == 0) return complain(kInvalidContext, "a context is released twice");
  if (--context->retained != 0) return kSuccess;
  drain(context);
  const auto take = [context](auto& all) {
    return std::erase_if(all, [&](auto* it) {
      const bool is_its = it->context == context;
      if (is_its) delete it;
      return is_its;
    });
  };
  const size_t modules = take(state().modules), events = take(state().events);
  const size_t blocks = context->blocks.size(), hosts = context->hosts.size();
  for (const auto& [address, bytes] : context->blocks) {
    context->driver->release(as_pointer(address), bytes);
  }
  for (const auto& [memory, bytes] : context->hosts) std::free(const_cast<char*>(memory));
  context->blocks.clear();
  context->hosts.clear();
  const bool is_lost = std::exchange(context->broken, kSuccess) != kSuccess;
  if (!is_lost && blocks + hosts + modules + events != 0) {
    complain(kSuccess, "a context is released with ", blocks, " blocks, ", hosts,
             " blocks of pinned memory, ", modules, " modules and ", events, " events live");
  }
  return kSuccess;
}

}  // namespace
}  // namespace hologram::fake_cuda

using namespace hologram::fake_cuda;
using namespace hologram::cuda;

#define FAKE_API extern "C" __attribute__((visibility("default")))

FAKE_API Result cuInit(unsigned flags) {
  return call("cuInit", Needs::kNothing, [&] {
    State& s = state();
    if (flags != 0) return complain(kInvalidValue, "cuInit with flags");
    if (s.initialized) return Result{kSuccess};
    if (const char* faults = std::getenv("FAKE_CUDA_FAIL")) note_faults(faults);
    const char* const wish = std::getenv("FAKE_CUDA_DEVICES");
    const int count = wish != nullptr ? std::atoi(wish) : 1;
    for (int i = 0; i < count; ++i) {
      auto gpu = std::make_unique<ContextObject>();
      gpu->ordinal = i;
      gpu->driver = hologram::opencl::make_driver(first_device());
      s.gpus.push_back(std::move(gpu));
    }
    s.initialized = true;
    std::atexit([] { fake_cuda_end(true); });
    return Result{kSuccess};
  });
}

FAKE_API Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

FAKE_API Result cuGetErrorName(Result code, const char** name) {
  static const std::map<Result, const char*> kNames = {
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
      {kDeinitialized, "CUDA_ERROR_DEINITIALIZED"},
      {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
      {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
      {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kInvalidPtx, "CUDA_ERROR_INVALID_PTX"},
      {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND"},
      {kNotReady, "CUDA_ERROR_NOT_READY"},
      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {kLaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
      {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
  };
  const auto at = kNames.find(code);
  *name = at != kNames.end() ? at->second : nullptr;
  return at != kNames.end() ? kSuccess : kInvalidValue;
}

FAKE_API Result cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", Needs::kInit, [&] {
    *count = static_cast<int>(state().gpus.size());
    return Result{kSuccess};
  });
}
FAKE_API Result cuDeviceGet(DeviceId* device, int ordinal) {
  return call("cuDeviceGet", Needs::kInit, [&] {
    *device = ordinal;
    return gpu_of(ordinal) != nullptr ? Result{kSuccess} : Result{kInvalidDevice};
  });
}
FAKE_API Result cuDeviceGetName(char* name, int length, DeviceId device) {
  return of_device("cuDeviceGetName", device, [&](ContextObject& gpu) {
    std::snprintf(name, static_cast<size_t>(length), "fake GPU %d on %s", device,
                  gpu.driver->properties().name.c_str());
  });
}
FAKE_API Result cuDeviceTotalMem_v2(size_t* bytes, DeviceId device) {
  return of_device("cuDeviceTotalMem_v2", device,
                   [&](ContextObject& gpu) { *bytes = gpu.driver->properties().total_memory; });
}
FAKE_API Result cuDeviceGetAttribute(int* value, int attribute, DeviceId device) {
  return of_device("cuDeviceGetAttribute", device, [&](ContextObject& gpu) {
    switch (attribute) {
      case kMultiprocessorCount:
        *value = gpu.driver->properties().processors;
        break;
      case kComputeCapabilityMajor:
        *value = kArchitecture / 10;
        break;
      case kComputeCapabilityMinor:
        *value = kArchitecture % 10;
        break;
      default:
        *value = 0;
    }
  });
}

FAKE_API Result cuDevicePrimaryCtxRetain(Context* context, DeviceId device) {
  return of_device("cuDevicePrimaryCtxRetain", device, [&](ContextObject& gpu) {
    ++gpu.retained;
    *context = &gpu;
  });
}
FAKE_API Result cuDevicePrimaryCtxRelease_v2(DeviceId device) {
  return call("cuDevicePrimaryCtxRelease_v2", Needs::kInit, [&] {
    return gpu_of(device) != nullptr ? release(gpu_of(device)) : Result{kInvalidDevice};
  });
}
FAKE_API Result cuCtxGetCurrent(Context* context) {
  return call("cuCtxGetCurrent", Needs::kInit, [&] {
    *context = t_current;
    return Result{kSuccess};
  });
}
FAKE_API Result cuCtxSetCurrent(Context context) {
  return call("cuCtxSetCurrent", Needs::kInit, [&] {
    if (context != nullptr && context->retained == 0) {
      return complain(kInvalidContext, "a context that was released is made current");
    }
    t_current = context;
    return Result{kSuccess};
  });
}

FAKE_API Result cuMemAlloc_v2(Address* address, size_t bytes) {
  return call("cuMemAlloc_v2", Needs::kContext, [&](Context context) {
    if (bytes == 0) return complain(kInvalidValue, "cuMemAlloc of no bytes");
    void* const made = context->driver->allocate(bytes);
    if (made == nullptr) return Result{kOutOfMemory};
    *address = reinterpret_cast<Address>(made);
    context->blocks.emplace(*address, bytes);
    return Result{kSuccess};
  });
}
FAKE_API Result cuMemFree_v2(Address address) {
  return call("cuMemFree_v2", Needs::kContext, [&](Context context) {
    drain(context);
    const auto at = context->blocks.find(address);
    if (at == context->blocks.end()) {
      return complain(kInvalidValue, "cuMemFree of ", as_pointer(address),
                      ", which is no live block");
    }
    context->driver->finish();
    context->driver->release(as_pointer(address), at->second);
    context->blocks.erase(at);
    return Result{kSuccess};
  });
}
FAKE_API Result cuMemAllocHost_v2(void** made, size_t bytes) {
  return call("cuMemAllocHost_v2", Needs::kContext, [&](Context context) {
    char* const memory = static_cast<char*>(std::malloc(bytes));
    context->hosts.emplace(memory, bytes);
    *made = memory;
    return Result{kSuccess};
  });
}
FAKE_API Result cuMemFreeHost(void* memory) {
  return call("cuMemFreeHost", Needs::kContext, [&](Context context) {
    const auto at = context->hosts.find(static_cast<char*>(memory));
    if (at == context->hosts.end()) {
      return complain(kInvalidValue, "cuMemFreeHost of memory that is not live");
    }
    for (const auto& queued : context->queue) {
      if (queued.host >= at->first && queued.host < at->first + at->second) {
        complain(kSuccess, "cuMemFreeHost of memory that a queued copy reads");
      }
    }
    drain(context);
    context->hosts.erase(at);
    std::free(memory);
    return Result{kSuccess};
  });
}

FAKE_API Result cuMemcpyHtoD_v2(Address to, const void* from, size_t bytes) {
  return call("cuMemcpyHtoD_v2", Needs::kContext, [&](Context context) {
    drain(context);
    if (context->broken != kSuccess) return context->broken;
    const Result code = check_range(context, "cuMemcpyHtoD", to, bytes);
    if (code == kSuccess) context->driver->write(as_pointer(to), from, bytes);
    return code;
  });
}
FAKE_API Result cuMemcpyDtoH_v2(void* to, Address from, size_t bytes) {
  return call("cuMemcpyDtoH_v2", Needs::kContext, [&](Context context) {
    drain(context);
    if (context->broken != kSuccess) return context->broken;
    const Result code = check_range(context, "cuMemcpyDtoH", from, bytes);
    if (code == kSuccess) context->driver->read(to, as_pointer(from), bytes);
    return code;
  });
}
FAKE_API Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream stream) {
  return call("cuMemcpyHtoDAsync_v2", Needs::kContext, [&](Context context) {
    if (stream != nullptr) return complain(kInvalidHandle, "a copy on a stream that is not known");
    const auto* const host = static_cast<const char*>(from);
    if (!is_host(context, host, bytes)) {
      return complain(kInvalidValue, "a queued copy from memory that is not pinned");
    }
    const Result code = check_range(context, "cuMemcpyHtoDAsync", to, bytes);
    if (code != kSuccess) return code;
    enqueue(context,
            {.work = [=] { context->driver->write(as_pointer(to), host, bytes); }, .host = host});
    return Result{kSuccess};
  });
}
FAKE_API Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream stream) {
  return call("cuMemcpyDtoDAsync_v2", Needs::kContext, [&](Context context) {
    if (stream != nullptr) return complain(kInvalidHandle, "a copy on a stream that is not known");
    Result code = check_range(context, "cuMemcpyDtoDAsync", from, bytes);
    if (code == kSuccess) code = check_range(context, "cuMemcpyDtoDAsync", to, bytes);
    if (code != kSuccess) return code;
    if (to < from + bytes && from < to + bytes) {
      return complain(kInvalidValue, "cuMemcpyDtoDAsync of ranges that overlap");
    }
    enqueue(context,
            {.work = [=] { context->driver->copy(as_pointer(to), as_pointer(from), bytes); }});
    return Result{kSuccess};
  });
}
FAKE_API Result cuStreamSynchronize(Stream stream) {
  return call("cuStreamSynchronize", Needs::kContext, [&](Context context) {
    if (stream != nullptr) return complain(kInvalidHandle, "a stream that is not known");
    drain(context);
    context->driver->finish();
    return Result{kSuccess};
  });
}

FAKE_API Result cuEventCreate(Mark* event, unsigned flags) {
  return call("cuEventCreate", Needs::kContext, [&](Context context) {
    if (flags != 0) return complain(kInvalidValue, "cuEventCreate with flags");
    *event = new EventObject{context, false, nullptr};
    state().events.insert(*event);
    return Result{kSuccess};
  });
}
FAKE_API Result cuEventDestroy_v2(Mark event) {
  return of_event("cuEventDestroy_v2", event, [&](Context) {
    state().events.erase(event);
    delete event;
    return Result{kSuccess};
  });
}
FAKE_API Result cuEventRecord(Mark event, Stream stream) {
  return of_event("cuEventRecord", event, [&](Context context) {
    if (stream != nullptr) return complain(kInvalidHandle, "a stream that is not known");
    event->recorded = true;
    event->mark = nullptr;
    enqueue(context, {.work = [context, event] {
              if (state().events.contains(event)) event->mark = context->driver->mark();
            }});
    return Result{kSuccess};
  });
}
FAKE_API Result cuEventQuery(Mark event) {
  return of_event("cuEventQuery", event, [&](Context context) {
    drain(context);
    const bool done = event->mark == nullptr || context->driver->is_done(event->mark);
    return done ? Result{kSuccess} : Result{kNotReady};
  });
}
FAKE_API Result cuEventSynchronize(Mark event) {
  return of_event("cuEventSynchronize", event, [&](Context context) {
    drain(context);
    if (event->mark != nullptr) context->driver->wait(event->mark);
    return Result{kSuccess};
  });
}
FAKE_API Result cuEventElapsedTime(float* ms, Mark begin, Mark end) {
  return of_event("cuEventElapsedTime", begin, [&](Context context) {
    if (!state().events.contains(end) || !begin->recorded || !end->recorded) {
      return complain(kInvalidHandle, "a time between events that were not recorded");
    }
    for (const Mark mark : {begin, end}) {
      if (mark->mark == nullptr || !context->driver->is_done(mark->mark)) return Result{kNotReady};
    }
    *ms = static_cast<float>(context->driver->elapsed_ms(begin->mark, end->mark));
    return Result{kSuccess};
  });
}

FAKE_API Result cuModuleLoadData(Module* module, const void* image) {
  return call("cuModuleLoadData", Needs::kContext, [&](Context context) {
    return load(context, module, static_cast<const char*>(image));
  });
}
FAKE_API Result cuModuleUnload(Module module) {
  return call("cuModuleUnload", Needs::kContext, [&](Context context) {
    if (!state().modules.contains(module) || module->context != context) {
      return complain(kInvalidHandle, "a module that is not live is unloaded");
    }
    for (const auto& queued : context->queue) {
      if (queued.module == module) complain(kSuccess, "a module is unloaded that a launch needs");
    }
    drain(context);
    context->driver->finish();
    state().modules.erase(module);
    delete module;
    return Result{kSuccess};
  });
}
FAKE_API Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  return call("cuModuleGetFunction", Needs::kContext, [&](Context) {
    if (!state().modules.contains(module)) return complain(kInvalidHandle, "a module is not live");
    if (std::strcmp(name, hologram::gpu::kKernelName) != 0) return Result{kNotFound};
    *function = &module->function;
    return Result{kSuccess};
  });
}
FAKE_API Result cuLaunchKernel(Function function, unsigned groups, unsigned y, unsigned z,
                               unsigned items, unsigned items_y, unsigned items_z, unsigned shared,
                               Stream stream, void** parameters, void** extra) {
  return call("cuLaunchKernel", Needs::kContext, [&](Context context) {
    if (y != 1 || z != 1 || items_y != 1 || items_z != 1 || shared != 0 || stream != nullptr ||
        parameters != nullptr || extra == nullptr) {
      return complain(kInvalidValue, "a launch that the fake does not know");
    }
    return launch(context, function, groups, items, extra);
  });
}

FAKE_API void fake_cuda_fail(const char* name, int after, int code) {
  std::lock_guard lock(state().mutex);
  state().faults[name] = {after, code};
}
FAKE_API long fake_cuda_count(const char* what) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  const std::string_view asked = what;
  if (asked == "launches") return s.launches;
  if (asked == "modules") return static_cast<long>(s.modules.size());
  if (asked == "events") return static_cast<long>(s.events.size());
  if (const auto note = s.notes.find(asked); note != s.notes.end()) return note->second;
  size_t count = 0;
  for (const auto& gpu : s.gpus) {
    if (asked == "blocks") count += gpu->blocks.size();
    if (asked == "hosts") count += gpu->hosts.size();
    if (asked == "contexts") count += gpu->retained != 0 ? 1 : 0;
  }
  return static_cast<long>(count);
}
FAKE_API void fake_cuda_execute(bool yes) {
  std::lock_guard lock(state().mutex);
  state().executes = yes;
}
FAKE_API void fake_cuda_end(bool yes) {
  std::lock_guard lock(state().mutex);
  state().ended = yes;
}
FAKE_API const char* fake_cuda_complaints() {
  thread_local std::vector<char> copy;
  std::lock_guard lock(state().mutex);
  const std::string& all = state().complaints;
  copy.assign(all.c_str(), all.c_str() + all.size() + 1);
  return copy.data();
}

FAKE_API int fake_cuda_enter(const char* name, bool needs_context) {
  return call(name, needs_context ? Needs::kContext : Needs::kNothing,
              [] { return Result{kSuccess}; });
}
FAKE_API void fake_cuda_note(const char* what, long more) {
  std::lock_guard lock(state().mutex);
  state().notes[what] += more;
}
FAKE_API int fake_cuda_complain(int code, const char* text) {
  std::lock_guard lock(state().mutex);
  return complain(code, text);
}
FAKE_API int fake_cuda_enqueue(std::span<const FakeRange> ranges,
                               std::function<void(std::span<char* const>)> work) {
  return call("fake_cuda_enqueue", Needs::kContext, [&](Context context) {
    for (const FakeRange& range : ranges) {
      const Result code = check_range(context, "a product", range.address, range.bytes);
      if (code != kSuccess) return code;
    }
    enqueue(context, {.work = [context, work = std::move(work),
                               all = std::vector<FakeRange>(ranges.begin(), ranges.end())] {
              if (!state().executes) return;
              std::vector<std::vector<char>> copies;
              std::vector<char*> at;
              for (const FakeRange& range : all) {
                std::vector<char>& copy = copies.emplace_back(range.bytes);
                context->driver->read(copy.data(), as_pointer(range.address), range.bytes);
                at.push_back(copy.data());
              }
              work(at);
              for (size_t k = 0; k < all.size(); ++k) {
                if (!all[k].is_written) continue;
                context->driver->write(as_pointer(all[k].address), at[k], all[k].bytes);
              }
            }});
    return Result{kSuccess};
  });
}
