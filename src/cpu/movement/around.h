// SPDX-License-Identifier: MIT
// What the kernels that move elements by index share.
#pragma once

#include "hologram/error.h"
#include "hologram/indexing.h"
#include "src/cpu/device/dense_view.h"

namespace hologram::cpu {

// A dense tensor as [outer, size, inner] around a dimension.
struct Around {
  int64_t outer, size, inner;

  Around(const View& view, int64_t dim)
      : outer(elements_of(view, 0, static_cast<int>(dim))),
        size(view.shape[dim]),
        inner(elements_of(view, static_cast<int>(dim) + 1, view.ndim)) {}
};

inline Positions positions_of(const View& view) { return {view.data, view.dtype, view.numel()}; }
inline int64_t item_bytes(const View& view) { return static_cast<int64_t>(itemsize(view.dtype)); }

// f(index) with the positions under their own type.
template <class F>
void with_index(const Positions& positions, F&& f) {
  if (positions.dtype == Dtype::kInt64) {
    f(static_cast<const int64_t*>(positions.data));
  } else {
    f(static_cast<const int32_t*>(positions.data));
  }
}

inline void check_index(const char* what, const Positions& positions) {
  if (positions.dtype != Dtype::kInt64 && positions.dtype != Dtype::kInt32) {
    fail(ErrorKind::kTypeMismatch, what, ": positions are int64 or int32, not ",
         dtype_name(positions.dtype));
  }
}

[[noreturn]] inline void fail_outside(int64_t size) {
  fail(ErrorKind::kIndex, "an index is outside a dimension of size ", size);
}
// Most callers have looked already; those that replay a graph have not.
inline void check_inside(const View& index, int64_t size) {
  if (!positions_within(positions_of(index), -size, size)) fail_outside(size);
}

}  // namespace hologram::cpu
