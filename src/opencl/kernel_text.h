// SPDX-License-Identifier: MIT
// Kernels of plans as OpenCL C.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/circuit/plan.h"
#include "src/opencl/primitives.h"

namespace hologram::opencl {

// Work items of a group. Every launch has whole groups; those past the end do nothing.
inline constexpr size_t kGroupItems = 64;

// A work item computes one element of the domain: what the kernel's instructions make of it, in
// order. The text knows types, ranks and which operands lie one element after another, but no size,
// stride, slot or number, so that equal programs over other shapes and memory share it. Arguments
// are, in this order: the elements of the domain (ulong), `layout` (global const long*), for each
// slot its memory and where in it the slot begins (global uchar*, ulong), the numbers.
struct KernelText {
  std::string source;
  std::vector<uint32_t> slots;
  // An immediate as a value of a dtype: a float, a double, or a long for integers and bool.
  struct Number {
    uint32_t index;
    Dtype dtype;
  };
  std::vector<Number> numbers;
  // The sizes of the domain, then for each access its bytes from the slot's begin to the first
  // element, and the bytes of a step in each dimension. Without the strides where the text has no
  // use for them.
  std::vector<int64_t> layout;
  int64_t items = 0;
};

inline constexpr char kKernelName[] = "hologram_kernel";

// Nothing where the device cannot run the kernel: calls, folds, row functions, ops and dtypes that
// it lacks, and rows whose values are read and written in one place, which work items would do in
// any order. `native` is native_ops(traits). Plans for a device with that as PlanLimits::native
// have kernels of what it runs, and kernels of nothing that it runs.
std::optional<KernelText> kernel_text(const circuit::Kernel& kernel, const Traits& traits,
                                      const circuit::NativeOps& native);

// The most slots and numbers of a kernel whose parameters take that many bytes.
int max_arguments(size_t parameter_bytes);

}  // namespace hologram::opencl
