// SPDX-License-Identifier: MIT
// Which inputs the outputs along an axis are made of.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "hologram/call_ops.h"
#include "src/cpu/conv/convolution.h"

namespace hologram::cpu {

// From batch x channels x in_size to batch x channels x out_size. The positions are PyTorch's
// (ATen/native/UpSample.h).
struct ResamplingArgs {
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

// Output i is the sum over its taps k < count[i] of weight times input, divided by divisor[i]; tap
// k of output i is element i * most + k of `input` and `weight`.
template <class T>
struct AxisTaps {
  int64_t inputs = 0, outputs = 0;
  int64_t most = 0;            // taps of an output
  std::vector<int64_t> input;  // 0 where there are fewer taps
  std::vector<T> weight;       // 0 there; empty: all are 1
  std::vector<int64_t> count;
  std::vector<T> divisor;  // empty: all are 1
};

// The taps of an axis, 0 to 2; those of its gradient where args says so.
template <class T>
AxisTaps<T> make_axis_taps(const ResamplingArgs& args, size_t axis);

}  // namespace hologram::cpu
