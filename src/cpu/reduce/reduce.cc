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
#include "src/cpu/reduce/reduce_walk.h"

namespace hologram {

namespace cpu {
namespace {

// Elements one claim of work covers; inputs beyond it are split, always at the same places.
constexpr int64_t kReduceUnit = 32768;

// Fewer neighbouring results are gathered where they have few elements.
constexpr int64_t kShortRun = 32;
// Columns that are converted at once, so that many rows of them fit.
constexpr int64_t kConvertedCols = 512;
// Parts of a result that are folded as columns of their own and joined at the end: the most parts
// of a result, and the fewest elements of each part.
constexpr int64_t kMostParts = 512, kLeastPartRows = 16;

Dtype second_dtype(const ReduceJob& job) {
  return job.fold.has_positions() ? Dtype::kInt64 : job.fold.result;
}

// Writes n contiguous values to outputs [first, first + n) of operand k, whole runs of them at
// once.
void store(const ReduceJob& job, const char* values, Dtype dtype, int64_t first, int64_t n,
           const View& out, int k) {
  const Nest& nest = job.results;
  const int last = nest.ndim - 1;
  const int64_t row = last >= 0 ? nest.size[last] : 1;
  const int64_t step = last >= 0 ? nest.stride[k][last] : 1;
  const int64_t rows = last > 0 ? nest.size[last - 1] : 1;
  const int64_t row_step = last > 0 ? nest.stride[k][last - 1] : 0;
  const int64_t from_size = static_cast<int64_t>(itemsize(dtype));
  const int64_t to_size = static_cast<int64_t>(itemsize(out.dtype));
  while (n > 0) {
    int64_t together = 1, length = std::min(n, row - first % row);
    if (length == row) together = std::min(n / row, rows - first / row % rows);
    scatter_rows(values, dtype, together, row_step, length, step, out.dtype,
                 static_cast<char*>(out.data) + nest.offset(first, k) * to_size);
    length *= together;
    values += length * from_size;
    first += length;
    n -= length;
  }
}

// Outputs [first, first + n) of the kept dimensions in row-major order, from their accumulators.
void finish(const ReduceJob& job, const char* acc, int64_t first, int64_t n) {
  const Nest& nest = job.results;
  const int last = nest.ndim - 1;
  const int64_t row = last >= 0 ? nest.size[last] : 1;
  const bool is_dense =
      job.out->dtype == job.fold.result && (last < 0 || nest.stride[1][last] == 1);
  alignas(64) char result[kMaxCols * 8];
  alignas(64) char second[kMaxCols * 8];
  while (n > 0) {
    const int64_t length = std::min(n, kMaxCols);
    const bool direct = is_dense && first % row + length <= row;
    char* const target =
        direct ? static_cast<char*>(job.out->data) +
                     nest.offset(first, 1) * static_cast<int64_t>(itemsize(job.out->dtype))
               : result;
    finish_fold(job.fold, acc, length, job.folded_count, target,
                job.second != nullptr ? second : nullptr);
    if (!direct) store(job, result, job.fold.result, first, length, *job.out, 1);
    if (job.second != nullptr) {
      store(job, second, second_dtype(job), first, length, *job.second, 2);
    }
    acc += length * job.fold.kernel->acc_size;
    first += length;
    n -= length;
  }
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

// How outputs are computed.
enum class Way : uint8_t {
  kRows,     // each from its own row
  kColumns,  // neighbours row by row
  kTurned,   // see fold_turned()
  kParts,    // see fold_parts()
};

// The work on a reduction, cut into units: tiles of outputs, and for each tile pieces of the input.
// The shape, strides and dtypes alone decide.
class ReduceWork {
 public:
  explicit ReduceWork(const ReduceJob& job)
      : job_(job),
        kept_(job.plan.kept),
        folded_(job.plan.folded),
        outputs_(kept_.count()),
        run_(kept_.ndim > 0 ? kept_.size[kept_.ndim - 1] : 1),
        runs_(outputs_ / run_),
        by_rows_(kept_.ndim == 0 ||
                 (folded_.ndim > 0 && std::abs(folded_.stride[0][folded_.ndim - 1]) <
                                          std::abs(kept_.stride[0][kept_.ndim - 1]))),
        way_(choose_way()),
        outer_(outer_dims()),
        split_(outer_, piece_length()) {
    if (way_ == Way::kTurned) width_ = std::min(run_, kGathered / job.folded_count);
    if (way_ == Way::kColumns) width_ = even_share(run_, is_plain() ? kMaxCols : kConvertedCols);
    if (way_ == Way::kParts) width_ = std::min(neighbours_, kMaxCols / parts_);
    if (way_ == Way::kRows) width_ = std::clamp<int64_t>(kReduceUnit / job.folded_count, 1, run_);
    width_ = std::min(width_, kMaxCols);
    col_tiles_ = ceil_div(run_, width_);
    has_direct_columns_ = way_ == Way::kColumns && are_direct_columns();
    if (width_ < run_ || split_.pieces > 1) return;
    const int64_t most =
        way_ == Way::kTurned ? std::min(kMaxCols, kGathered / job.folded_count) : kMaxCols;
    height_ = std::clamp<int64_t>(
        std::min(most / run_, kReduceUnit / std::max<int64_t>(1, run_ * job.folded_count)), 1,
        runs_);
  }

  void run() const {
    const FoldKernel& kernel = *job_.fold.kernel;
    const int64_t acc_size = kernel.acc_size, pieces = split_.pieces;
    const int64_t tiles = ceil_div(runs_, height_) * col_tiles_;
    // Tiles of little work are taken several at a time.
    const int64_t work = std::max<int64_t>(1, width_ * height_ * job_.folded_count / pieces);
    const int64_t together = std::clamp<int64_t>(kReduceUnit / work, 1, tiles * pieces);
    Accumulators partial(pieces > 1 ? outputs_ * pieces * acc_size : 0);
    const auto unit = [&](int64_t index) {
      const int64_t piece = index % pieces, tile = index / pieces;
      const int64_t outer = tile / col_tiles_ * height_, col = tile % col_tiles_ * width_;
      const int64_t height = std::min(height_, runs_ - outer);
      const int64_t first = outer * run_ + col, width = std::min(width_, run_ - col);
      if (pieces > 1) {
        return fold(piece, first, 1, width, partial.data() + (piece * outputs_ + first) * acc_size);
      }
      if (has_direct_columns_) {
        for (int64_t i = 0; i < height; ++i) direct_columns(first + i * width, width);
        return;
      }
      alignas(64) char accs[kMaxCols * sizeof(Moments)];
      fold(0, first, height, width, accs);
      finish(job_, accs, first, height * width);
    };
    parallel_for(ceil_div(tiles * pieces, together), job_.options.max_threads,
                 [&](int64_t begin, int64_t end, int) {
                   const int64_t last = std::min(tiles * pieces, end * together);
                   for (int64_t i = begin * together; i < last; ++i) unit(i);
                 });
    if (pieces > 1) {
      for (int64_t piece = 1; piece < pieces; ++piece) {
        kernel.merge(partial.data(), partial.data() + piece * outputs_ * acc_size, outputs_);
      }
      finish(job_, partial.data(), 0, outputs_);
    }
  }

 private:
  static int64_t even_share(int64_t n, int64_t most) { return ceil_div(n, ceil_div(n, most)); }
  bool is_plain() const {
    return job_.in->dtype == job_.fold.compute && kept_.stride[0][kept_.ndim - 1] == 1;
  }

  // Whether columns become results without accumulators.
  bool are_direct_columns() const {
    const SettledFold& fold = job_.fold;
    const Nest& results = job_.results;
    const int last = results.ndim - 1;
    return fold.kernel->few_to_results != nullptr && fold.fold != Fold::kSumSquare &&
           fold.result == fold.compute && job_.out->dtype == fold.result &&
           job_.second == nullptr && is_plain() && split_.is_one_stretch() &&
           split_.inner <= kFewFolded && results.size[last] % run_ == 0 &&
           results.stride[1][last] == 1 && !is_narrow(job_, run_, row_step());
  }
  int64_t row_step() const { return folded_.ndim > 0 ? folded_.stride[0][folded_.ndim - 1] : 0; }
  void direct_columns(int64_t first, int64_t width) const {
    const int64_t size = static_cast<int64_t>(itemsize(job_.fold.compute));
    const double divisor =
        job_.fold.op == Reduction::mean ? static_cast<double>(job_.folded_count) : 1;
    job_.fold.kernel->few_to_results(
        static_cast<const char*>(job_.in->data) + kept_.offset(first, 0) * size, width,
        split_.inner, row_step(), divisor,
        static_cast<char*>(job_.out->data) + job_.results.offset(first, 1) * size);
  }

  Way choose_way() {
    const FoldKernel& kernel = *job_.fold.kernel;
    if (by_rows_) {
      const int last = folded_.ndim - 1;
      if (last > 0 && kernel.merges_fast && !job_.fold.has_positions()) {
        parts_ = folded_.size[last];
        // Results whose parts follow each other go together.
        const bool adjacent =
            kept_.ndim > 0 && kept_.stride[0][kept_.ndim - 1] == parts_ * folded_.stride[0][last];
        neighbours_ = adjacent ? run_ : 1;
        if (parts_ <= kMostParts && job_.folded_count / parts_ >= kLeastPartRows) {
          return Way::kParts;
        }
      }
      const bool turns = last == 0 && kernel.turned != nullptr && outputs_ > 1;
      return turns && job_.folded_count <= kTurnedRow ? Way::kTurned : Way::kRows;
    }
    const bool is_short = run_ < kShortRun && runs_ > 1 && job_.folded_count <= kMostTurned;
    return is_short || job_.folded_count == 1 ? Way::kTurned : Way::kColumns;
  }

  // The folded dimensions that are cut into pieces.
  Nest outer_dims() const {
    Nest outer = folded_;
    if (way_ == Way::kParts) --outer.ndim;
    return outer;
  }

  int64_t piece_length() const {
    switch (way_) {
      case Way::kTurned:
        return job_.folded_count;
      case Way::kRows:
        return kReduceUnit;
      case Way::kParts:
        return std::max<int64_t>(128,
                                 kReduceUnit / (std::min(neighbours_, kMaxCols / parts_) * parts_));
      case Way::kColumns:
        break;
    }
    // A piece is at least one block of the kernel: shorter ones cost more in partial results.
    return std::max<int64_t>(128, kReduceUnit / std::min(run_, kMaxCols));
  }

  // Outputs [first, first + height * width): part of a run, or `height` whole ones.
  void fold(int64_t piece, int64_t first, int64_t height, int64_t width, char* acc) const {
    const int64_t n = height * width, acc_size = job_.fold.kernel->acc_size;
    if (way_ == Way::kTurned) return fold_turned(job_, by_rows_, first, n, acc);
    if (way_ == Way::kRows) {
      job_.fold.kernel->init(acc, n);
      return fold_rows(job_, split_, piece, first, n, acc);
    }
    for (int64_t i = 0; i < height; ++i, acc += width * acc_size) {
      const int64_t base = kept_.offset(first + i * width, 0);
      if (way_ == Way::kColumns) {
        fold_cols(job_, folded_, split_, piece, base, width, kept_.stride[0][kept_.ndim - 1], acc);
      } else {
        fold_parts(job_, outer_, split_, piece, base, width, parts_,
                   folded_.stride[0][folded_.ndim - 1], acc);
      }
    }
  }

  const ReduceJob& job_;
  const Nest& kept_;
  const Nest& folded_;
  int64_t outputs_;
  int64_t run_;   // neighbouring outputs
  int64_t runs_;  // of them
  bool by_rows_;
  int64_t parts_ = 1;       // of a result
  int64_t neighbours_ = 1;  // results whose parts lie beside each other
  Way way_;
  Nest outer_;
  Split split_;
  // A tile: part of a run, or whole ones.
  int64_t width_ = 1, height_ = 1;
  int64_t col_tiles_ = 1;
  bool has_direct_columns_ = false;
};

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
  job.results = job.plan.kept;
  std::fill_n(job.results.stride[0], job.results.ndim, 0);
  job.results.merge();
  if (job.plan.kept.count() == 0) return;
  if (job.folded_count == 0) {
    fill(empty_value(what, job.op, job.options.p), out, job.options.max_threads);
    if (second != nullptr) fill(std::numeric_limits<double>::quiet_NaN(), *second);
    return;
  }
  ReduceWork(job).run();
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
