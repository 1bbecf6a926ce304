// SPDX-License-Identifier: MIT
// Walks the operands of an elementwise call in blocks: dimensions checked, merged and cut.
#include "src/cpu/elementwise/iteration.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "hologram/error.h"
#include "src/base/text.h"
#include "src/cpu/movement/copy_bytes.h"
#include "src/cpu/movement/every_nth.h"
#include "src/cpu/movement/transpose.h"

namespace hologram::cpu {
namespace {

// A side of this many elements makes a square block worth its bookkeeping.
constexpr int64_t kSquareSide = 32;
constexpr int64_t kShortSide = 8;
// Elements that share a cache line of 64 bytes with others, and such that do not.
constexpr int64_t kNear = 4;
constexpr int64_t kApart = 64;
// So few columns are copied one after another.
constexpr int64_t kFewColumns = 4;
constexpr int64_t kFewNarrowColumns = 8;  // of one or two bytes
// So few elements are copied in the time that it takes to find a block.
constexpr int64_t kSmallBlock = 128;

}  // namespace

Iteration::Iteration(const char* what, const View* operands, int count, bool reads_first)
    : count_(count) {
  const View& out = operands[0];
  if (out.ndim > kMaxDims) {
    fail(ErrorKind::kInvalidArgument, what, ": the result has ", out.ndim, " dimensions, at most ",
         kMaxDims, " are supported");
  }
  for (int k = 0; k < count; ++k) {
    const View& view = operands[k];
    data_[k] = static_cast<char*>(view.data);
    itemsize_[k] = static_cast<int64_t>(itemsize(view.dtype));
    const int lead = out.ndim - view.ndim;
    bool fits = lead >= 0;
    for (int d = 0; fits && d < view.ndim; ++d) {
      fits = view.shape[d] == out.shape[lead + d] || view.shape[d] == 1;
    }
    if (!fits) {
      fail(ErrorKind::kInvalidArgument, what, ": operand ", k - 1, " of shape ", shape_text(view),
           " does not broadcast to the result's shape ", shape_text(out));
    }
  }
  for (int d = 0; d < out.ndim; ++d) numel_ *= out.shape[d];
  if (numel_ != 0) {
    for (int d = 0; d < out.ndim; ++d) {
      if (out.shape[d] == 1) continue;
      shape_[ndim_] = out.shape[d];
      for (int k = 0; k < count; ++k) {
        const View& view = operands[k];
        const int own = d - (out.ndim - view.ndim);
        strides_[k][ndim_] = own < 0 || view.shape[own] == 1 ? 0 : view.strides[own];
      }
      ++ndim_;
    }
    Loops all = loops();
    order_and_merge(all);
    ndim_ = all.ndim;
  }
  flat_ = ndim_ == 1;
  for (int k = 0; k < count; ++k) {
    scalar_[k] = std::all_of(strides_[k], strides_[k] + ndim_, [](int64_t s) { return s == 0; });
    if (ndim_ == 1 && strides_[k][0] != 1 && !scalar_[k]) flat_ = false;
  }
  if (scalar_[0] && numel_ > 1 && !reads_first) {
    fail(ErrorKind::kInvalidArgument, what,
         ": the result repeats one element; give it memory of its own");
  }
}

BlockGrid cut_into_blocks(Loops& loops, int64_t tile, bool whole_rows) {
  int64_t* shape = loops.shape;
  if (loops.ndim == 0) {
    shape[0] = 1;
    for (int k = 0; k < loops.count; ++k) loops.stride(k, 0) = 0;
    loops.ndim = 1;
  }
  if (loops.ndim == 1) {  // A row of its own keeps the walk free of special cases.
    shape[1] = shape[0];
    shape[0] = 1;
    for (int k = 0; k < loops.count; ++k) {
      loops.stride(k, 1) = loops.stride(k, 0);
      loops.stride(k, 0) = 0;
    }
    loops.ndim = 2;
  }
  const int inner = loops.ndim - 1;
  int across = -1;
  if (!whole_rows && shape[inner] >= kShortSide) {
    for (int k = 0; k < loops.count && across < 0; ++k) {
      const int64_t own = std::abs(loops.stride(k, inner));
      if (own <= 1) continue;
      for (int d = 0; d < inner; ++d) {
        const int64_t other = std::abs(loops.stride(k, d));
        const bool is_near = other == 1 || (other > 1 && other <= kNear && own >= kApart);
        if (is_near && shape[d] >= kShortSide) across = d;
      }
    }
  }
  BlockGrid grid;
  if (across >= 0) {
    std::swap(shape[across], shape[inner - 1]);
    for (int k = 0; k < loops.count; ++k) {
      std::swap(loops.stride(k, across), loops.stride(k, inner - 1));
    }
    grid.block_cols = std::min(shape[inner], kSquareSide);
    grid.block_rows = std::min(shape[inner - 1], tile / kSquareSide);
  } else {
    grid.block_cols = whole_rows ? shape[inner] : std::min(shape[inner], tile);
    grid.block_rows = std::clamp<int64_t>(tile / grid.block_cols, 1, shape[inner - 1]);
  }
  grid.col_blocks = (shape[inner] + grid.block_cols - 1) / grid.block_cols;
  grid.row_blocks = (shape[inner - 1] + grid.block_rows - 1) / grid.block_rows;
  for (int d = 0; d < inner - 1; ++d) grid.outer *= shape[d];
  return grid;
}

void Iteration::cut(int64_t tile, bool enlarges) {
  Loops all = loops();
  const int inner = all.ndim - 1;
  if (enlarges && inner >= 2 && shape_[inner] * shape_[inner - 1] <= kSmallBlock) {
    const auto longest = std::max_element(shape_, shape_ + inner - 1) - shape_;
    if (shape_[longest] > shape_[inner - 1]) {
      std::swap(shape_[longest], shape_[inner - 1]);
      for (int k = 0; k < count_; ++k) std::swap(strides_[k][longest], strides_[k][inner - 1]);
    }
  }
  grid_ = cut_into_blocks(all, tile);
  ndim_ = all.ndim;
}

Iteration::Extent Iteration::block(int64_t index, std::array<Block, kMaxOperands>& blocks) const {
  const int inner = ndim_ - 1;
  const int64_t col = index % grid_.col_blocks * grid_.block_cols;
  index /= grid_.col_blocks;
  const int64_t row = index % grid_.row_blocks * grid_.block_rows;
  index /= grid_.row_blocks;
  int64_t offset[kMaxOperands];
  for (int k = 0; k < count_; ++k) {
    offset[k] = row * strides_[k][inner - 1] + col * strides_[k][inner];
  }
  for (int d = inner - 2; d >= 0 && index > 0; --d) {
    const int64_t position = index % shape_[d];
    index /= shape_[d];
    for (int k = 0; k < count_; ++k) offset[k] += position * strides_[k][d];
  }
  for (int k = 0; k < count_; ++k) {
    blocks[k] = {data_[k] + offset[k] * itemsize_[k], strides_[k][inner - 1], strides_[k][inner]};
  }
  return {std::min(grid_.block_rows, shape_[inner - 1] - row),
          std::min(grid_.block_cols, shape_[inner] - col)};
}

namespace {

struct Bytes16 {
  uint64_t words[2];
};

// Elements one after the other, by steps that no store can change.
template <class T>
void copy_line(const T* source, int64_t step, T* target, int64_t target_step, int64_t n) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const T a = source[0], b = source[step], c = source[2 * step], d = source[3 * step];
    target[0] = a;
    target[target_step] = b;
    target[2 * target_step] = c;
    target[3 * target_step] = d;
    source += 4 * step;
    target += 4 * target_step;
  }
  for (; i < n; ++i) {
    *target = *source;
    source += step;
    target += target_step;
  }
}

// Turns a block whose columns lie along the source, or are every second to fourth element there.
template <class T>
bool copy_turned(const T* source, int64_t row, int64_t col, T* target, int64_t to_row, int64_t rows,
                 int64_t cols) {
  const auto transpose = transpose_kernel(current_isa(), T());
  if (row == 1) {
    transpose(source, col, cols, rows, target, to_row);
    return true;
  }
  const EveryNthKernel every_nth =
      row == 0 ? nullptr : every_nth_kernel(current_isa(), row, sizeof(T));
  if (every_nth == nullptr || rows < kShortSide || kShortSide * rows > kTile) return false;
  alignas(64) T dense[kTile];
  const int64_t together = kTile / rows;
  for (int64_t first = 0; first < cols; first += together) {
    const int64_t here = std::min(together, cols - first);
    for (int64_t c = 0; c < here; ++c) {
      every_nth(source + (first + c) * col, dense + c * rows, rows);
    }
    transpose(dense, rows, here, rows, target + first, to_row);
  }
  return true;
}

template <class T>
void copy_elements(const Block& from, const Block& to, int64_t rows, int64_t cols) {
  const T* source = reinterpret_cast<const T*>(from.data);
  T* target = reinterpret_cast<T*>(to.data);
  const int64_t row = from.row_stride, col = from.col_stride;
  const int64_t to_row = to.row_stride, to_col = to.col_stride;
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  if (col == 1 && to_col == 1 && cols > 1) {
    copy_rows(from.data, row * kSize, to.data, to_row * kSize, rows, cols * kSize);
  } else if ((std::abs(row) < std::abs(col) && row != 0 && rows > 1) ||
             (cols <= (sizeof(T) <= 2 ? kFewNarrowColumns : kFewColumns) && rows > cols)) {
    if constexpr (sizeof(T) == 4 || sizeof(T) == 8) {
      if (to_col == 1 && copy_turned(source, row, col, target, to_row, rows, cols)) return;
    }
    for (int64_t c = 0; c < cols; ++c) {
      copy_line(source + c * col, row, target + c * to_col, to_row, rows);
    }
  } else {
    // Repeated or flipped ones, and those like the real parts of complex numbers or one color of an
    // image.
    const EveryNthKernel every_nth =
        to_col == 1 ? every_nth_kernel(current_isa(), col, sizeof(T)) : nullptr;
    for (int64_t r = 0; r < rows; ++r) {
      const T* const s = source + r * row;
      T* const t = target + r * to_row;
      if (every_nth != nullptr) {
        every_nth(s, t, cols);
      } else if (col == 0 && to_col == 1) {
        std::fill_n(t, cols, *s);
      } else if (to_col == 1) {
        copy_line(s, col, t, 1, cols);
      } else {
        copy_line(s, col, t, to_col, cols);
      }
    }
  }
}

}  // namespace

void copy_block(const Block& from, const Block& to, int64_t rows, int64_t cols, int64_t itemsize) {
  if (cols == 1 && rows > 1) {  // one row, the other way round
    return copy_block({from.data, 0, from.row_stride}, {to.data, 0, to.row_stride}, 1, rows,
                      itemsize);
  }
  switch (itemsize) {
    case 1:
      return copy_elements<uint8_t>(from, to, rows, cols);
    case 2:
      return copy_elements<uint16_t>(from, to, rows, cols);
    case 4:
      return copy_elements<uint32_t>(from, to, rows, cols);
    case 8:
      return copy_elements<uint64_t>(from, to, rows, cols);
    default:
      return copy_elements<Bytes16>(from, to, rows, cols);
  }
}

}  // namespace hologram::cpu
