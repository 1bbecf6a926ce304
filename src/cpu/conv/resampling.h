// SPDX-License-Identifier: MIT
// Images whose sizes change: average pooling, adaptive average pooling, interpolation, and the
// gradients of all of these.
#pragma once

#include <array>
#include <cstdint>

#include "hologram/call_ops.h"
#include "hologram/dtype.h"
#include "src/cpu/conv/convolution.h"

namespace hologram {

// From batch x channels x in_size to batch x channels x out_size. The positions are PyTorch's
// (ATen/native/UpSample.h).
struct ResamplingArgs {
  Dtype dtype = Dtype::kFloat32;  // or float64
  Resampling kind = Resampling::windows;
  int64_t batch = 0, channels = 0;
  ConvolutionSizes in_size{1, 1, 1}, out_size{1, 1, 1};
  ConvolutionStrides in_strides, out_strides;
  ConvolutionSizes kernel{1, 1, 1}, stride{1, 1, 1}, padding{};  // of windows
  // Windows: whether padding counts as zeros. Nearest: whether positions are counted in
  // float32, and a scale is ignored where sizes are equal or double. Linear, cubic: whether the
  // corners of both images meet.
  bool flag = false;
  int64_t divisor = 0;             // of windows, instead of their sizes; 0: none
  std::array<double, 3> scales{};  // outputs per input, as a caller gave them; 0: from the sizes
  // The gradient: x has out_size and out_strides, y in_size and in_strides.
  bool is_gradient = false;
  int max_threads = 0;  // 0: num_threads()
};

// Writes y from x. Planes are contiguous, or channels lie side by side in both images. The same
// bits for any number of threads. Error(kNotSupported) for other dtypes; Error(kInvalidArgument)
// for images that lie otherwise, sizes below 1 and operands that are null but have elements.
void resample(const ResamplingArgs& args, const void* x, void* y);

}  // namespace hologram
