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

// Elements of results that are gathered at once, where these have few elements each or are few
// beside each other, and of columns that are converted.
constexpr int64_t kGathered = 8192;
// The elements of a result, at most, and neighbouring results, fewer than which are gathered.
constexpr int64_t kMostTurned = 64, kShortRun = 32;
// Columns that are converted at once, so that many rows of them fit.
constexpr int64_t kConvertedCols = 512;
// Rows of parts that are joined at the end: not longer, and so many for each result at least.
constexpr int64_t kMostParts = 512, kLeastPartRows = 16;

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
  Nest results;  // the kept dimensions as the outputs have them
  int64_t folded_count;
};

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
        fold_rows_of(job.fold, at, rows, n, row_step, position, acc);
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
          fold_rows_of(job.fold, scratch, here, length, length, position + i,
                       acc + r * kernel.acc_size);
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

// Columns, whose elements lie closest together: acc[j] becomes that of column j of `cols`, which
// begin `base` elements into the input, `step` apart.
void fold_cols(const ReduceJob& job, const Nest& folded, const Split& split, int64_t piece,
               int64_t base, int64_t cols, int64_t step, char* acc) {
  const FoldKernel& kernel = *job.fold.kernel;
  const View& in = *job.in;
  const int64_t size = static_cast<int64_t>(itemsize(in.dtype));
  const int64_t row_step = folded.ndim > 0 ? folded.stride[0][folded.ndim - 1] : 0;
  const bool direct = step == 1 && in.dtype == job.fold.compute;
  const bool is_narrow = row_step == cols && cols <= kNarrow && !job.fold.has_positions();
  alignas(64) char wide[kWideRow * sizeof(Moments)];
  if (direct && kernel.few_rows != nullptr && !is_narrow && split.is_one_stretch() &&
      split.inner <= kFewFolded) {
    const char* at = static_cast<const char*>(in.data) + base * size;
    return kernel.few_rows(at, cols, split.inner, row_step, acc);
  }
  kernel.init(acc, cols);
  if (direct) {
    for_stretches(split, folded, piece, [&](int64_t offset, int64_t position, int64_t n) {
      const char* at = static_cast<const char*>(in.data) + (base + offset) * size;
      if (is_narrow) {
        fold_narrow(job, at, cols, n, acc, wide);
      } else {
        kernel.cols(at, cols, n, row_step, position, acc, job.options.p);
      }
    });
    return;
  }
  alignas(64) char scratch[kGathered * 8];
  const int64_t together = kGathered / cols;
  for_stretches(split, folded, piece, [&](int64_t offset, int64_t position, int64_t n) {
    const char* at = static_cast<const char*>(in.data) + (base + offset) * size;
    for (int64_t r = 0; r < n; r += together) {
      const int64_t here = std::min(together, n - r);
      gather_rows(at + r * row_step * size, in.dtype, here, row_step, cols, step, job.fold.compute,
                  scratch);
      if (is_narrow) {
        fold_narrow(job, scratch, cols, here, acc, wide);
      } else {
        kernel.cols(scratch, cols, here, cols, position + r, acc, job.options.p);
      }
    }
  });
}

// Outputs [first, first + n) of few elements each, gathered so that all lie beside each other.
// acc[i] becomes that of output first + i. by_rows: with the bits of rows.
void fold_turned(const ReduceJob& job, bool by_rows, int64_t first, int64_t n, char* acc) {
  const Nest& kept = job.plan.kept;
  const FoldKernel& kernel = *job.fold.kernel;
  const View& in = *job.in;
  const int64_t size = static_cast<int64_t>(itemsize(in.dtype));
  const int64_t to_size = static_cast<int64_t>(itemsize(job.fold.compute));
  const int64_t elements = job.folded_count;
  int64_t offset[kMostTurned];
  for (int64_t f = 0; f < elements; ++f) offset[f] = job.plan.folded.offset(f, 0);
  const int last = kept.ndim - 1;
  const int64_t row = kept.size[last], step = kept.stride[0][last];
  const int64_t rows = last > 0 ? kept.size[last - 1] : 1;
  const int64_t row_step = last > 0 ? kept.stride[0][last - 1] : 0;
  alignas(64) char scratch[kGathered * 8];
  for (int64_t done = 0; done < n;) {
    const int64_t at = first + done;
    int64_t together = 1, length = std::min(n - done, row - at % row);
    if (length == row) together = std::min((n - done) / row, rows - at / row % rows);
    const char* from = static_cast<const char*>(in.data) + kept.offset(at, 0) * size;
    for (int64_t f = 0; f < elements; ++f) {
      gather_rows(from + offset[f] * size, in.dtype, together, row_step, length, step,
                  job.fold.compute, scratch + (f * n + done) * to_size);
    }
    done += together * length;
  }
  if (!by_rows && kernel.few_rows != nullptr) return kernel.few_rows(scratch, n, elements, n, acc);
  kernel.init(acc, n);
  (by_rows ? kernel.turned : kernel.cols)(scratch, n, elements, n, 0, acc, job.options.p);
}

// Rows of `parts` neighbouring parts of each of n results, which lie beside each other, folded as
// columns and then joined. acc[i] becomes that of the i-th result.
void fold_parts(const ReduceJob& job, const Nest& outer, const Split& split, int64_t piece,
                int64_t base, int64_t n, int64_t parts, int64_t step, char* acc) {
  const FoldKernel& kernel = *job.fold.kernel;
  alignas(64) char wide[kMaxCols * sizeof(Moments)];
  fold_cols(job, outer, split, piece, base, n * parts, step, wide);
  kernel.init(acc, n);
  for (int64_t i = 0; i < n; ++i) {
    char* const own = wide + i * parts * kernel.acc_size;
    for (int64_t left = parts; left > 1;) {
      const int64_t half = left / 2;
      left -= half;
      kernel.merge(own, own + left * kernel.acc_size, half);
    }
    kernel.merge(acc + i * kernel.acc_size, own, 1);
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
