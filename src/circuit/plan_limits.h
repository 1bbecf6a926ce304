// SPDX-License-Identifier: MIT
// PlanLimits: what a device tells the planner about the kernels that it can run.
#pragma once

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>

#include "hologram/call.h"
#include "hologram/dtype.h"
#include "hologram/op_ids.h"

namespace hologram::circuit {

// What a device computes itself where the host computes the rest for it, on copies. It follows from
// the op and the dtypes alone, so that an op has the same bits in every plan.
struct NativeOps {
  uint16_t values = 0;                       // bit d: Dtype(d) may be read, converted and stored
  std::array<uint16_t, kOpIdEnd> rows = {};  // by op; bit d: it may compute in Dtype(d)
  uint32_t folds = 0;                        // bit r: Reduction(r), in any of these dtypes
  bool row_functions = false;                // those of whole rows, as softmax

  static constexpr uint16_t bit(Dtype dtype) {
    return static_cast<uint16_t>(1u << static_cast<int>(dtype));
  }
  bool has(Dtype dtype) const { return (values & bit(dtype)) != 0; }
  bool has(OpId op, Dtype compute) const {
    return (rows[static_cast<size_t>(op)] & bit(compute)) != 0;
  }
};

// A device gives these to its base class (see hologram/device.h) and keeps them as they are for its
// life. The planner reads them and knows nothing else of the device.
struct PlanLimits {
  // Longest row, in bytes, of a kernel with reductions or row functions: elements count as what the
  // widest value in the kernel takes, and at least 4. Longer rows are not recorded.
  int64_t row_bytes = 16384;
  // The same of what the host computes for the device.
  int64_t host_row_bytes = 12288;
  // Values of a block that a kernel may hold at once, beside its operands in memory. A kernel of
  // one record is planned even where it needs more, at most kMaxArity + 2.
  int scratch_slots = 64;
  // Records in one kernel.
  int max_instrs = 64;
  // Slots and numbers that a kernel may take, each counted once, at least kMaxArity + 1.
  int max_arguments = INT_MAX;
  // What a kernel computes is all of these, or none is. Null: the device has
  // all. It is the device's own, and stays what it is.
  const NativeOps* native = nullptr;
  // Whether a kernel may hold one of these and anything else: reductions, row functions (softmax).
  bool fuse_reductions = true;
  bool fuse_row_functions = true;
  // Whether a call with these attributes has a result on which others may work in its kernel, as
  // the activation after a product. Null: what the CPU's functions for the call say.
  bool (*call_result)(uint16_t kind, const uint64_t* attributes, CallResult& result) = nullptr;
  // Whether these others may be reductions and row functions.
  bool fuse_rows_of_calls = true;
  // Whether a call may read what its operand was converted from, where its kind can.
  bool narrow_call_operands = true;
  // Copies of at least that many bytes lose what is written again before anyone reads it. What is
  // left of one is a few kernels.
  int64_t least_trimmed_copy = INT64_MAX;
  // Values of at least that many bytes of which only parts are read, in a few places, are computed
  // there if that is cheap.
  int64_t least_in_parts = INT64_MAX;
  // Places of large arrays, a page or more apart, that a kernel may walk at once where kernels
  // become one for the memory that they all read.
  size_t shared_places = SIZE_MAX;

  int64_t longest_row(bool is_native) const {
    return is_native ? row_bytes : std::min(row_bytes, host_row_bytes);
  }

  bool operator==(const PlanLimits&) const = default;
};

}  // namespace hologram::circuit
