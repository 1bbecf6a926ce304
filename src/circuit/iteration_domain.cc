// SPDX-License-Identifier: MIT
// Cuts loops until every operand steps evenly in them.
#include "src/circuit/iteration_domain.h"

namespace hologram::circuit {

bool Domain::cut(Size size) {
  if (size == 1 || size == n_) return true;
  int i = 0;
  while (i < cuts_ && at_[i] < size) ++i;
  if (i < cuts_ && at_[i] == size) return true;
  if (cuts_ + 1 >= kMaxDomainDims) return false;
  if (row_ > 0 && size < row_) return false;
  if (i > 0 && size % at_[i - 1] != 0) return false;
  if ((i < cuts_ ? at_[i] : n_) % size != 0) return false;
  for (int k = cuts_; k > i; --k) at_[k] = at_[k - 1];
  at_[i] = size;
  ++cuts_;
  return true;
}

bool Domain::add_scaled(const Map& map, Size scale) {
  if (map.numel() * scale != n_) return false;
  const Domain before = *this;
  Size size = scale;
  bool fits = cut(size);
  for (int i = 0; fits && i < map.count; ++i) {
    size *= map.parts[i].size;
    fits = cut(size);
  }
  if (!fits) *this = before;
  return fits;
}

bool Domain::has_rows_of(Size cols, Size group) const {
  if (n_ % cols != 0 || (row_ != 0 && row_ != cols)) return false;
  const int of_rows = cuts_ > 0 && at_[0] == cols ? 1 : 0;
  for (int i = of_rows; i < cuts_; ++i) {
    if (at_[i] % (cols * group) != 0) return false;
  }
  return of_rows == 1 || cuts_ + 1 < kMaxDomainDims;
}

bool Domain::set_row(Size row) {
  if (row_ == row) return true;
  if (row_ != 0 || row <= 0 || n_ % row != 0) return false;
  const Domain before = *this;
  if (cuts_ > 0 && at_[0] < row) return false;
  if (!cut(row)) {
    *this = before;
    return false;
  }
  row_ = row;
  return true;
}

bool Domain::merge(const Domain& other) {
  if (other.n_ != n_) return false;
  const Domain before = *this;
  bool fits = other.row_ == 0 || set_row(other.row_);
  for (int i = 0; fits && i < other.cuts_; ++i) fits = cut(other.at_[i]);
  if (!fits) *this = before;
  return fits;
}

void Domain::shape(std::array<Size, kMaxDomainDims>& shape) const {
  Size inside = 1;
  for (int i = 0; i <= cuts_; ++i) {
    const Size to = i < cuts_ ? at_[i] : n_;
    shape[cuts_ - i] = to / inside;
    inside = to;
  }
  if (trailing() != 0) shape[cuts_ + 1] = 1;
}

void Domain::strides(const Map& map, Rank rank, std::array<Size, kMaxDomainDims>& strides) const {
  strides.fill(0);
  if (rank == Rank::kOne) return;
  Size inside = 1;                                 // where the loop begins
  Size part_from = rank == Rank::kRow ? row_ : 1;  // where the part begins
  int part = 0;
  for (int i = 0; i <= cuts_; ++i) {
    const Size to = i < cuts_ ? at_[i] : n_;
    if (inside >= part_from && to > inside) {
      while (part < map.count && inside >= part_from * map.parts[part].size) {
        part_from *= map.parts[part].size;
        ++part;
      }
      if (part < map.count) {
        strides[cuts_ - i] = map.parts[part].stride * (inside / part_from);
      }
    }
    inside = to;
  }
}

}  // namespace hologram::circuit
