// SPDX-License-Identifier: MIT
// What a device with memory of its own does with kernels that it cannot launch: the host runs them
// on copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hologram/device.h"
#include "src/circuit/plan.h"

namespace hologram::internal {

// Consecutive kernels of a plan as work for the CPU device. Bytes that they read are copied to host
// memory, the CPU runs them there, and what they write is copied back, so that one copy each way
// serves all of them.
class HostKernels {
 public:
  // Kernels [begin, end). Copies of them: the plan need not outlive this.
  HostKernels(const circuit::Plan& plan, int begin, int end);
  ~HostKernels();

  // `bindings` are those of the plan, in the device's memory. Called by run_plan(): nothing else
  // may use the bytes meanwhile. Throws what the kernels and the copies throw.
  void run(Device& device, const circuit::Bindings& bindings, int max_threads);

  int kernels() const { return static_cast<int>(plan_->kernels.size()); }
  // That a run copies, to the host and back.
  int64_t copied_bytes() const;
  // Which of them run() was at: what an error is about.
  int running() const { return plan_->running; }
  size_t bytes() const;

 private:
  // The bytes of a slot that the kernels touch.
  struct Range {
    uint32_t slot = 0;
    int64_t begin = 0, end = 0;
    bool reads = false;  // or writes some bytes only
    bool writes = false;
  };
  void touch(uint32_t slot, int64_t begin, int64_t end, bool reads, bool writes);

  std::unique_ptr<circuit::Plan> plan_;
  std::vector<Range> ranges_;  // by slot
};

}  // namespace hologram::internal
