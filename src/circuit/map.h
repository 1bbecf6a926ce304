// SPDX-License-Identifier: MIT
// How elements in a linear order lie in memory, and the loops in which several such orders agree.
#pragma once

#include <array>
#include <cstdint>

#include "src/circuit/plan.h"

namespace hologram::circuit {

// Element i of n is at the sum of stride * (its index in each part), parts innermost first. Parts
// are merged where they continue each other, so equal maps are equal data.
struct Map {
  struct Part {
    int64_t size;
    int64_t stride;
    bool operator==(const Part&) const = default;
  };
  int count = 0;
  std::array<Part, kTapeDims + 1> parts{};

  static Map flat(int64_t n);
  // Dimensions of a record, the innermost last.
  static Map from_dims(int ndim, const int64_t* shape, const int64_t* strides);

  // Adds a part outside the others.
  void push(int64_t size, int64_t stride);
  int64_t numel() const;
  bool is_flat() const { return count == 0 || (count == 1 && parts[0].stride == 1); }
  // Every element in the same place.
  bool is_one() const { return count == 0 || (count == 1 && parts[0].stride == 0); }
  // Whether this is `inner` repeated `times` times an element: along rows of that length.
  bool repeats(const Map& inner, int64_t times) const;
  // Lowest and highest element reached, relative to the first.
  int64_t lowest() const;
  int64_t highest() const;
  // Elements with a place of their own, repeated ones counted once.
  int64_t distinct() const;

  bool operator==(const Map& other) const;
};

// The sizes at which loops have to be cut: ascending, each dividing the next, the number of
// elements last. With rows, the first is the row length.
class Domain {
 public:
  Domain() = default;
  explicit Domain(int64_t n) : n_(n) {}

  int64_t numel() const { return n_; }
  // 0: no rows.
  int64_t row() const { return row_; }

  // Each returns false, with nothing changed, where the loops would not agree or be too many.
  bool add(const Map& map) { return add_scaled(map, 1); }
  // A map over the rows of this domain.
  bool add_rows(const Map& map) { return row_ > 0 && add_scaled(map, row_); }
  bool set_row(int64_t row);
  // Whether it can be walked as rows of this length in one loop over rows.
  bool has_rows_of(int64_t cols) const;
  // Cuts it so; has_rows_of() is true, cols neither 1 nor numel().
  void cut_rows(int64_t cols) { cut(cols); }
  bool merge(const Domain& other);

  int ndim() const { return cuts_ + 1 + trailing(); }
  // Sizes of the loops, the innermost last.
  void shape(std::array<int64_t, kMaxDomainDims>& shape) const;
  // The steps of a map in those loops.
  void strides(const Map& map, Rank rank, std::array<int64_t, kMaxDomainDims>& strides) const;

 private:
  bool add_scaled(const Map& map, int64_t scale);
  // Rows of one element are a loop of their own, which no cut makes.
  int trailing() const { return row_ == 1 ? 1 : 0; }
  bool cut(int64_t size);

  int64_t n_ = 1;
  int64_t row_ = 0;
  int cuts_ = 0;
  std::array<int64_t, kMaxDomainDims> at_{};
};

}  // namespace hologram::circuit
