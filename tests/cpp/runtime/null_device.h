// SPDX-License-Identifier: MIT
// A device that plans like any other and computes nothing, so that planning is tested by what it
// would run.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>

#include "hologram/device.h"
#include "hologram/error.h"
#include "src/circuit/plan.h"

namespace hologram {

// Its memory is host memory, so the pools serve it, and contents stay what they were.
class NullDevice final : public Device {
 public:
  static constexpr circuit::PlanLimits kLimits{};

  explicit NullDevice(const circuit::PlanLimits& limits = kLimits)
      : Device(BackendType::kCpu, /*host_memory=*/true, &limits) {}

  uint64_t plans_run() const { return plans_run_.load(std::memory_order_relaxed); }
  // Each kernel of a group.
  uint64_t kernels() const { return kernels_.load(std::memory_order_relaxed); }
  // Calls count as one.
  uint64_t instructions() const { return instructions_.load(std::memory_order_relaxed); }

  std::string name() const override { return "null"; }
  DeviceProperties properties() const override {
    DeviceProperties p;
    p.name = "null";
    p.architecture = "none";
    p.backend = kind();
    p.total_memory = system_memory().total;
    return p;
  }
  void* allocate_raw(size_t nbytes) override {
    return ::operator new (nbytes, std::align_val_t{64}, std::nothrow);
  }
  void free_raw(void* data, size_t) noexcept override {
    ::operator delete (data, std::align_val_t{64});
  }
  SystemMemory memory_info() const override { return system_memory(); }
  void copy_from_host(Stream& stream, void* to, const void* from, size_t nbytes) override {
    copy_within(stream, to, from, nbytes);
  }
  void copy_to_host(Stream& stream, void* to, const void* from, size_t nbytes) override {
    copy_within(stream, to, from, nbytes);
  }
  void copy_within(Stream& stream, void* to, const void* from, size_t nbytes) override {
    stream.submit([&] {
      if (nbytes != 0) std::memmove(to, from, nbytes);
    });
  }
  // Checks that what the kernels touch is bound: Error(kInternal) otherwise.
  void run_plan(circuit::Plan& plan, const circuit::Bindings& bindings, int) override {
    for (const circuit::Kernel& kernel : plan.kernels) {
      circuit::for_slots(kernel, [&](uint32_t slot) {
        if (bindings.slots[slot] == nullptr) {
          fail(ErrorKind::kInternal, "null device: a kernel of stage ", kernel.stage,
               " touches slot ", slot, ", which has no memory");
        }
      });
      kernels_.fetch_add(1, std::memory_order_relaxed);
      instructions_.fetch_add(kernel.instrs.size() + size_t{kernel.call != nullptr},
                              std::memory_order_relaxed);
    }
    plans_run_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> plans_run_{0};
  std::atomic<uint64_t> kernels_{0};
  std::atomic<uint64_t> instructions_{0};
};

}  // namespace hologram
