// SPDX-License-Identifier: MIT
// Depthwise convolution of one plane, from a copy with its padding, and of pixels with channels
// last.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// Rows of the copy hold the columns of a plane by their remainder modulo the stride, `length` each,
// so that what a tap reads for neighbouring outputs lies side by side. What lies up to a vector
// behind the columns of a row may be overwritten by `outside`, which the copy holds there anyway,
// or by the rows that follow.
template <class T>
struct DepthwiseRows {
  const T* x = nullptr;  // the first element of the first row
  int64_t step = 0;      // to the next
  int64_t rows = 0;
  int64_t width = 0, stride = 1, padding = 0, length = 0;
  T outside = T(0);  // what windows find beyond the plane
};

// Output rows from a copy; a vector more than the copy holds may be read.
template <class T>
struct DepthwiseBand {
  const T* copy = nullptr;
  int64_t row = 0;  // elements of the copy from what one output row reads to the next
  const int64_t* tap = nullptr;
  const T* w = nullptr;
  int64_t taps = 0;
  T bias = T(0);
  int64_t rows = 0, width = 0;
  T* y = nullptr;  // rows without gaps
};

// Channels [first, first + channels) of outputs along a row, whose channels lie side by side. What
// tap t reads for channel 0 of the first output is at x[t], for the next `step` elements further;
// its weights are at w[t].
template <class T>
struct DepthwisePixels {
  int64_t first = 0, channels = 0, count = 0, taps = 0;
  const T* const* x = nullptr;
  const T* const* w = nullptr;
  int64_t step = 0;
  const T* bias = nullptr;  // or null
  T* y = nullptr;
  int64_t y_step = 0;
};

template <class T>
struct DepthwiseKernel {
  int64_t lanes = 0;
  // Makes rows of the copy, which lie `pitch` apart. Their padding is the caller's, and stays.
  void (*spread)(const DepthwiseRows<T>& rows, T* to, int64_t pitch) = nullptr;
  void (*band)(const DepthwiseBand<T>& band) = nullptr;
  // The largest of what the taps read, the first among equals or the last NaN; w and bias are
  // unused.
  void (*largest)(const DepthwiseBand<T>& band) = nullptr;
  void (*pixels)(const DepthwisePixels<T>& row) = nullptr;
};

const DepthwiseKernel<float>& depthwise_kernel(Isa isa, float);
const DepthwiseKernel<double>& depthwise_kernel(Isa isa, double);

}  // namespace hologram::cpu
