// SPDX-License-Identifier: MIT
// Reductions over any dimensions: tiles of outputs, fixed pieces of input, partial results in
// order.
#include "hologram/reduction.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/reduce/reduce_gather.h"
#include "src/cpu/reduce/reduce_kernels.h"
#include "src/cpu/reduce/reduce_plan.h"
#include "src/cpu/reduce/reduce_rows.h"

namespace hologram {

namespace cpu {
namespace {

// Elements one claim of work covers; inputs beyond it are split, always at the same places.
constexpr int64_t kReduceUnit = 32768;

// Rows are gathered in pieces that are whole blocks of every kernel, so that a row gives the same
// bits for any strides and any dtype that it is converted from.
constexpr int64_t kPiece = 2 * kScratchElements;

// A reduction that has been checked and is about to run.
struct ReduceJob {
  Reduction op;
  ReduceOptions options;
  const View* in;
  const View* out;
  const View* second = nullptr;  // indices or means
  SettledFold fold;
  ReducePlan plan;
  int64_t folded_count;
};

Dtype second_dtype(const ReduceJob& job) {
  return job.fold.has_positions() ? Dtype::kInt64 : job.fold.result;
}

// Outputs [first, first + n) of the kept dimensions in row-major order, from their accumulators.
void finish(const ReduceJob& job, const char* acc, int64_t first, int64_t n) {
  const Nest& kept = job.plan.kept;
  const int64_t row = kept.ndim > 0 ? kept.size[kept.ndim - 1] : 1;
  const int64_t step = kept.ndim > 0 ? kept.stride[1][kept.ndim - 1] : 1;
  const int64_t second_step = kept.ndim > 0 ? kept.stride[2][kept.ndim - 1] : 1;
  alignas(64) char result[1024 * 8];
  alignas(64) char second[1024 * 8];
  while (n > 0) {
    const int64_t length = std::min({n, row - first % row, int64_t{1024}});
    char* to = static_cast<char*>(job.out->data) +
               kept.offset(first, 1) * static_cast<int64_t>(itemsize(job.out->dtype));
    const bool direct = job.out->dtype == job.fold.result && (step == 1 || length == 1);
    void* target = direct ? static_cast<void*>(to) : result;
    finish_fold(job.fold, acc, length, job.folded_count, target,
                job.second != nullptr ? second : nullptr);
    if (!direct) scatter_rows(target, job.fold.result, 1, 0, length, step, job.out->dtype, to);
    if (job.second != nullptr) {
      char* also = static_cast<char*>(job.second->data) +
                   kept.offset(first, 2) * static_cast<int64_t>(itemsize(job.second->dtype));
      scatter_rows(second, second_dtype(job), 1, 0, length, second_step, job.second->dtype, also);
    }
    acc += length * job.fold.kernel->acc_size;
    first += length;
    n -= length;
  }
}

// ---- walking through the input ----

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

// Calls f(offset, first, n) for every stretch of the innermost folded dimension in a piece.
template <class F>
void for_stretches(const Split& split, const Nest& folded, int64_t piece, F&& f) {
  const int64_t step = folded.ndim > 0 ? folded.stride[0][folded.ndim - 1] : 0;
  if (split.per_inner > 1) {
    const int64_t o = piece / split.per_inner, begin = piece % split.per_inner * split.length;
    f(folded.offset(o * split.inner, 0) + begin * step, o * split.inner + begin,
      std::min(split.length, split.inner - begin));
    return;
  }
  const int64_t end = std::min(split.outer, (piece + 1) * split.group);
  for (int64_t o = piece * split.group; o < end; ++o) {
    f(folded.offset(o * split.inner, 0), o * split.inner, split.inner);
  }
}

// Rows: elements of the innermost folded dimension lie closest together. acc[i] takes in output
// first + i.
void fold_rows(const ReduceJob& job, const Split& split, int64_t piece, int64_t first,
               int64_t count, char* acc) {
  const Nest& kept = job.plan.kept;
  const Nest& folded = job.plan.folded;
  const FoldKernel& kernel = *job.fold.kernel;
  const View& in = *job.in;
  const int64_t size = static_cast<int64_t>(itemsize(in.dtype));
  const int64_t step = folded.ndim > 0 ? folded.stride[0][folded.ndim - 1] : 1;
  const int64_t run = kept.ndim > 0 ? kept.size[kept.ndim - 1] : 1;
  const int64_t row_step = kept.ndim > 0 ? kept.stride[0][kept.ndim - 1] : 0;
  const bool direct = step == 1 && in.dtype == job.fold.compute;
  alignas(64) char scratch[kPiece * 8];
  while (count > 0) {
    const int64_t rows = std::min(count, run - first % run);
    const int64_t base = kept.offset(first, 0);
    for_stretches(split, folded, piece, [&](int64_t offset, int64_t position, int64_t n) {
      const char* at = static_cast<const char*>(in.data) + (base + offset) * size;
      if (direct) {
        kernel.rows(at, rows, n, row_step, position, acc, job.options.p);
        return;
      }
      const int64_t take = std::min(n, kPiece);
      const int64_t together = std::max<int64_t>(1, kScratchElements / take);
      const int64_t to_size = static_cast<int64_t>(itemsize(job.fold.compute));
      for (int64_t r = 0; r < rows; r += together) {
        const int64_t here = std::min(together, rows - r);
        for (int64_t i = 0; i < n; i += take) {
          const int64_t length = std::min(take, n - i);
          for (int64_t k = 0; k < length; k += kScratchElements) {
            gather_rows(at + (r * row_step + (i + k) * step) * size, in.dtype, here, row_step,
                        std::min(kScratchElements, length - k), step, job.fold.compute,
                        scratch + k * to_size);
          }
          kernel.rows(scratch, here, length, length, position + i, acc + r * kernel.acc_size,
                      job.options.p);
        }
      }
    });
    acc += rows * kernel.acc_size;
    first += rows;
    count -= rows;
  }
}

// Fewer columns are folded as rows of up to kWideRow.
constexpr int64_t kNarrow = 15, kWideRow = 32;

// Few columns without gaps: several rows are folded as one wide row, then its parts are joined.
void fold_narrow(const ReduceJob& job, const char* at, int64_t cols, int64_t n, char* acc,
                 char* wide) {
  const FoldKernel& kernel = *job.fold.kernel;
  const int64_t size = static_cast<int64_t>(itemsize(job.fold.compute));
  const int64_t together = std::min(n / 4, kWideRow / cols);
  if (together < 2) return kernel.cols(at, cols, n, cols, 0, acc, job.options.p);
  kernel.init(wide, cols * together);
  kernel.cols(at, cols * together, n / together, cols * together, 0, wide, job.options.p);
  for (int64_t i = 0; i < together; ++i) {
    kernel.merge(acc, wide + i * cols * kernel.acc_size, cols);
  }
  const int64_t done = n / together * together;
  kernel.cols(at + done * cols * size, cols, n - done, cols, 0, acc, job.options.p);
}

// Columns: elements of the innermost kept dimension lie closest together. acc[j] becomes that of
// column col + j of the outer-th run of outputs.
void fold_cols(const ReduceJob& job, const Split& split, int64_t piece, int64_t outer, int64_t col,
               int64_t cols, char* acc) {
  const Nest& kept = job.plan.kept;
  const Nest& folded = job.plan.folded;
  const FoldKernel& kernel = *job.fold.kernel;
  const View& in = *job.in;
  const int64_t size = static_cast<int64_t>(itemsize(in.dtype));
  const int64_t row_step = folded.ndim > 0 ? folded.stride[0][folded.ndim - 1] : 0;
  const int64_t run = kept.size[kept.ndim - 1];
  const int64_t step = kept.stride[0][kept.ndim - 1];
  const int64_t base = kept.offset(outer * run + col, 0);
  const bool direct = step == 1 && in.dtype == job.fold.compute;
  const bool is_narrow = row_step == cols && cols <= kNarrow && !job.fold.has_positions();
  alignas(64) char scratch[kScratchElements * 8];
  alignas(64) char wide[kWideRow * sizeof(Moments)];
  if (direct && kernel.few_rows != nullptr && !is_narrow && split.is_one_stretch() &&
      split.inner <= kFewFolded) {
    const char* at = static_cast<const char*>(in.data) + base * size;
    return kernel.few_rows(at, cols, split.inner, row_step, acc);
  }
  kernel.init(acc, cols);
  for_stretches(split, folded, piece, [&](int64_t offset, int64_t position, int64_t n) {
    const char* at = static_cast<const char*>(in.data) + (base + offset) * size;
    if (direct) {
      if (is_narrow) {
        fold_narrow(job, at, cols, n, acc, wide);
      } else {
        kernel.cols(at, cols, n, row_step, position, acc, job.options.p);
      }
      return;
    }
    const int64_t together = std::max<int64_t>(1, kScratchElements / cols);
    for (int64_t r = 0; r < n; r += together) {
      const int64_t here = std::min(together, n - r);
      gather_rows(at + r * row_step * size, in.dtype, here, row_step, cols, step, job.fold.compute,
                  scratch);
      kernel.cols(scratch, cols, here, cols, position + r, acc, job.options.p);
    }
  });
}

// Scratch for accumulators that is on the stack when small.
class Accumulators {
 public:
  explicit Accumulators(int64_t bytes) {
    if (bytes > static_cast<int64_t>(sizeof(stack_))) {
      heap_.reset(new (std::nothrow) char[static_cast<size_t>(bytes)]);
      if (heap_ == nullptr) {
        fail(ErrorKind::kOutOfMemory, "a reduction needs ", bytes, " bytes for partial results");
      }
    }
  }
  char* data() { return heap_ != nullptr ? heap_.get() : stack_; }

 private:
  alignas(64) char stack_[8192];
  std::unique_ptr<char[]> heap_;
};

void run(const ReduceJob& job) {
  const Nest& kept = job.plan.kept;
  const Nest& folded = job.plan.folded;
  const int64_t outputs = kept.count();
  const int64_t acc_size = job.fold.kernel->acc_size;
  const bool by_rows =
      kept.ndim == 0 || (folded.ndim > 0 && std::abs(folded.stride[0][folded.ndim - 1]) <
                                                std::abs(kept.stride[0][kept.ndim - 1]));
  // A tile is `tile` outputs in a row or, by columns, up to `cols` columns of `tile` runs.
  const int64_t run = by_rows ? 1 : kept.size[kept.ndim - 1];
  const int64_t cols = std::min(run, kMaxCols);
  const int64_t col_tiles = ceil_div(run, cols);
  // By columns a piece is at least one block of the kernel: shorter ones cost more in partial
  // results.
  const Split split(folded, by_rows ? kReduceUnit : std::max<int64_t>(128, kReduceUnit / cols));
  const int64_t runs = outputs / run;
  const int64_t tile =
      split.pieces > 1 ? 1
                       : std::clamp<int64_t>(
                             kReduceUnit / std::max<int64_t>(1, cols * job.folded_count), 1, runs);
  const int64_t tiles = ceil_div(runs, tile) * col_tiles;
  const int64_t units = tiles * split.pieces;
  Accumulators partial(split.pieces > 1 ? outputs * split.pieces * acc_size : 0);

  const auto unit = [&](int64_t index) {
    const int64_t piece = index % split.pieces, at = index / split.pieces;
    const int64_t outer = at / col_tiles * tile, col = at % col_tiles * cols;
    const int64_t here = std::min(tile, runs - outer), width = std::min(cols, run - col);
    if (split.pieces > 1) {
      char* acc = partial.data() + (piece * outputs + outer * run + col) * acc_size;
      if (by_rows) {
        job.fold.kernel->init(acc, width);
        fold_rows(job, split, piece, outer, 1, acc);
      } else {
        fold_cols(job, split, piece, outer, col, width, acc);
      }
      return;
    }
    alignas(64) char accs[kMaxCols * sizeof(Moments)];
    if (!by_rows) {
      for (int64_t i = 0; i < here; ++i) {
        fold_cols(job, split, 0, outer + i, col, width, accs);
        finish(job, accs, (outer + i) * run + col, width);
      }
      return;
    }
    for (int64_t i = 0; i < here; i += kMaxCols) {
      const int64_t n = std::min(kMaxCols, here - i);
      job.fold.kernel->init(accs, n);
      fold_rows(job, split, 0, outer + i, n, accs);
      finish(job, accs, outer + i, n);
    }
  };
  parallel_for(units, job.options.max_threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) unit(i);
  });
  if (split.pieces > 1) {
    for (int64_t piece = 1; piece < split.pieces; ++piece) {
      job.fold.kernel->merge(partial.data(), partial.data() + piece * outputs * acc_size, outputs);
    }
    finish(job, partial.data(), 0, outputs);
  }
}

// The value of no elements; throws where there is none.
Scalar empty_value(const char* what, Reduction op, double p) {
  switch (reduction_info(op).empty) {
    case ReductionInfo::kZero:
      if (op == Reduction::norm && (p < 0 || std::isinf(p))) break;
      return 0;
    case ReductionInfo::kOne:
      return 1;
    case ReductionInfo::kNo:
      return false;
    case ReductionInfo::kYes:
      return true;
    case ReductionInfo::kNegativeInfinity:
      return -std::numeric_limits<double>::infinity();
    case ReductionInfo::kNan:
      return std::numeric_limits<double>::quiet_NaN();
    case ReductionInfo::kError:
      break;
  }
  fail(ErrorKind::kInvalidArgument, what,
       " over no elements has no identity; reduce a dimension that has some");
}

void reduce_checked(const char* what, ReduceJob& job, const View& in, std::span<const int> dims,
                    const View& out, const View* second) {
  bool folded[kMaxNest];
  mark_dims(what, dims, in.ndim, folded);
  job.in = &in, job.out = &out, job.second = second;
  job.fold = settle_fold(what, job.op, job.options.p, job.options.correction, in.dtype, out.dtype);
  if (second != nullptr && job.fold.has_positions()) job.fold.result = job.fold.compute;
  job.plan = plan_reduction(what, in, folded, out, second, job.fold.has_positions());
  job.folded_count = job.plan.folded.count();
  if (job.plan.kept.count() == 0) return;
  if (job.folded_count == 0) {
    fill(empty_value(what, job.op, job.options.p), out, job.options.max_threads);
    if (second != nullptr) fill(std::numeric_limits<double>::quiet_NaN(), *second);
    return;
  }
  run(job);
}

}  // namespace
}  // namespace cpu

void reduce(Reduction op, const View& in, std::span<const int> dims, const View& out,
            const ReduceOptions& options) {
  cpu::ReduceJob job{};
  job.op = op;
  job.options = options;
  const std::string_view name = reduction_name(op);
  if (is_positional(op) && dims.size() > 1) {
    fail(ErrorKind::kInvalidArgument, name, " takes one dimension or none, not ", dims.size());
  }
  cpu::reduce_checked(name.data(), job, in, dims, out, nullptr);
}

void reduce_with_index(Reduction op, const View& in, int dim, const View& values,
                       const View& indices, const ReduceOptions& options) {
  if (op != Reduction::amin && op != Reduction::amax) {
    fail(ErrorKind::kInvalidArgument, "reduce_with_index takes amin or amax, not ",
         reduction_name(op));
  }
  cpu::ReduceJob job{};
  job.op = op == Reduction::amin ? Reduction::argmin : Reduction::argmax;
  job.options = options;
  const int dims[1] = {dim};
  cpu::reduce_checked(op == Reduction::amin ? "min" : "max", job, in, dims, values, &indices);
}

void reduce_with_mean(Reduction op, const View& in, std::span<const int> dims, const View& out,
                      const View& mean, const ReduceOptions& options) {
  if (op != Reduction::var && op != Reduction::std) {
    fail(ErrorKind::kInvalidArgument, "reduce_with_mean takes var or std, not ",
         reduction_name(op));
  }
  cpu::ReduceJob job{};
  job.op = op;
  job.options = options;
  cpu::reduce_checked(op == Reduction::var ? "var_mean" : "std_mean", job, in, dims, out, &mean);
}

namespace cpu {

namespace {

constexpr int kMaskDims = 64;

// The dimensions whose bits are set; none: all of them, and results have one element, whatever
// their shape.
class MaskedDims {
 public:
  explicit MaskedDims(uint64_t mask) {
    for (int d = 0; d < kMaskDims; ++d) {
      if ((mask >> d & 1) != 0) dims_[count_++] = d;
    }
  }
  std::span<const int> span() const { return {dims_, count_}; }
  View settled(View result) const {
    if (count_ == 0) result.ndim = 0;
    return result;
  }

 private:
  int dims_[kMaskDims];
  size_t count_ = 0;
};

template <class Call>
ReduceOptions reduce_options(const Call& call, CallThreads threads) {
  ReduceOptions options;
  options.p = options.correction = call.parameter;
  options.max_threads = threads(call.input.numel());
  return options;
}

}  // namespace

void run(const calls::Reduce<>& call, CallThreads threads) {
  const MaskedDims dims(static_cast<uint64_t>(call.dims));
  hologram::reduce(static_cast<Reduction>(call.op), call.input, dims.span(), dims.settled(call.out),
                   reduce_options(call, threads));
}

void run(const calls::ReduceWithIndex<>& call, CallThreads threads) {
  ReduceOptions options;
  options.max_threads = threads(call.input.numel());
  hologram::reduce_with_index(static_cast<Reduction>(call.op), call.input,
                              static_cast<int>(call.dim), call.out, call.indices, options);
}

void run(const calls::ReduceWithMean<>& call, CallThreads threads) {
  const MaskedDims dims(static_cast<uint64_t>(call.dims));
  hologram::reduce_with_mean(static_cast<Reduction>(call.op), call.input, dims.span(),
                             dims.settled(call.out), dims.settled(call.mean),
                             reduce_options(call, threads));
}

}  // namespace cpu

}  // namespace hologram
