// SPDX-License-Identifier: MIT
// The inner loops of layer norm on rows of float32 or float64.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"

namespace hologram::cpu {

// Rows of n elements; strides count elements from row to row. All of one floating base dtype.
struct NormRows {
  int64_t count;
  int64_t n;
  const void* x;
  int64_t x_stride;
  const void* weight;  // n factors, or null
  const void* bias;    // n terms, or null
  double eps;
  void* out;
  int64_t out_stride;
  void* mean;  // one a row
  void* rstd;
};

struct NormGradRows {
  int64_t count;
  int64_t n;
  const void* grad;
  int64_t grad_stride;
  const void* x;
  int64_t x_stride;
  const void* weight;  // or null
  const void* mean;
  const void* rstd;
  void* grad_in;  // or null
  int64_t grad_in_stride;
  void* grad_weight;  // n sums that the rows are added to, or null
  void* grad_bias;    // n sums that the rows are added to, or null
};

struct NormKernel {
  void (*forward)(const NormRows& rows);
  void (*backward)(const NormGradRows& rows);
};
const NormKernel& norm_kernel(Isa isa, Dtype dtype);

}  // namespace hologram::cpu
