// SPDX-License-Identifier: MIT
// Sums of rows, and of elements of a row that a table names, a vector at a time.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "hologram/cpu_info.h"
#include "src/cpu/conv/resampling_taps.h"

namespace hologram::cpu {

// The taps of an axis by vectors of outputs: those of vector v and tap k are lanes
// [(v * most + k) * lanes, + lanes).
template <class T>
struct RowTable {
  using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  int64_t outputs = 0, most = 0, lanes = 0;
  std::vector<int64_t> taps;  // of the outputs of each vector, the most
  std::vector<int64_t> base;  // for each vector and tap: where two vectors hold its inputs, or -1
  std::vector<Index> lane;    // the inputs, from the base on
  std::vector<T> weight;      // empty: all are 1
  std::vector<Index> count;   // taps of each output, a vector's side by side; empty: all have most
  std::vector<T> divisor;     // of each output, the same; empty: all are 1
};

template <class T>
RowTable<T> make_row_table(const AxisTaps<T>& axis, int64_t lanes);

// Elements behind a row that its table may read.
inline constexpr int64_t kRowSlack = 32;

template <class T>
struct ResamplingKernel {
  int64_t lanes = 0;
  // to[j] = the sum over r < count of w[r] * rows[r][j], divided by divisor, j < n. w null: all 1.
  void (*combine)(const T* const* rows, const T* w, int64_t count, T divisor, int64_t n,
                  T* to) = nullptr;
  // Outputs of a row from its inputs, also divided by divisor. The row has kRowSlack elements more.
  void (*spread)(const RowTable<T>& table, const T* row, T divisor, T* to) = nullptr;
};

const ResamplingKernel<float>& resampling_kernel(Isa isa, float);
const ResamplingKernel<double>& resampling_kernel(Isa isa, double);

}  // namespace hologram::cpu
