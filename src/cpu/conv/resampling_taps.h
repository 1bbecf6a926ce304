// SPDX-License-Identifier: MIT
// Which inputs the outputs along an axis are made of.
#pragma once

#include <cstdint>
#include <vector>

#include "src/cpu/conv/resampling.h"

namespace hologram::cpu {

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
