// SPDX-License-Identifier: MIT
// The null device: plans like any other and computes nothing, so that planning can be tested by
// what it would run.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "hologram/device.h"

namespace hologram {

// Its memory is host memory, so the pools serve it, and contents stay what they were. Not among the
// devices until somebody registers one.
class NullDevice final : public Device {
 public:
  NullDevice() : Device(BackendType::kCpu, /*host_memory=*/true, /*runs_plans=*/true) {}

  uint64_t plans_run() const { return plans_run_.load(std::memory_order_relaxed); }
  // Each kernel of a group.
  uint64_t kernels() const { return kernels_.load(std::memory_order_relaxed); }
  // Calls count as one.
  uint64_t instructions() const { return instructions_.load(std::memory_order_relaxed); }

  std::string name() const override { return "null"; }
  DeviceProperties properties() const override;
  void* allocate_raw(size_t nbytes) override;
  void free_raw(void* data, size_t nbytes) noexcept override;
  SystemMemory memory_info() const override { return system_memory(); }
  void copy_from_host(Stream& stream, void* to, const void* from, size_t nbytes) override;
  void copy_to_host(Stream& stream, void* to, const void* from, size_t nbytes) override;
  void copy_within(Stream& stream, void* to, const void* from, size_t nbytes) override;
  // Checks that what the kernels touch is bound: Error(kInternal) otherwise.
  void run_plan(circuit::Plan& plan, const circuit::Bindings& bindings, int max_threads) override;

 private:
  std::atomic<uint64_t> plans_run_{0};
  std::atomic<uint64_t> kernels_{0};
  std::atomic<uint64_t> instructions_{0};
};

}  // namespace hologram
