// SPDX-License-Identifier: MIT
// The inner loops of softmax and its relatives, on contiguous rows or columns of float32 or
// float64.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"

namespace hologram::cpu {

enum class SoftmaxOp : uint8_t { kSoftmax, kLogSoftmax, kSoftmaxBackward, kLogSoftmaxBackward };

// Three arrays: a is the input or gradient, b the output the backward needs (else unused).
struct SoftmaxArgs {
  const void* a;
  const void* b;
  void* out;
};

struct SoftmaxKernel {
  // `count` rows of n elements; strides[k] elements from one row of operand k to the next.
  void (*rows)(const SoftmaxArgs& args, int64_t count, int64_t n, const int64_t* strides);
  // `count` columns of n elements; strides[k] elements from one element of a column to the next.
  void (*cols)(const SoftmaxArgs& args, int64_t count, int64_t n, const int64_t* strides);
};

const SoftmaxKernel& softmax_kernel(Isa isa, SoftmaxOp op, Dtype dtype);

}  // namespace hologram::cpu
