// SPDX-License-Identifier: MIT
// Depthwise convolution of a plane where it lies, for instruction sets whose loads can leave lanes
// out.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// Output rows [first, first + rows) of a plane of the input: bias plus the sum over the rows and
// columns of the taps, in their order, of weight times element, which is 0 outside the plane.
template <class T>
struct DepthwisePlane {
  const T* x = nullptr;  // the plane; its columns have step 1
  int64_t step = 0;      // from one of its rows to the next
  int64_t height = 0, width = 0;
  int64_t top = 0, left = 0;  // padding
  const T* w = nullptr;
  T bias = T(0);
  int64_t first = 0, rows = 0;
  T* y = nullptr;  // of output row `first`; rows without gaps
  int64_t out_width = 0;
};

template <class T>
using DepthwisePlaneKernel = void (*)(const DepthwisePlane<T>& plane);

// For `size` x `size` taps without gaps, `stride` apart in both directions, or null.
DepthwisePlaneKernel<float> depthwise_plane_kernel(Isa isa, int64_t size, int64_t stride, float);
DepthwisePlaneKernel<double> depthwise_plane_kernel(Isa isa, int64_t size, int64_t stride, double);

}  // namespace hologram::cpu
