// SPDX-License-Identifier: MIT
// Domain: the loops in which the linear orders of several operands agree.
#pragma once

#include <array>
#include <cstdint>

#include "src/circuit/plan.h"
#include "src/circuit/size.h"
#include "src/circuit/strided_map.h"

namespace hologram::circuit {

// The sizes at which loops have to be cut: ascending, each dividing the next, the number of
// elements last. With rows, the first is the row length.
class Domain {
 public:
  Domain() = default;
  explicit Domain(Size n) : n_(n) {}

  Size numel() const { return n_; }
  // 0: no rows.
  Size row() const { return row_; }

  // Each returns false, with nothing changed, where the loops would not agree or be too many.
  bool add(const Map& map) { return add_scaled(map, 1); }
  // A map over the rows of this domain.
  bool add_rows(const Map& map) { return row_ > 0 && add_scaled(map, row_); }
  bool set_row(Size row);
  // Whether it can be walked as rows of this length, in one loop over those of a group.
  bool has_rows_of(Size cols, Size group) const;
  // Cuts it so; has_rows_of() is true, cols neither 1 nor numel().
  void cut_rows(Size cols) { cut(cols); }
  bool merge(const Domain& other);

  int ndim() const { return cuts_ + 1 + trailing(); }
  // Sizes of the loops, the innermost last.
  void shape(std::array<Size, kMaxDomainDims>& shape) const;
  // The steps of a map in those loops.
  void strides(const Map& map, Rank rank, std::array<Size, kMaxDomainDims>& strides) const;

 private:
  bool add_scaled(const Map& map, Size scale);
  // Rows of one element are a loop of their own, which no cut makes.
  int trailing() const { return row_ == 1 ? 1 : 0; }
  bool cut(Size size);

  Size n_ = 1;
  Size row_ = 0;
  int cuts_ = 0;
  std::array<Size, kMaxDomainDims> at_{};
};

}  // namespace hologram::circuit
