// SPDX-License-Identifier: MIT
// How the columns of a convolution's product are read from its input, a vector at a time.
#pragma once

#include <cstdint>
#include <type_traits>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// Columns are output positions; a panel of them is two vectors. Lanes of a vector that lie within
// a window of two vectors of the input are a segment: lane l reads base + lane[l], where lane[l] is
// l if linear. The position of a tap and of a channel is added to base.
template <class T>
struct ConvSegment {
  using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  static constexpr int kMostLanes = 64 / static_cast<int>(sizeof(T));
  int64_t base = 0;
  uint32_t lanes = 0;  // bit l: lane l belongs to it
  bool linear = true;
  Index lane[kMostLanes] = {};
};

// One panel. Positions are relative to x.
template <class T>
struct ConvColumns {
  const ConvSegment<T>* segments = nullptr;  // of the first vector, then of the second
  int counts[2] = {0, 0};
  const uint32_t* reach = nullptr;  // for each tap the columns for which it is inside the input
};

// What a panel is read from.
template <class T>
struct ConvSource {
  const T* x = nullptr;
  const T* low = nullptr;  // [low, high) may be read
  const T* high = nullptr;
  int64_t channel = 0;  // step
  int64_t channels = 0, taps = 0;
  const int64_t* tap = nullptr;  // the position of each
  bool channels_last = false;  // row p is channel p % channels, tap p / channels, else tap p % taps
};

template <class T>
struct ConvKernel {
  // Rows [begin, end) of the unfolded input: to[(p - begin) * ld + j] for column j, zero outside
  // and where there are fewer columns.
  void (*pack)(const ConvSource<T>& from, const ConvColumns<T>& columns, int64_t begin, int64_t end,
               T* to, int64_t ld) = nullptr;
  // Adds from[c * channel_step + t * tap_step + j] to what column j of channel c < channels and tap
  // t of the source reads, which is writable here.
  void (*unpack)(const ConvSource<T>& to, const ConvColumns<T>& columns, const T* from,
                 int64_t channel_step, int64_t tap_step) = nullptr;
  // to[j] = bias + the sum over taps of w[t] times column j of one channel, j < n.
  void (*depthwise)(const ConvSource<T>& from, const ConvColumns<T>& columns, const T* w, T bias,
                    int64_t n, T* to) = nullptr;
  // Adds to sums[t * cols / 2 + l] the products of g[j] and column j of one channel, j < n, of the
  // lanes l that hold them.
  void (*depthwise_products)(const ConvSource<T>& from, const ConvColumns<T>& columns, const T* g,
                             int64_t n, T* sums) = nullptr;
  // y[j] = the largest of column j of one channel over the taps that reach it, as positions says
  // unless it is null, j < n: the first among equals, or the last NaN.
  void (*max_pool)(const ConvSource<T>& from, const ConvColumns<T>& columns, int64_t n, T* y,
                   int64_t* positions) = nullptr;
};

const ConvKernel<float>& conv_kernel(Isa isa, float);
const ConvKernel<double>& conv_kernel(Isa isa, double);

}  // namespace hologram::cpu
