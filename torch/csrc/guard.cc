// SPDX-License-Identifier: MIT
// What PyTorch asks of a device: its guard (streams, events) and its hooks.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/version.h>

#include <atomic>
#include <chrono>

#include "generator.h"
#include "tensor.h"

namespace hologram_torch {

at::Allocator* host_allocator();

namespace {

using Clock = std::chrono::steady_clock;

// Execution is immediate: a stream is an order in which everything has already happened, so it is
// only an identity. Streams from the pool get identities 1, 2, ...; 0 is the default.
std::atomic<c10::StreamId> g_next_stream{1};
thread_local c10::StreamId t_current_stream = 0;

struct Event {
  Clock::time_point time;
  bool timed;
};

void check_index(c10::Device d) {
  TORCH_CHECK(!d.has_index() || d.index() == 0, "hologram: no device ", d,
              "; there is 1 (hologram:0)");
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device exchangeDevice(c10::Device d) const override {
    check_index(d);
    return device();
  }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device d) const override { check_index(d); }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

  c10::Stream getStream(c10::Device d) const override {
    check_index(d);
    return c10::Stream(c10::Stream::UNSAFE, device(), t_current_stream);
  }
  c10::Stream getDefaultStream(c10::Device d) const override {
    check_index(d);
    return c10::Stream(c10::Stream::DEFAULT, device());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override {
    return getNewStream(d, 0);
  }
  c10::Stream getNewStream(c10::Device d, int) const override {
    check_index(d);
    return c10::Stream(c10::Stream::UNSAFE, device(), g_next_stream.fetch_add(1));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::UNSAFE, device(), std::exchange(t_current_stream, stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const {
    return reinterpret_cast<void*>(static_cast<intptr_t>(stream.id()));
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  bool isStreamCapturing(const c10::Stream&) const override { return false; }
#endif
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

  void record(void** event, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    if (*event == nullptr) {
      *event = new Event{Clock::now(), flag == c10::EventFlag::BACKEND_DEFAULT};
    } else {
      static_cast<Event*>(*event)->time = Clock::now();
    }
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    const auto* a = static_cast<const Event*>(first);
    const auto* b = static_cast<const Event*>(second);
    TORCH_CHECK(a != nullptr && b != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    TORCH_CHECK(a->timed && b->timed,
                "Both events must be created with argument 'enable_timing=True'.");
    return std::chrono::duration<double, std::milli>(b->time - a->time).count();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    check_index(c10::Device(kDeviceType, index));
  }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    setCurrentDevice(index);
    return 0;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }

  bool isPinnedPtr(const void*) const override { return false; }
  at::Allocator* getPinnedMemoryAllocator() const override { return host_allocator(); }
  c10::Device getDeviceFromPtr(void*) const override { return device(); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    check_index(c10::Device(kDeviceType, index));
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    check_index(c10::Device(kDeviceType, index));
    return at::make_generator<PhiloxGenerator>();
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    at::native::resize_bytes_cpu(storage.unsafeGetStorageImpl(), nbytes);
  }
};

struct RegisterHooks {
  RegisterHooks() { at::RegisterPrivateUse1HooksInterface(new Hooks()); }
} g_register_hooks;

// Nothing runs later than its call, so no block needs to be kept for a stream.
void record_stream(at::Tensor& self, at::Stream stream) {
  TORCH_CHECK(stream.device_type() == kDeviceType, "record_stream: expected a stream of ",
              self.device(), ", got one of ", stream.device());
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("record_stream", TORCH_FN(hologram_torch::record_stream));
}
