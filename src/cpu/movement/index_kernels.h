// SPDX-License-Identifier: MIT
// Kernels that check positions, and take, put and add rows by them.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"

namespace hologram::cpu {

// Positions that are checked, or made offsets, at a time: with what they lead to they stay in the
// first cache.
inline constexpr int64_t kPositionBlock = 1024;

// Rows of `bytes` adjacent bytes in each of some lines. All distances are in bytes.
struct LinesOfRows {
  int64_t lines;
  int64_t from_line, to_line;  // from line to line on either side
  int64_t rows;                // of a line
  int64_t step;                // from row to row on the side that has no places
  int64_t bytes;
};

// Places are byte offsets of rows from the beginning of a line, the same in all lines.
struct IndexKernels {
  // Whether all n positions lie in [low, high).
  bool (*within64)(const int64_t* index, int64_t n, int64_t low, int64_t high) = nullptr;
  bool (*within32)(const int32_t* index, int64_t n, int64_t low, int64_t high) = nullptr;
  // places[i] = step times index[i], from the end, at `size`, where that is negative.
  void (*places64)(const int64_t* index, int64_t n, int64_t size, int64_t step,
                   int64_t* places) = nullptr;
  void (*places32)(const int32_t* index, int64_t n, int64_t size, int64_t step,
                   int64_t* places) = nullptr;
  // The rows at the places, `step` apart.
  void (*take)(const char* from, const int64_t* places, char* to,
               const LinesOfRows& shape) = nullptr;
  // Rows `step` apart, to the places, one after another.
  void (*put)(const char* from, char* to, const int64_t* places,
              const LinesOfRows& shape) = nullptr;
  // Adds rows to those at the places, one after another. `sources` are the places of the rows that
  // are added; null: they are `step` apart.
  using Add = void (*)(const char* from, const int64_t* sources, char* to, const int64_t* places,
                       const LinesOfRows& shape);
  Add add[kDtypeCount] = {};  // of float32, float64, int32 and int64, which wraps
};

const IndexKernels& index_kernels(Isa isa);

inline bool are_within(const IndexKernels& kernels, const int64_t* index, int64_t n, int64_t low,
                       int64_t high) {
  return kernels.within64(index, n, low, high);
}
inline bool are_within(const IndexKernels& kernels, const int32_t* index, int64_t n, int64_t low,
                       int64_t high) {
  return kernels.within32(index, n, low, high);
}
inline void find_places(const IndexKernels& kernels, const int64_t* index, int64_t n, int64_t size,
                        int64_t step, int64_t* places) {
  kernels.places64(index, n, size, step, places);
}
inline void find_places(const IndexKernels& kernels, const int32_t* index, int64_t n, int64_t size,
                        int64_t step, int64_t* places) {
  kernels.places32(index, n, size, step, places);
}

}  // namespace hologram::cpu
