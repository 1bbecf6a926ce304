// SPDX-License-Identifier: MIT
// PlanLimits: what a device tells the planner about the kernels that it can run.
#pragma once

#include <cstdint>

namespace hologram::circuit {

// A device gives these to its base class (see hologram/device.h) and keeps them as they are for its
// life. The planner reads them and knows nothing else of the device.
struct PlanLimits {
  // Longest row, in bytes, of a kernel with reductions or row functions: elements count as what the
  // widest value in the kernel takes, and at least 4. Longer rows are not recorded.
  int64_t row_bytes = 16384;
  // Values of a block that a kernel may hold at once, beside its operands in memory. A kernel of
  // one record is planned even where it needs more, at most kMaxArity + 2.
  int scratch_slots = 64;
  // Records in one kernel.
  int max_instrs = 64;
  // Whether a kernel may hold one of these and anything else: reductions, row functions (softmax),
  // and the elementwise work on the result of a call (the bias and activation after a product).
  bool fuse_reductions = true;
  bool fuse_row_functions = true;
  bool fuse_call_results = true;

  bool operator==(const PlanLimits&) const = default;
};

}  // namespace hologram::circuit
