// SPDX-License-Identifier: MIT
// Settles dtypes and kernels of reductions and turns accumulators into results.
#include "src/cpu/reduce/reduce_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "hologram/error.h"
#include "src/base/dtype_check.h"
#include "src/cpu/elementwise/iteration.h"

namespace hologram::cpu {
namespace {

Fold fold_of(Reduction op, double p) {
  switch (op) {
    case Reduction::sum:
    case Reduction::mean:
      return Fold::kSum;
    case Reduction::prod:
      return Fold::kProd;
    case Reduction::amin:
      return Fold::kMin;
    case Reduction::amax:
      return Fold::kMax;
    case Reduction::any:
      return Fold::kAny;
    case Reduction::all:
      return Fold::kAll;
    case Reduction::logsumexp:
      return Fold::kLogSumExp;
    case Reduction::norm:
      if (p == 0) return Fold::kCountNonzero;
      if (p == 1) return Fold::kSumAbs;
      if (p == 2) return Fold::kSumSquare;
      if (std::isinf(p)) return p > 0 ? Fold::kMaxAbs : Fold::kMinAbs;
      return Fold::kSumPower;
    case Reduction::var:
    case Reduction::std:
      return Fold::kMoments;
    case Reduction::argmin:
      return Fold::kArgMin;
    case Reduction::argmax:
      return Fold::kArgMax;
    default:
      return own_fold(op);
  }
}

template <class T, class Value>
void write(void* to, int64_t n, Value&& value) {
  T* out = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(value(i));
}

// The same of each total.
template <class T, class Of>
void write_totals(const SettledFold& fold, const void* acc, void* to, int64_t n, Of&& of) {
  if (fold.kernel->acc_size == sizeof(CompensatedSum)) {
    const auto* sums = static_cast<const CompensatedSum*>(acc);
    return write<T>(to, n, [&](int64_t i) {
      const CompensatedSum& t = sums[i];
      return of(std::isfinite(t.sum) ? t.sum + t.error : t.sum);
    });
  }
  const auto* sums = static_cast<const double*>(acc);
  write<T>(to, n, [&](int64_t i) { return of(sums[i]); });
}

// result[i] (and second[i]) of n accumulators, in fold.result.
template <class T>
void finish_floats(const SettledFold& fold, const void* acc, int64_t n, double count, T* result,
                   T* second) {
  switch (fold.op) {
    case Reduction::mean:
      return fold.kernel->totals(acc, n, count, result);
    case Reduction::norm:
      if (fold.fold == Fold::kMaxAbs || fold.fold == Fold::kMinAbs) {
        std::memcpy(result, acc, static_cast<size_t>(n) * sizeof(T));
      } else if (fold.fold == Fold::kSumSquare) {
        write_totals<T>(fold, acc, result, n, [](double s) { return std::sqrt(s); });
      } else if (fold.fold == Fold::kSumPower) {
        const double root = 1.0 / fold.p;
        write_totals<T>(fold, acc, result, n, [=](double s) { return std::pow(s, root); });
      } else {
        fold.kernel->totals(acc, n, 1, result);
      }
      return;
    case Reduction::var:
    case Reduction::std: {
      const auto* moments = static_cast<const Moments*>(acc);
      const double divisor = std::max(0.0, count - fold.correction);
      write<T>(result, n, [&](int64_t i) {
        const double var = moments[i].m2 / divisor;
        return fold.op == Reduction::std ? std::sqrt(var) : var;
      });
      if (second != nullptr) write<T>(second, n, [&](int64_t i) { return moments[i].mean; });
      return;
    }
    default:
      if (fold.kernel->totals != nullptr) return fold.kernel->totals(acc, n, 1, result);
      std::memcpy(result, acc, static_cast<size_t>(n) * sizeof(T));
  }
}

template <class T>
void finish_indexed(const void* acc, int64_t n, T* value, int64_t* index) {
  const auto* in = static_cast<const Indexed<T>*>(acc);
  for (int64_t i = 0; i < n; ++i) {
    if (value != nullptr) value[i] = in[i].value;
    index[i] = in[i].index;
  }
}

// Positions: into `result` for argmin and argmax, else values there and positions in `second`.
void finish_positions(const SettledFold& fold, const void* acc, int64_t n, void* result,
                      void* second) {
  void* value = second != nullptr ? result : nullptr;
  auto* index = static_cast<int64_t*>(second != nullptr ? second : result);
  switch (fold.compute) {
    case Dtype::kInt8:
      return finish_indexed(acc, n, static_cast<int8_t*>(value), index);
    case Dtype::kInt16:
      return finish_indexed(acc, n, static_cast<int16_t*>(value), index);
    case Dtype::kInt32:
      return finish_indexed(acc, n, static_cast<int32_t*>(value), index);
    case Dtype::kInt64:
      return finish_indexed(acc, n, static_cast<int64_t*>(value), index);
    case Dtype::kFloat32:
      return finish_indexed(acc, n, static_cast<float*>(value), index);
    case Dtype::kFloat64:
      return finish_indexed(acc, n, static_cast<double*>(value), index);
    default:
      return finish_indexed(acc, n, static_cast<uint8_t*>(value), index);
  }
}

// Rows that are turned into columns at once, and the fewest for which that pays.
constexpr int64_t kTurnedTogether = 256, kLeastTurned = 16;

// to[i * rows + r] = from[r * stride + i].
void turn_rows(char* from, int64_t rows, int64_t n, int64_t stride, int64_t size, char* to) {
  if (stride <= 4) {  // by vectors that take every nth element
    for (int64_t i = 0; i < n; ++i) {
      copy_block({from + i * size, 0, stride}, {to + i * rows * size, 0, 1}, 1, rows, size);
    }
  } else {
    copy_block({from, 1, stride}, {to, rows, 1}, n, rows, size);
  }
}

[[noreturn]] void fail_dtype(const char* what, Dtype in, Dtype out) {
  fail(ErrorKind::kNotSupported, what, " of ", dtype_name(in), " into ", dtype_name(out),
       " is not supported; convert the input first");
}

// What the kernel reads and gives; throws for what there is no kernel for.
void choose_dtypes(const char* what, SettledFold& fold, Dtype in, Dtype out) {
  check_has_kernels(what, in);
  check_has_kernels(what, out);
  if (is_complex(in) || is_complex(out)) fail_dtype(what, in, out);
  switch (reduction_info(fold.op).result) {
    case ReductionInfo::kOut:
      fold.compute = fold.result = is_floating(out) ? compute_dtype(out) : Dtype::kInt64;
      return;
    case ReductionInfo::kFloat:
      if (!is_floating(out)) fail_dtype(what, in, out);
      fold.compute = fold.result = compute_dtype(out);
      return;
    case ReductionInfo::kBool:
      fold.compute = compute_dtype(in);
      fold.result = Dtype::kBool;
      return;
    case ReductionInfo::kIn:
      fold.compute = fold.result = compute_dtype(in);
      return;
    case ReductionInfo::kIndex:
      fold.compute = compute_dtype(in);
      fold.result = Dtype::kInt64;
  }
}

}  // namespace

SettledFold settle_fold(const char* what, Reduction op, double p, double correction, Dtype in,
                        Dtype out) {
  SettledFold fold{};
  fold.op = op, fold.p = p, fold.correction = correction;
  fold.fold = fold_of(op, p);
  choose_dtypes(what, fold, in, out);
  // sum and prod into bool count as PyTorch's: of truth values, not of truncated numbers.
  if (out == Dtype::kBool && fold.fold == Fold::kSum) fold.fold = Fold::kAny;
  if (out == Dtype::kBool && fold.fold == Fold::kProd) fold.fold = Fold::kAll;
  if (out == Dtype::kBool && (fold.fold == Fold::kAny || fold.fold == Fold::kAll)) {
    fold.compute = compute_dtype(in), fold.result = Dtype::kBool;
  }
  fold.kernel = &fold_kernel(current_isa(), fold.fold, fold.compute);
  if (fold.kernel->rows == nullptr) fail_dtype(what, in, out);
  return fold;
}

void finish_fold(const SettledFold& fold, const void* acc, int64_t n, int64_t count, void* result,
                 void* second) {
  if (fold.has_positions()) {
    finish_positions(fold, acc, n, result, second);
  } else if (fold.kernel->finish != nullptr) {
    fold.kernel->finish(acc, n, result);
  } else if (fold.compute == Dtype::kFloat32 && fold.result == Dtype::kFloat32) {
    finish_floats(fold, acc, n, static_cast<double>(count), static_cast<float*>(result),
                  static_cast<float*>(second));
  } else if (fold.compute == Dtype::kFloat64 && fold.result == Dtype::kFloat64) {
    finish_floats(fold, acc, n, static_cast<double>(count), static_cast<double*>(result),
                  static_cast<double*>(second));
  } else {
    // Integer and bool accumulators are results.
    std::memcpy(result, acc, static_cast<size_t>(n) * itemsize(fold.result));
  }
}

void fold_rows_of(const SettledFold& fold, const void* x, int64_t rows, int64_t n, int64_t stride,
                  int64_t first, void* acc) {
  const FoldKernel& kernel = *fold.kernel;
  if (n > kTurnedRow || rows < kLeastTurned || kernel.turned == nullptr) {
    return kernel.rows(x, rows, n, stride, first, acc, fold.p);
  }
  const int64_t size = static_cast<int64_t>(itemsize(fold.compute));
  alignas(64) char columns[kTurnedRow * kTurnedTogether * 8];
  for (int64_t r = 0; r < rows; r += kTurnedTogether) {
    const int64_t here = std::min(kTurnedTogether, rows - r);
    char* const from = const_cast<char*>(static_cast<const char*>(x)) + r * stride * size;
    turn_rows(from, here, n, stride, size, columns);
    kernel.turned(columns, here, n, here, first, static_cast<char*>(acc) + r * kernel.acc_size,
                  fold.p);
  }
}

void fold_contiguous_rows(const SettledFold& fold, const void* x, int64_t rows, int64_t cols,
                          int64_t stride, bool one_row, void* result) {
  alignas(64) char acc[kTurnedTogether * sizeof(Moments)];
  const FoldKernel& kernel = *fold.kernel;
  const char* at = static_cast<const char*>(x);
  char* to = static_cast<char*>(result);
  const int64_t in_size = static_cast<int64_t>(itemsize(fold.compute));
  const int64_t out_size = static_cast<int64_t>(itemsize(fold.result));
  for (int64_t r = 0; r < rows; r += kTurnedTogether) {
    const int64_t n = std::min(kTurnedTogether, rows - r);
    kernel.init(acc, n);
    if (cols == 1 && stride == 1 && !one_row) {
      // reduce() sees rows of one element as columns, which shows in the payload of a NaN.
      kernel.cols(at + r * in_size, n, 1, 0, 0, acc, fold.p);
    } else {
      fold_rows_of(fold, at + r * stride * in_size, n, cols, stride, 0, acc);
    }
    finish_fold(fold, acc, n, cols, to + r * out_size, nullptr);
  }
}

void finish_blocks(const SettledFold& fold, const void* blocks, int64_t rows, int64_t cols,
                   void* result) {
  alignas(64) char acc[kRowsTogether * sizeof(CompensatedSum)];
  fold.kernel->init(acc, rows);
  fold.kernel->blocks(blocks, rows, acc);
  finish_fold(fold, acc, rows, cols, result, nullptr);
}

}  // namespace hologram::cpu
