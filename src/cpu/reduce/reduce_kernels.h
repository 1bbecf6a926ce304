// SPDX-License-Identifier: MIT
// The inner loops of reductions: accumulators that rows or columns of contiguous elements are added
// to.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"
#include "hologram/reduction.h"

namespace hologram::cpu {

// What is accumulated; several public reductions share one.
enum class Fold : uint8_t {
  kSum,
  kProd,
  kMin,
  kMax,
  kAny,
  kAll,
  kCountNonzero,
  kSumAbs,
  kSumSquare,
  kSumPower,
  kMinAbs,
  kMaxAbs,
  kMoments,
  kLogSumExp,
  kArgMin,
  kArgMax,
};
inline constexpr int kSharedFolds = 16;
inline constexpr int kFoldCount = kSharedFolds + kReductionCount;
// The accumulation that a reduction shares with no other.
constexpr Fold own_fold(Reduction op) {
  return static_cast<Fold>(kSharedFolds + static_cast<int>(op));
}

// Accumulators. float32 partial sums of some thousand elements are added up in float64, float64
// ones with a compensation.
struct CompensatedSum {
  double sum;
  double error;
};
struct Moments {
  double count;
  double mean;
  double m2;  // sum of squared distances from the mean
};
struct ScaledExpSum {
  double max;
  double sum;  // of exp(x - max)
};
template <class T>
struct Indexed {
  T value;
  int64_t index;  // -1 while there is none
};

struct FoldKernel {
  int acc_size = 0;
  // result[i] = the total of accumulator i, which is a double or a CompensatedSum, divided by
  // `divisor`, which may be 1; null for accumulators that are none.
  void (*totals)(const void* acc, int64_t n, double divisor, void* result) = nullptr;
  // n empty accumulators.
  void (*init)(void* acc, int64_t n) = nullptr;
  // acc[i] takes in the n elements from x + i * stride, whose positions count from `first`.
  void (*rows)(const void* x, int64_t count, int64_t n, int64_t stride, int64_t first, void* acc,
               double p) = nullptr;
  // acc[j], j < cols, takes in x[i * stride + j] for i < n; cols is at most kMaxCols.
  void (*cols)(const void* x, int64_t cols, int64_t n, int64_t stride, int64_t first, void* acc,
               double p) = nullptr;
  // acc[j] becomes what cols() makes of an empty accumulator, for n at most kFewFolded; null for
  // folds that are no faster so.
  void (*few_rows)(const void* x, int64_t cols, int64_t n, int64_t stride, void* acc) = nullptr;
  // result[j], of the type of x, becomes the total that few_rows() and totals() give, or what
  // cols() makes of an empty accumulator that is a result; null for folds that need more.
  void (*few_to_results)(const void* x, int64_t cols, int64_t n, int64_t stride, double divisor,
                         void* result) = nullptr;
  // acc[j] takes in column j of n rows, n at most kTurnedRow, with the bits of rows() on a row of
  // these elements; null where there is no such function.
  void (*turned)(const void* x, int64_t cols, int64_t n, int64_t stride, int64_t first, void* acc,
                 double p) = nullptr;
  // Whether merge() costs no more than some additions.
  bool merges_fast = false;
  // result[i] of n accumulators; null where finish_fold() needs no kernel.
  void (*finish)(const void* acc, int64_t n, void* result) = nullptr;
  // acc[i] takes in x[i], the result of a block of at most kFoldVectors vectors; null for folds
  // that only these kernels compute.
  void (*blocks)(const void* x, int64_t count, void* acc) = nullptr;
  // acc[i] takes in other[i], whose elements come later.
  void (*merge)(void* acc, const void* other, int64_t n) = nullptr;
};
inline constexpr int64_t kMaxCols = 1024;
// Rows of so few elements are turned into columns where there are many of them.
inline constexpr int64_t kTurnedRow = 7;
// Rows that are added up by columns in their own type.
inline constexpr int64_t kFewFolded = 128;

// Vectors whose sum may be formed in their own type: every lane of eight accumulators adds at most
// 32 terms. Vector j of a block is added to accumulator j % 8, the last 4 to 7 to the first four
// and j / 4 * 4 to one; 4 to 7 are added to 0 to 3, then (0 + 1) + (2 + 3); the vectors that are
// left, of which the last may lack lanes, are added to that. Of its lanes the upper half is added
// to the lower one until one is left.
inline constexpr int64_t kFoldVectors = 256;

// The kernel of a fold on contiguous elements of `dtype` (bool as uint8); null members where there
// is none: sums take float32, float64 and int64, the half types nothing.
const FoldKernel& fold_kernel(Isa isa, Fold fold, Dtype dtype);

using FoldTable = FoldKernel[kFoldCount][kDtypeCount];
// Adds the kernels of minima, maxima, their positions, any and all.
void add_order_folds(Isa isa, FoldTable& table);

}  // namespace hologram::cpu
