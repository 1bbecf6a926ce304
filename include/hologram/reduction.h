// SPDX-License-Identifier: MIT
// Reductions of strided host memory over any set of dimensions.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

#include "hologram/api.h"
#include "hologram/view.h"

namespace hologram {

// The rows of hologram/reductions.def. The numbers are part of the C ABI.
enum class Reduction : uint8_t {
#define HOLOGRAM_REDUCTION(name, id, ...) name = id,
#include "hologram/reductions.def"
};

// What a row says; see hologram/reductions.def.
struct ReductionInfo {
  enum Result : uint8_t { kOut, kFloat, kIn, kBool, kIndex };
  enum Empty : uint8_t { kZero, kOne, kNo, kYes, kNegativeInfinity, kNan, kError };

  std::string_view name;
  std::string_view c_name;  // upper case
  Result result;
  Empty empty;
  bool of_complex;  // of complex numbers it is that of both parts
  std::string_view doc;
};

// The words in the columns of the table as values.
namespace reduction_columns {
inline constexpr auto OUT = ReductionInfo::kOut;
inline constexpr auto FLOAT = ReductionInfo::kFloat;
inline constexpr auto IN = ReductionInfo::kIn;
inline constexpr auto BOOL = ReductionInfo::kBool;
inline constexpr auto INDEX = ReductionInfo::kIndex;
inline constexpr auto ZERO = ReductionInfo::kZero;
inline constexpr auto ONE = ReductionInfo::kOne;
inline constexpr auto NO = ReductionInfo::kNo;
inline constexpr auto YES = ReductionInfo::kYes;
inline constexpr auto NEGATIVE_INFINITY = ReductionInfo::kNegativeInfinity;
inline constexpr auto NONE = ReductionInfo::kNan;
inline constexpr auto ERROR = ReductionInfo::kError;
inline constexpr bool PLAIN = false;
inline constexpr bool COMPLEX = true;

inline constexpr ReductionInfo kRows[] = {
#define HOLOGRAM_REDUCTION(name, id, c, inputs, result, empty, traits, python, aten, doc) \
  {#name, #c, result, empty, traits, doc},
#include "hologram/reductions.def"
};
}  // namespace reduction_columns

inline constexpr int kReductionCount = static_cast<int>(std::size(reduction_columns::kRows));

constexpr const ReductionInfo& reduction_info(Reduction op) {
  return reduction_columns::kRows[static_cast<int>(op)];
}
constexpr std::string_view reduction_name(Reduction op) { return reduction_info(op).name; }
#define HOLOGRAM_REDUCTION(row, id, ...) \
  static_assert(reduction_name(Reduction{id}) == #row, "a row stands at its number");
#include "hologram/reductions.def"

// Whether it gives a position.
constexpr bool is_positional(Reduction op) {
  return reduction_info(op).result == ReductionInfo::kIndex;
}

struct ReduceOptions {
  double p = 2;           // norm
  double correction = 1;  // var, std
  int max_threads = 0;    // 0: num_threads()
};

// out = op over the dimensions `dims` of in. Empty dims means all; a dim may be negative, not given
// twice. out either keeps in's dimensions with size 1 for the reduced ones, or leaves those out.
// Rows of result OUT and FLOAT (sum, mean, var, ...) convert in to out's dtype first, as PyTorch's
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
