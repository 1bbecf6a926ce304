// SPDX-License-Identifier: MIT
// The places that index tensors name, as offsets from the beginning of the indexed tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hologram/functions.h"
#include "src/array/array.h"

namespace hologram::array {

// "(2, 3)", as NumPy's messages have it.
std::string tuple_text(std::span<const int64_t> shape);

// The meaning of x[...] with index tensors. The result has the dimensions of x that no index
// covers, and those of the indices' broadcast shape at `place` among them.
class IndexPlan {
 public:
  // Waits for the indices, which live on and whose bounds are not checked yet; kIndex for masks and
  // indices whose shapes do not fit.
  IndexPlan(const Tensor& x, std::span<const DimIndex> indices, int place);
  // The checks that need no values.
  static void check(const Tensor& x, std::span<const DimIndex> indices, int place);

  const Shape& result() const { return result_; }
  int64_t count() const { return count_; }  // of places
  // The only index, where that is a mask.
  const Tensor* mask() const { return mask_; }
  // Dimensions of the result that are the places', and elements in those before them.
  int place_dims() const { return static_cast<int>(shape_.size()); }
  int64_t outer_count() const { return shape_numel(outer_shape_); }
  // The only index, where the calls that move rows take it as it is.
  const Tensor* plain_positions() const;
  // True where x is row-major and its indexed dimensions are neighbours that the indices' shape
  // replaces: one dimension of places, with `inner()` elements each.
  bool is_around_one_dim() const { return is_around_one_dim_; }
  int64_t inner() const { return inner_; }
  // kIndex for a position that is out of bounds.
  void check_bounds() const;

  // Offsets, in x, of the first of the elements that belong to one place, for each of them: in the
  // dimensions before the places and in those behind.
  Shape outer_offsets() const { return offsets_of(outer_shape_, outer_strides_); }
  Shape inner_offsets() const { return offsets_of(inner_shape_, inner_strides_); }
  // True where the latter are 0, 1, 2, ...
  bool is_inner_dense() const;

 private:
  friend class Places;
  struct Positions {
    const Tensor* index;
    int64_t size, step;  // of the dimension
    int axis;
    Shape strides;  // of the index over the broadcast shape
  };

  void add(const Tensor& x, const DimIndex& index, bool is_only);
  void broadcast_positions();
  static Shape offsets_of(const Shape& shape, const Shape& strides);
  [[noreturn]] void fail_outside() const;

  std::vector<Tensor> made_;  // positions of masks, copies of what is in a device's memory
  std::vector<Positions> positions_;
  const Tensor* mask_ = nullptr;
  Shape mask_steps_;  // x's strides in the dimensions of the mask
  Shape shape_;       // of the indices
  int64_t count_ = 0;
  bool is_linear_ = true;  // the indices are row-major, of that shape
  Shape outer_shape_, outer_strides_, inner_shape_, inner_strides_, result_;
  bool is_around_one_dim_ = false;
  int64_t inner_ = 1;
};

// Reads the offsets of a plan's places in order.
class Places {
 public:
  static constexpr int64_t kBlock = 1024;

  // The offsets are in units of `unit` elements.
  explicit Places(const IndexPlan& plan, int64_t unit = 1) : plan_(plan), unit_(unit) {}
  // The next offsets, at most kBlock; none behind the last. kIndex for a position out of bounds.
  std::span<const int64_t> next();

 private:
  bool add_row(const IndexPlan::Positions& positions, int64_t at, int64_t n, int64_t* to) const;
  int64_t next_positions();
  int64_t next_of_mask();

  const IndexPlan& plan_;
  int64_t unit_;
  int64_t done_ = 0;  // places, or elements of the mask
  int64_t offsets_[kBlock];
};

// Writes the offsets, `step` apart, of a row-major index's positions in a dimension of that size.
// False where one is out of bounds.
bool find_places(const Tensor& index, int64_t size, int64_t step, int64_t* offsets);
// Writes those of a row-major mask's true elements, where there is room for all, and returns how
// many they are.
int64_t find_true_places(const Tensor& mask, int64_t step, int64_t* offsets);
// How many elements of a mask in host memory are true.
int64_t count_true(const Tensor& mask);
// Waits for what writes the tensor, if anything still has to.
void settle_for_reading(const Tensor& t);

}  // namespace hologram::array
