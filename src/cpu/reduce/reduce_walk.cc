// SPDX-License-Identifier: MIT
// Rows, columns, results turned into columns and parts of results, gathered where kernels cannot
// read them where they lie.
#include "src/cpu/reduce/reduce_walk.h"

#include "src/cpu/reduce/reduce_gather.h"
#include "src/cpu/reduce/reduce_kernels.h"

namespace hologram::cpu {
namespace {

// Rows are gathered in pieces that are whole blocks of every kernel, so that a row gives the same
// bits for any strides and any dtype that it is converted from.
constexpr int64_t kGatheredRow = 2 * kScratchElements;

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

}  // namespace

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
  alignas(64) char scratch[kGatheredRow * 8];
  while (count > 0) {
    const int64_t rows = std::min(count, run - first % run);
    const int64_t base = kept.offset(first, 0);
    for_stretches(split, folded, piece, [&](int64_t offset, int64_t position, int64_t n) {
      const char* at = static_cast<const char*>(in.data) + (base + offset) * size;
      if (direct) {
        fold_rows_of(job.fold, at, rows, n, row_step, position, acc);
        return;
      }
      const int64_t take = std::min(n, kGatheredRow);
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

bool is_narrow(const ReduceJob& job, int64_t cols, int64_t row_step) {
  return row_step == cols && cols <= kNarrow && !job.fold.has_positions();
}

void fold_cols(const ReduceJob& job, const Nest& folded, const Split& split, int64_t piece,
               int64_t base, int64_t cols, int64_t step, char* acc) {
  const FoldKernel& kernel = *job.fold.kernel;
  const View& in = *job.in;
  const int64_t size = static_cast<int64_t>(itemsize(in.dtype));
  const int64_t row_step = folded.ndim > 0 ? folded.stride[0][folded.ndim - 1] : 0;
  const bool direct = step == 1 && in.dtype == job.fold.compute;
  const bool by_wide_rows = is_narrow(job, cols, row_step);
  alignas(64) char wide[kWideRow * sizeof(Moments)];
  if (direct && kernel.few_rows != nullptr && !by_wide_rows && split.is_one_stretch() &&
      split.inner <= kFewFolded) {
    const char* at = static_cast<const char*>(in.data) + base * size;
    return kernel.few_rows(at, cols, split.inner, row_step, acc);
  }
  kernel.init(acc, cols);
  if (direct) {
    for_stretches(split, folded, piece, [&](int64_t offset, int64_t position, int64_t n) {
      const char* at = static_cast<const char*>(in.data) + (base + offset) * size;
      if (by_wide_rows) {
        fold_narrow(job, at, cols, n, acc, wide);
      } else {
        kernel.cols(at, cols, n, row_step, position, acc, job.options.p);
      }
    });
    return;
  }
  alignas(64) char scratch[kGathered * 8];
  // What is gathered stays in the first cache until it is folded: half of the scratch, in whole
  // steps of the kernels, which take eight rows at once and kFewFolded in a block.
  const int64_t most = kGathered / std::max<int64_t>(1, cols);
  const int64_t step_of_rows = most / 2 >= kFewFolded ? kFewFolded : 8;
  const int64_t together = most / 2 >= 8 ? most / 2 / step_of_rows * step_of_rows : most;
  for_stretches(split, folded, piece, [&](int64_t offset, int64_t position, int64_t n) {
    const char* at = static_cast<const char*>(in.data) + (base + offset) * size;
    for (int64_t r = 0; r < n; r += together) {
      const int64_t here = std::min(together, n - r);
      gather_rows(at + r * row_step * size, in.dtype, here, row_step, cols, step, job.fold.compute,
                  scratch);
      if (by_wide_rows) {
        fold_narrow(job, scratch, cols, here, acc, wide);
      } else {
        kernel.cols(scratch, cols, here, cols, position + r, acc, job.options.p);
      }
    }
  });
}

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

}  // namespace hologram::cpu
