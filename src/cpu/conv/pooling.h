// SPDX-License-Identifier: MIT
// Max pooling of one to three dimensions, forward and backward.
#pragma once

#include <cstdint>

#include "hologram/dtype.h"
#include "src/cpu/conv/convolution.h"

namespace hologram {

// Windows over contiguous planes, one after another: y[i] is the largest of x[i * stride - padding
// + t * dilation] over the taps t that are inside the plane, of which each window has one at least.
struct MaxPoolArgs {
  Dtype dtype = Dtype::kFloat32;  // or float64
  int64_t planes = 0;             // images times channels
  ConvolutionSizes in_size{1, 1, 1}, out_size{1, 1, 1}, kernel{1, 1, 1};
  ConvolutionSizes stride{1, 1, 1}, padding{}, dilation{1, 1, 1};
  int max_threads = 0;  // 0: num_threads()
};

// The largest of each window and its position in the plane, unless `positions` is null: the first
// among equals, or the last NaN if there is one. Error(kNotSupported) for other dtypes,
// Error(kInvalidArgument) for sizes that make no sense and for windows that lie outside.
void max_pool(const MaxPoolArgs& args, const void* x, void* y, int64_t* positions);

// grad_x: at each position the sum of the gradients of the windows that chose it. Error(kIndex),
// once grad_x is written, where a position is outside of its plane.
void max_pool_backward(const MaxPoolArgs& args, const void* grad_y, const int64_t* positions,
                       void* grad_x);

}  // namespace hologram
