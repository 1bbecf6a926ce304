// SPDX-License-Identifier: MIT
// Moves pieces of memory: joined along a dimension, taken, put and added by index.
#pragma once

#include <cstdint>

#include "hologram/api.h"
#include "hologram/dtype.h"

namespace hologram {

// --- Joining -----------------------------------------------------------------------------------

// `bytes` bytes for each of the rows of a result, one row after another; null data are zeros.
struct Piece {
  const void* data;
  int64_t bytes;
};

// Each of `rows` rows of out is the row of the first piece, then that of the second, and so on. out
// must not overlap a piece.
HOLOGRAM_API void join(const Piece* pieces, int64_t count, int64_t rows, void* out,
                       int max_threads = 0);

// --- By index ----------------------------------------------------------------------------------

// n positions, int64 or int32, adjacent.
struct Positions {
  const void* data;
  Dtype dtype;
  int64_t n;
};

// Whether all lie in [low, high).
HOLOGRAM_API bool positions_within(const Positions& positions, int64_t low, int64_t high);

// in is [outer, size, inner] and out [outer, n, inner], dense, inner in bytes:
//   out[o, k, :] = in[o, positions[k], :]
// Positions from -size to size - 1; negative ones count from the end. They are not checked.
HOLOGRAM_API void take(const void* in, int64_t outer, int64_t size, int64_t inner,
                       const Positions& positions, void* out, int max_threads = 0);

// out is [outer, size, inner] and values [outer, n, inner], dense elements of the floating dtype or
// int32 or int64:
//   out[o, positions[k], :] += values[o, k, :]
// for k = 0, 1, ... in this order, whatever the number of threads. The half types are added in
// float32 and rounded once. With `mean` the values for one place are divided by how many they are.
// Positions as take; those equal to `skipped` are left out. Errors: kNotSupported for a dtype.
struct AddAtOptions {
  bool mean = false;
  const int64_t* skipped = nullptr;
  int max_threads = 0;
};
HOLOGRAM_API void add_at(Dtype dtype, void* out, int64_t outer, int64_t size, int64_t inner,
                         const Positions& positions, const void* values,
                         const AddAtOptions& options = {});

// out[o, positions[k], :] = values[o, k, :] for k = 0, 1, ... in this order; inner in bytes.
HOLOGRAM_API void put_at(void* out, int64_t outer, int64_t size, int64_t inner,
                         const Positions& positions, const void* values, int max_threads = 0);

// --- By an index of every element --------------------------------------------------------------

// in is [outer, size, inner], index and out are [outer, n, inner], dense; an element has `bytes`
// bytes (1, 2, 4, 8 or 16). False where an index is outside [0, size): what it names is then left
// out, the rest is done.
//   out[o, k, i] = in[o, index[o, k, i], i]
struct GatherShape {
  int64_t outer, size, n, inner;
};
HOLOGRAM_API bool gather(const void* in, int64_t bytes, const GatherShape& shape,
                         const int64_t* index, void* out, int max_threads = 0);

// out is [outer, size, inner], index and values are [outer, n, inner]:
//   out[o, index[o, k, i], i] = values[o, k, i] for k = 0, 1, ... in this order
// With `one` values is a single element.
HOLOGRAM_API bool scatter(void* out, int64_t bytes, const GatherShape& shape, const int64_t* index,
                          const void* values, bool one, int max_threads = 0);

// The same with +=, for float32, float64, int32 and int64. Errors: kNotSupported for a dtype.
HOLOGRAM_API bool scatter_add(Dtype dtype, void* out, const GatherShape& shape,
                              const int64_t* index, const void* values, int max_threads = 0);

// --- Triangles ---------------------------------------------------------------------------------

// out = in, [count, rows, cols] dense elements of `bytes` bytes, with zeros above (upper: below)
// the diagonal `diagonal` places right of the main one. out may be in.
HOLOGRAM_API void triangle(const void* in, int64_t count, int64_t rows, int64_t cols, int64_t bytes,
                           int64_t diagonal, bool upper, void* out, int max_threads = 0);

}  // namespace hologram
