// SPDX-License-Identifier: MIT
// Reductions of strided host memory over any set of dimensions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "hologram/api.h"
#include "hologram/view.h"

namespace hologram {

// The rows of src/ops/reductions.def, which says what each takes, gives and does with no elements.
// The numbers are part of the C ABI.
enum class Reduction : uint8_t {
  sum = 0,
  mean = 1,
  prod = 2,
  amin = 3,
  amax = 4,
  any = 5,
  all = 6,
  logsumexp = 7,
  norm = 8,
  var = 9,
  std = 10,
  argmin = 11,
  argmax = 12,
};
inline constexpr int kReductionCount = 13;

HOLOGRAM_API std::string_view reduction_name(Reduction op);

struct ReduceOptions {
  double p = 2;           // norm
  double correction = 1;  // var, std
  int max_threads = 0;    // 0: num_threads()
};

// out = op over the dimensions `dims` of in. Empty dims means all; a dim may be negative, not given
// twice. out either keeps in's dimensions with size 1 for the reduced ones, or leaves those out.
// sum, mean, prod, norm, var, std and logsumexp convert in to out's dtype first, as PyTorch's
// dtype= does, compute in compute_dtype(out) (integers in int64) and round once at the end; the
// others read in's own dtype and out may have any. argmin and argmax take one dim, or none for
// positions in the row-major order of all of in. in and out must not overlap.
//
// The order of additions depends on shape and strides only: the same bits for any thread count.
// Errors: kIndex for dims, kInvalidArgument for out's shape or an empty reduction without identity,
// kNotSupported for dtypes.
HOLOGRAM_API void reduce(Reduction op, const View& in, std::span<const int> dims, const View& out,
                         const ReduceOptions& options = {});

// Smallest (op amin) or largest (amax) elements along one dim and their positions (int64): the
// first among equals, the first NaN if there is one.
HOLOGRAM_API void reduce_with_index(Reduction op, const View& in, int dim, const View& values,
                                    const View& indices, const ReduceOptions& options = {});

// Variance (op var) or standard deviation (op std) and mean in one pass.
HOLOGRAM_API void reduce_with_mean(Reduction op, const View& in, std::span<const int> dims,
                                   const View& out, const View& mean,
                                   const ReduceOptions& options = {});

// out[.., i, ..] = in[.., 0, ..] + ... + in[.., i, ..] along dim, in out's dtype as sum. out has
// in's shape; it may coincide exactly with in.
HOLOGRAM_API void cumsum(const View& in, int dim, const View& out, int max_threads = 0);

}  // namespace hologram
