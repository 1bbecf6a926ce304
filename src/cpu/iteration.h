// SPDX-License-Identifier: MIT
// How an elementwise call walks its operands: few dimensions, cut into two-dimensional blocks of at
// most one tile.
#pragma once

#include <array>
#include <cstdint>

#include "hologram/view.h"

namespace hologram::cpu {

inline constexpr int kMaxDims = 64;
inline constexpr int kMaxOperands = 5;  // the result and up to four inputs
inline constexpr int64_t kTile = 1024;  // elements of a tile; ten of float32 fit a 48 KiB L1

// A rectangle of a tile as one operand sees it: rows x cols elements, strides in elements.
struct Block {
  char* data;
  int64_t row_stride;
  int64_t col_stride;
};

// Whether a rectangle is one contiguous run.
inline bool is_dense(const Block& block, int64_t rows, int64_t cols) {
  return (cols == 1 || block.col_stride == 1) && (rows == 1 || block.row_stride == cols);
}

// Operand 0 is the result. Dimensions are those of the result, ordered so that the result's memory
// is walked forwards and merged where every operand allows it.
class Iteration {
 public:
  // Throws Error when an input does not broadcast to the result's shape.
  Iteration(const char* what, const View* operands, int count);

  int64_t numel() const { return numel_; }
  int count() const { return count_; }
  // One dimension in which each operand is contiguous or a single repeated element.
  bool is_flat() const { return ndim_ == 0 || (ndim_ == 1 && flat_); }
  bool is_scalar(int operand) const { return scalar_[operand]; }
  char* data(int operand) const { return data_[operand]; }

  // Cuts the index space into blocks of at most `tile` elements; block_count() of them.
  void cut(int64_t tile);
  int64_t block_count() const { return outer_ * row_blocks_ * col_blocks_; }
  // Largest number of elements in a block.
  int64_t block_elements() const { return block_rows_ * block_cols_; }
  // Rectangle `index` of every operand; returns its size.
  struct Extent {
    int64_t rows, cols;
  };
  Extent block(int64_t index, std::array<Block, kMaxOperands>& blocks) const;

 private:
  void order_and_merge();

  int count_;
  int ndim_ = 0;
  bool flat_ = false;
  int64_t numel_ = 1;
  int64_t shape_[kMaxDims];
  int64_t strides_[kMaxOperands][kMaxDims];
  char* data_[kMaxOperands];
  int64_t itemsize_[kMaxOperands];
  bool scalar_[kMaxOperands];
  // The block grid: rows run over dimension ndim_ - 2, columns over the last.
  int64_t outer_ = 1, row_blocks_ = 1, col_blocks_ = 1;
  int64_t block_rows_ = 1, block_cols_ = 1;
};

// Copies rows x cols elements of `itemsize` bytes between rectangles that do not overlap.
void copy_block(const Block& from, const Block& to, int64_t rows, int64_t cols, int64_t itemsize);

}  // namespace hologram::cpu
