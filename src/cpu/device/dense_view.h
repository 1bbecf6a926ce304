// SPDX-License-Identifier: MIT
// Contiguous operands of calls under the shapes that kernels take: [n] or [rows, n].
#pragma once

#include <cstdint>

#include "hologram/view.h"

namespace hologram::cpu {

// The memory of a contiguous view under another shape of as many elements. Borrows nothing but the
// memory, which may be absent (null).
class DenseView {
 public:
  DenseView(const View& view, int64_t n) : sizes_{n}, strides_{1} { set(view, 1); }
  DenseView(const View& view, int64_t rows, int64_t n) : sizes_{rows, n}, strides_{n, 1} {
    set(view, 2);
  }
  DenseView(const DenseView&) = delete;
  DenseView& operator=(const DenseView&) = delete;

  operator const View&() const { return view_; }                                     // NOLINT
  operator const View*() const { return view_.data != nullptr ? &view_ : nullptr; }  // NOLINT

 private:
  void set(const View& view, int ndim) { view_ = {view.data, view.dtype, ndim, sizes_, strides_}; }

  int64_t sizes_[2], strides_[2];
  View view_;
};

// The elements of dimensions [first, last) of a view.
inline int64_t elements_of(const View& view, int first, int last) {
  int64_t n = 1;
  for (int d = first; d < last; ++d) n *= view.shape[d];
  return n;
}

}  // namespace hologram::cpu
