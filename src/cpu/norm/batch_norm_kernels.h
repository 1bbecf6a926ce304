// SPDX-License-Identifier: MIT
// The inner loops of batch norm: runs of one channel, or rows of all channels.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"

namespace hologram::cpu {

// Elements a sum takes in before it goes on in float64; also what the two passes of the moments
// keep in the nearest cache.
inline constexpr int64_t kPiece = 4096;

// Memory of float32 or float64: `count` lines of n adjacent elements, `stride` apart. A line is a
// run of one channel, or a row of n channels.
struct Lines {
  const void* data;
  int64_t stride;
};

// How an element is made, one number for all lines or one for each of n columns:
//   apply: out = (x - shift) * scale + offset
//   grad:  out = ((grad - mean_grad) - (x - shift) * slope) * scale
struct BatchFactors {
  const void* shift;
  const void* scale;
  const void* offset;     // apply
  const void* mean_grad;  // grad
  const void* slope;      // grad
};

// What the moments of channels come to; every array has a number for each.
struct BatchNumbers {
  const double* mean;
  double* invstd;  // of training: holds the sums of squared differences before
  const double* weight;
  const double* bias;
  double* running_mean;
  double* running_var;
  void* shift;  // these three in the compute type, as BatchFactors has them
  void* scale;
  void* offset;
  bool training;
  double count;  // elements of a channel
  double momentum;
  double eps;
};

struct BatchKernel {
  // Of one channel. Adds up to kPiece elements to a mean, a sum of squared differences from it and
  // a count.
  void (*run_moments)(Lines x, int64_t count, int64_t n, double* mean, double* m2, int64_t* seen);
  void (*run_apply)(Lines x, int64_t count, int64_t n, const BatchFactors& one, void* out,
                    int64_t out_stride);
  // sums[0] += grad, sums[1] += grad * (x - shift)
  void (*run_sums)(Lines grad, Lines x, int64_t count, int64_t n, const void* shift, double* sums);
  void (*run_grad)(Lines grad, Lines x, int64_t count, int64_t n, const BatchFactors& one,
                   void* out, int64_t out_stride);
  // The same of n channels, count rows, every array with n elements. A few dozen rows at a time.
  void (*row_moments)(Lines x, int64_t count, int64_t n, double* mean, double* m2, int64_t seen);
  void (*row_apply)(Lines x, int64_t count, int64_t n, const BatchFactors& all, void* out,
                    int64_t out_stride);
  void (*row_sums)(Lines grad, Lines x, int64_t count, int64_t n, const void* shift, double* sum,
                   double* dot);
  void (*row_grad)(Lines grad, Lines x, int64_t count, int64_t n, const BatchFactors& all,
                   void* out, int64_t out_stride);
  // Channels [first, first + n): the running statistics of training, invstd and the factors.
  void (*finish)(const BatchNumbers& numbers, int64_t first, int64_t n);
};
const BatchKernel& batch_kernel(Isa isa, Dtype dtype);

}  // namespace hologram::cpu
