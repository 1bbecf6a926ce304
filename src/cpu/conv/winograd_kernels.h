// SPDX-License-Identifier: MIT
// The transforms of Winograd's convolution F(2 x 2, 3 x 3): A. Lavin and S. Gray, "Fast algorithms
// for convolutional neural networks", 2016.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// A tile of 2 x 2 results has 16 points. Those of a channel's tiles lie side by side, row by row of
// tiles, and the points `point` elements apart; up to a vector more is written behind the last.
inline constexpr int64_t kWinogradPoints = 16;

// Rows of tiles of one channel.
template <class T>
struct WinogradInput {
  // Two rows a row of tiles and two more, `pitch` apart. Each has the even columns, then, from
  // `odd` on, the odd ones; some two vectors behind the last are readable.
  const T* rows = nullptr;
  int64_t pitch = 0, odd = 0;
  int64_t height = 0, width = 0;  // in tiles
  int64_t point = 0;
  T* to = nullptr;
};

// The weights of one output channel, for `channels` channels: element (c, t) at c * channel + t *
// tap; one of the steps is 1.
template <class T>
struct WinogradWeights {
  const T* w = nullptr;
  int64_t channels = 0, channel = 0, tap = 0;
  int64_t point = 0;
  T* to = nullptr;
};

// Rows of tiles of one output channel.
template <class T>
struct WinogradOutput {
  const T* points = nullptr;  // a vector more is readable
  int64_t point = 0;
  int64_t height = 0, width = 0;  // in tiles
  T bias = T(0);
  T* y = nullptr;  // rows without gaps
  int64_t rows = 0, cols = 0;
};

template <class T>
struct WinogradKernel {
  void (*input)(const WinogradInput<T>& tiles) = nullptr;
  void (*weights)(const WinogradWeights<T>& filters) = nullptr;
  void (*output)(const WinogradOutput<T>& tiles) = nullptr;
};

const WinogradKernel<float>& winograd_kernel(Isa isa, float);
const WinogradKernel<double>& winograd_kernel(Isa isa, double);

}  // namespace hologram::cpu
