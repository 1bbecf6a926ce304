// SPDX-License-Identifier: MIT
// The ways in which a reduction walks through its input.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hologram/reduction.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/reduce/reduce_plan.h"
#include "src/cpu/reduce/reduce_rows.h"

namespace hologram::cpu {

// Elements of results that are gathered at once, where these have few elements each or are few
// beside each other, and of columns that are converted.
inline constexpr int64_t kGathered = 8192;
// The elements of a result that is gathered, at most.
inline constexpr int64_t kMostTurned = 64;

// A reduction that has been checked and is about to run.
struct ReduceJob {
  Reduction op;
  ReduceOptions options;
  const View* in;
  const View* out;
  const View* second = nullptr;  // indices or means
  SettledFold fold;
  ReducePlan plan;
  Nest results;  // the kept dimensions as the outputs have them
  int64_t folded_count;
};

// The input split along the folded dimensions: `pieces` of them, each a range of the innermost
// folded dimension or a group of whole ones. The same for any thread count.
struct Split {
  int64_t inner;   // length of the innermost folded dimension
  int64_t outer;   // how many of those
  int64_t length;  // of a piece within one
  int64_t per_inner;
  int64_t group;  // whole ones in a piece, when per_inner is 1
  int64_t pieces;

  Split(const Nest& folded, int64_t target) {
    inner = folded.ndim > 0 ? folded.size[folded.ndim - 1] : 1;
    outer = folded.count() / inner;
    target = std::max<int64_t>(target, 1);
    per_inner = ceil_div(inner, target);
    length = per_inner > 1 ? target : inner;
    group = per_inner > 1 ? 1 : std::min(outer, std::max<int64_t>(1, target / inner));
    pieces = per_inner > 1 ? outer * per_inner : ceil_div(outer, group);
  }
  bool is_one_stretch() const { return outer == 1 && per_inner == 1; }
};

// Rows: elements of the innermost folded dimension lie closest together. acc[i] takes in output
// first + i.
void fold_rows(const ReduceJob& job, const Split& split, int64_t piece, int64_t first,
               int64_t count, char* acc);

// Whether fold_cols() takes so few columns, whose rows lie row_step apart, as wider rows.
bool is_narrow(const ReduceJob& job, int64_t cols, int64_t row_step);

// Columns, whose elements lie closest together: acc[j] becomes that of column j of `cols`, which
// begin `base` elements into the input, `step` apart. folded: the dimensions that `split` cuts.
void fold_cols(const ReduceJob& job, const Nest& folded, const Split& split, int64_t piece,
               int64_t base, int64_t cols, int64_t step, char* acc);

// Outputs [first, first + n) of few elements each, gathered so that all lie beside each other.
// acc[i] becomes that of output first + i. by_rows: with the bits of rows.
void fold_turned(const ReduceJob& job, bool by_rows, int64_t first, int64_t n, char* acc);

// Rows of `parts` neighbouring parts of each of n results, which lie beside each other, folded as
// columns and then joined. acc[i] becomes that of the i-th result.
void fold_parts(const ReduceJob& job, const Nest& outer, const Split& split, int64_t piece,
                int64_t base, int64_t n, int64_t parts, int64_t step, char* acc);

}  // namespace hologram::cpu
