// SPDX-License-Identifier: MIT
// How elementwise calls and fused kernels walk their operands: few dimensions, cut into
// two-dimensional blocks of at most one tile.
#pragma once

#include <array>
#include <cstdint>

#include "hologram/view.h"
#include "src/base/loops.h"

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

// Blocks of rows and columns: rows run over the last dimension but one, columns over the last.
struct BlockGrid {
  int64_t outer = 1, row_blocks = 1, col_blocks = 1;
  int64_t block_rows = 1, block_cols = 1;

  int64_t count() const { return outer * row_blocks * col_blocks; }
  // Largest number of elements in a block.
  int64_t elements() const { return block_rows * block_cols; }
};

// Cuts the loops into blocks of at most `tile` elements; the loops then have two dimensions at
// least. An operand that is contiguous along another dimension is read in squares, so that each of
// its cache lines is used whole while it is near. With whole_rows a block is some whole rows,
// however long.
BlockGrid cut_into_blocks(Loops& loops, int64_t tile, bool whole_rows = false);

// Operand 0 is the result. Dimensions are those of the result, ordered so that the result's memory
// is walked forwards and merged where every operand allows it.
class Iteration {
 public:
  // Throws Error when an input does not broadcast to the result's shape, or the result repeats one
  // element. reads_first: operand 0 is but the input whose shape the others have.
  Iteration(const char* what, const View* operands, int count, bool reads_first = false);

  int64_t numel() const { return numel_; }
  int count() const { return count_; }
  // One dimension in which each operand is contiguous or a single repeated element.
  bool is_flat() const { return ndim_ == 0 || (ndim_ == 1 && flat_); }
  bool is_scalar(int operand) const { return scalar_[operand]; }
  char* data(int operand) const { return data_[operand]; }

  // Cuts the index space into blocks of at most `tile` elements; block_count() of them. `enlarges`:
  // where they would be small they take their rows from another dimension, though operands that
  // were dense in a block may then not be.
  void cut(int64_t tile, bool enlarges = false);
  int64_t block_count() const { return grid_.count(); }
  // Largest number of elements in a block.
  int64_t block_elements() const { return grid_.elements(); }
  // Rectangle `index` of every operand; returns its size.
  struct Extent {
    int64_t rows, cols;
  };
  Extent block(int64_t index, std::array<Block, kMaxOperands>& blocks) const;

 private:
  Loops loops() { return {ndim_, count_, shape_, strides_[0], kMaxDims}; }

  int count_;
  int ndim_ = 0;
  bool flat_ = false;
  int64_t numel_ = 1;
  int64_t shape_[kMaxDims];
  int64_t strides_[kMaxOperands][kMaxDims];
  char* data_[kMaxOperands];
  int64_t itemsize_[kMaxOperands];
  bool scalar_[kMaxOperands];
  BlockGrid grid_;
};

// Copies rows x cols elements of `itemsize` bytes between rectangles that do not overlap.
void copy_block(const Block& from, const Block& to, int64_t rows, int64_t cols, int64_t itemsize);

}  // namespace hologram::cpu
