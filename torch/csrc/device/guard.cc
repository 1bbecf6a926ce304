// SPDX-License-Identifier: MIT
// What PyTorch asks of a device: its guard (streams, events) and its hooks.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/version.h>

#include "device/generator.h"
#include "device/tensor.h"
#include "hologram/stream.h"

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
#define HOLOGRAM_OVERRIDE_2_14 override
#else
#define HOLOGRAM_OVERRIDE_2_14
#endif

namespace hologram_torch {

at::Allocator* host_allocator();
bool is_pinned_address(const void* pointer);

namespace {

c10::Stream to_torch(const hologram::Stream& stream) {
  return c10::Stream(c10::Stream::UNSAFE,
                     device(static_cast<c10::DeviceIndex>(stream.device().index())), stream.id());
}

hologram::Stream& from_torch(const c10::Stream& stream) {
  try {
    return memory_device(stream.device_index()).stream(stream.id());
  } catch (const std::exception& error) {
    rethrow_as_torch(error, 0);
  }
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device before = getDevice();
    setDevice(d);
    return before;
  }
  c10::Device getDevice() const override { return device(index_of({})); }
  void setDevice(c10::Device d) const override { hologram::set_current_device(index_of(d)); }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    try {
      setDevice(d);
    } catch (const std::exception&) {
      // It was a device before, and devices stay.
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

  // The dtypes that the CPU's kernels convert and compute, for those serve what we do not.
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    auto& has = capability.capability_data.supported_scalar_types;
    has.has_Bool = has.has_Byte = has.has_Char = has.has_Short = has.has_Int = has.has_Long = 1;
    has.has_UInt16 = has.has_UInt32 = has.has_UInt64 = 1;
    has.has_Half = has.has_BFloat16 = has.has_Float = has.has_Double = 1;
    has.has_ComplexHalf = has.has_ComplexFloat = has.has_ComplexDouble = 1;
    has.has_Float8_e4m3fn = has.has_Float8_e4m3fnuz = 1;
    has.has_Float8_e5m2 = has.has_Float8_e5m2fnuz = 1;
    has.has_Float8_e8m0fnu = 1;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
    has.has_BComplex32 = 1;
#endif
    return capability;
  }

  c10::Stream getStream(c10::Device d) const override {
    return to_torch(hologram::current_stream(index_of(d)));
  }
  c10::Stream getDefaultStream(c10::Device d) const override {
    return c10::Stream(c10::Stream::DEFAULT, device(index_of(d)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool high_priority) const override {
    return getNewStream(d, high_priority ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device d, int priority) const override {
    return to_torch(memory_device(index_of(d)).next_pool_stream(priority));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream previous = to_torch(hologram::current_stream(stream.device_index()));
    hologram::set_current_stream(from_torch(stream));
    return previous;
  }
  // An override from 2.14 on; before that PyTorch does not call it.
  void* getStreamNativeHandle(const c10::Stream stream) const HOLOGRAM_OVERRIDE_2_14 {
    return &from_torch(stream);
  }
  bool queryStream(const c10::Stream& stream) const override {
    flush_recorded();
    return from_torch(stream).query();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    flush_recorded();
    from_torch(stream).synchronize();
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    flush_recorded();
    memory_device(index < 0 ? index_of({}) : index).synchronize();
  }
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  bool isStreamCapturing(const c10::Stream&) const override {
    return hologram::is_capturing_graph();
  }
#endif
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    if (*event == nullptr) {
      *event = new hologram::Event(/*timing=*/flag == c10::EventFlag::BACKEND_DEFAULT);
    }
    flush_recorded();  // an event marks work that has run, and when
    as_event(*event).record(from_torch(stream));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<hologram::Event*>(event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    flush_recorded();
    if (event != nullptr) as_event(event).block(from_torch(stream));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || as_event(event).query();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) as_event(event).synchronize();
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    TORCH_CHECK(first != nullptr && second != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    TORCH_CHECK(as_event(first).timing() && as_event(second).timing(),
                "Both events must be created with argument 'enable_timing=True'.");
    return as_event(first).elapsed_ms(as_event(second));
  }

 private:
  static hologram::Event& as_event(void* event) { return *static_cast<hologram::Event*>(event); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    check_index(index);
    hologram::set_current_device(index);
  }
  c10::DeviceIndex getCurrentDevice() const override { return index_of({}); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex before = getCurrentDevice();
    setCurrentDevice(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? getCurrentDevice() : exchangeDevice(index);
  }

  bool isPinnedPtr(const void* pointer) const override { return is_pinned_address(pointer); }
  at::Allocator* getPinnedMemoryAllocator() const override { return host_allocator(); }
  c10::Device getDeviceFromPtr(void*) const override { return device(); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    if (index > 0) check_index(index);
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    if (index > 0) check_index(index);
    return at::make_generator<PhiloxGenerator>();
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    if (!is_host_index(storage.device().index())) {
      grow_storage(*storage.unsafeGetStorageImpl(), nbytes);
      storage.unsafeGetStorageImpl()->set_nbytes(nbytes);
      return;
    }
    storage_bytes(*storage.unsafeGetStorageImpl());  // PyTorch copies what is there
    at::native::resize_bytes_cpu(storage.unsafeGetStorageImpl(), nbytes);
  }
};

struct RegisterHooks {
  RegisterHooks() { at::RegisterPrivateUse1HooksInterface(new Hooks()); }
} g_register_hooks;

// What is recorded keeps its buffers, so no block needs to be kept for a stream.
void record_stream(at::Tensor& self, at::Stream stream) {
  TORCH_CHECK(stream.device_type() == kDeviceType, "record_stream: expected a stream of ",
              self.device(), ", got one of ", stream.device());
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("record_stream", TORCH_FN(hologram_torch::record_stream));
}
