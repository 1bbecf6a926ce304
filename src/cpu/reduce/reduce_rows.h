// SPDX-License-Identifier: MIT
// What a reduction accumulates, how accumulators become results, and reductions of contiguous rows.
#pragma once

#include <cstdint>

#include "hologram/reduction.h"
#include "src/cpu/reduce/reduce_kernels.h"

namespace hologram::cpu {

// A reduction whose dtypes are settled.
struct SettledFold {
  Reduction op;
  Fold fold;
  Dtype compute;  // what the kernel reads
  Dtype result;   // what finish_fold() makes; the caller converts it to what is stored
  double p;
  double correction;
  const FoldKernel* kernel;

  bool has_positions() const { return fold == Fold::kArgMin || fold == Fold::kArgMax; }
};

// For elements of dtype `in` and results stored as `out`. Throws Error(kNotSupported), naming
// `what`, where there is no kernel.
SettledFold settle_fold(const char* what, Reduction op, double p, double correction, Dtype in,
                        Dtype out);

// result[i] from the i-th of n accumulators of `count` elements each. `second` may be null: means
// of var and std; for argmin and argmax positions, while result gets the values.
void finish_fold(const SettledFold& fold, const void* acc, int64_t n, int64_t count, void* result,
                 void* second);

// acc[r] takes in row r of `rows` rows of n elements of fold.compute, `stride` elements apart,
// whose positions count from `first`: as the kernel's rows() does, but short ones many at a time.
void fold_rows_of(const SettledFold& fold, const void* x, int64_t rows, int64_t n, int64_t stride,
                  int64_t first, void* acc);

// result[r] = the fold of row r of `rows` rows of cols >= 1 elements of fold.compute, `stride`
// elements apart. one_row: these are all the rows there are, and there is one. The same bits as
// reduce() over the last dimension of contiguous rows, however many rows are given at a time.
void fold_contiguous_rows(const SettledFold& fold, const void* x, int64_t rows, int64_t cols,
                          int64_t stride, bool one_row, void* result);

// Rows that finish_blocks() takes at once.
inline constexpr int64_t kRowsTogether = 64;
// The same from the result of each row, which is one block of `cols` elements.
void finish_blocks(const SettledFold& fold, const void* blocks, int64_t rows, int64_t cols,
                   void* result);

}  // namespace hologram::cpu
