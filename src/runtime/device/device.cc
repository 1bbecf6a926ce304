// SPDX-License-Identifier: MIT
// The registry of devices, their streams, and what a thread has chosen of both.
#include "hologram/device.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "hologram/error.h"
#include "src/runtime/recording/recorder.h"

namespace hologram {
namespace {

constexpr const char* kBackendNames[kBackendCount] = {"cpu", "cuda", "metal", "opencl"};
constexpr int kMaxDevices = 64;

// Devices are added once and never removed, so readers need no lock.
struct Registry {
  std::mutex mutex;
  std::atomic<int> count{0};
  std::array<std::atomic<Device*>, kMaxDevices> devices{};
  std::array<std::atomic<const char*>, kBackendCount> why_unavailable{};
};

Registry& registry() {
  static Registry* instance = new Registry;  // leaked: buffers name their device until the end
  return *instance;
}

constinit std::atomic<void (*)()> g_registrar{nullptr};
std::once_flag g_registered;

// Reads the count after what this build has was registered.
int known_devices() {
  const int count = registry().count.load(std::memory_order_acquire);
  if (count != 0) [[likely]]
    return count;
  if (void (*registrar)() = g_registrar.load()) {
    // A registrar that looks at the registry itself must not wait for its own end.
    thread_local bool registering = false;
    if (!registering) {
      registering = true;
      std::call_once(g_registered, registrar);
      registering = false;
    }
  }
  return registry().count.load(std::memory_order_acquire);
}

Device* find_backend(BackendType backend) {
  const int count = known_devices();
  for (int i = 0; i < count; ++i) {
    Device* d = registry().devices[i].load(std::memory_order_acquire);
    if (d->kind() == backend) return d;
  }
  return nullptr;
}

std::string available_names() {
  std::string names;
  for (const BackendType backend : list_available_backends()) {
    if (!names.empty()) names += ", ";
    names += backend_name(backend);
  }
  return names.empty() ? "none" : names;
}

[[noreturn]] void fail_unavailable(BackendType backend) {
  fail(ErrorKind::kInvalidArgument, "backend '", backend_name(backend),
       "' is not available on this machine: ", why_unavailable(backend_name(backend)),
       "; available: ", available_names());
}

constinit thread_local int t_device = 0;
// The stream id chosen per device.
constinit thread_local int64_t t_streams[kMaxDevices] = {};

}  // namespace

const char* backend_name(BackendType backend) {
  const auto i = static_cast<unsigned>(backend);
  return i < kBackendCount ? kBackendNames[i] : "unknown";
}

BackendType parse_backend(std::string_view name) {
  if (name == "auto") return default_backend();
  for (int i = 0; i < kBackendCount; ++i) {
    if (name != kBackendNames[i]) continue;
    const auto backend = static_cast<BackendType>(i);
    if (is_backend_available(backend)) return backend;
    fail_unavailable(backend);
  }
  fail(ErrorKind::kInvalidArgument, "unknown backend '", name, "'; available: ", available_names(),
       " (or 'auto')");
}

bool is_backend_available(BackendType backend) { return find_backend(backend) != nullptr; }

std::vector<BackendType> list_available_backends() {
  std::vector<BackendType> result;
  for (int i = 0; i < kBackendCount; ++i) {
    const auto backend = static_cast<BackendType>(i);
    if (is_backend_available(backend)) result.push_back(backend);
  }
  return result;
}

std::string why_unavailable(std::string_view backend) {
  for (int i = 0; i < kBackendCount; ++i) {
    if (backend != kBackendNames[i]) continue;
    if (is_backend_available(static_cast<BackendType>(i))) return {};
    const char* const why = registry().why_unavailable[static_cast<size_t>(i)].load();
    if (why != nullptr) return why;
    return std::string("this build has no ") + kBackendNames[i] + " devices";
  }
  return "no backend has this name";
}

BackendType default_backend() {
  if (const char* wish = std::getenv("HOLOGRAM_BACKEND")) {
    for (int i = 0; i < kBackendCount; ++i) {
      const auto backend = static_cast<BackendType>(i);
      if (std::string_view(wish) == kBackendNames[i] && is_backend_available(backend)) {
        return backend;
      }
    }
  }
  return BackendType::kCpu;
}

int register_device(std::unique_ptr<Device> device) {
  if (device == nullptr) {
    fail(ErrorKind::kInvalidArgument, "register_device: the device is null");
  }
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const int index = r.count.load(std::memory_order_relaxed);
  if (index == kMaxDevices) {
    fail(ErrorKind::kState, "register_device: all ", kMaxDevices, " device indices are taken");
  }
  device->index_ = index;
  r.devices[index].store(device.release(), std::memory_order_release);
  r.count.store(index + 1, std::memory_order_release);
  return index;
}

namespace internal {
void set_device_registrar(void (*registrar)()) { g_registrar.store(registrar); }

void note_unavailable(BackendType backend, const char* why) {
  registry().why_unavailable[static_cast<size_t>(backend)].store(why);
}
}  // namespace internal

int device_count() { return known_devices(); }

Device& device(int index) {
  const int count = known_devices();
  if (index < 0 || index >= count) [[unlikely]] {
    fail(ErrorKind::kIndex, "device index ", index, " is out of range: there ",
         count == 1 ? "is 1 device" : "are " + std::to_string(count) + " devices",
         count > 0 ? " (0 to " + std::to_string(count - 1) + ")" : "");
  }
  return *registry().devices[index].load(std::memory_order_acquire);
}

Device& device(BackendType backend) {
  Device* found = find_backend(backend);
  if (found == nullptr) {
    fail_unavailable(backend);
  }
  return *found;
}

int current_device() { return t_device; }

void set_current_device(int index) {
  if (index == t_device) return;
  device(index);  // throws for an index that is not one
  t_device = index;
}

Stream& current_stream(int device_index) {
  Device& d = device(device_index);
  return d.stream(t_streams[device_index]);
}

void set_current_stream(Stream& stream) { t_streams[stream.device().index()] = stream.id(); }

Device::Device(BackendType kind, bool host_memory, const circuit::PlanLimits* limits)
    : kind_(kind), host_memory_(host_memory), plan_limits_(limits) {}

Device::~Device() {
  delete recorder_.load();
  for (std::atomic<Stream*>& stream : streams_) delete stream.load();
}

MemoryStats Device::memory_stats() const { return hologram::memory_stats(); }
void Device::reset_peak_memory_stats() { hologram::reset_peak_memory_stats(); }
void Device::reset_accumulated_memory_stats() { hologram::reset_accumulated_memory_stats(); }
void Device::empty_cache() { hologram::empty_cache(); }

Stream& Device::stream(int64_t id) {
  if (id < 0 || id >= Stream::kPerDevice) [[unlikely]] {
    fail(ErrorKind::kIndex, "stream id ", id, " is out of range: device ", index_, " has ids 0 to ",
         Stream::kPerDevice - 1);
  }
  std::atomic<Stream*>& place = streams_[id];
  Stream* stream = place.load(std::memory_order_acquire);
  if (stream != nullptr) [[likely]]
    return *stream;
  auto* made = new Stream(*this, id, id > Stream::kPoolSize ? -1 : 0);
  if (!place.compare_exchange_strong(stream, made, std::memory_order_acq_rel)) {
    delete made;
    return *stream;
  }
  return *made;
}

Stream& Device::next_pool_stream(int priority) {
  const int urgent = priority < 0 ? 1 : 0;
  const uint32_t turn = next_stream_[urgent].fetch_add(1, std::memory_order_relaxed);
  return stream(1 + urgent * Stream::kPoolSize + static_cast<int>(turn % Stream::kPoolSize));
}

}  // namespace hologram
