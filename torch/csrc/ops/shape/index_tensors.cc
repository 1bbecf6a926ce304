// SPDX-License-Identifier: MIT
// Index tensors copied into rows, and rows gathered by them.
#include "ops/shape/index_tensors.h"

#include "hologram/elementwise.h"
#include "ops/shape/copy.h"

namespace hologram_torch {
at::Tensor settled_rows(const at::Tensor& t, c10::IntArrayRef sizes, at::ScalarType type) {
  if (t.scalar_type() == type && t.sizes() == sizes && t.is_contiguous()) return t;
  at::Tensor rows = new_empty(t, sizes, type);
  if (rows.numel() == 0) return rows;
  if (!is_seen(t)) {
    copy_into(rows, t.expand(sizes));
    return rows;
  }
  c10::SmallVector<int64_t, 6> strides(sizes.size(), 0);
  const size_t missing = sizes.size() - static_cast<size_t>(t.dim());
  for (size_t d = missing; d < sizes.size(); ++d) {
    const auto own = static_cast<int64_t>(d - missing);
    if (t.size(own) == sizes[d]) strides[d] = t.stride(own);
  }
  hologram::View from = read_view(t);
  from.ndim = static_cast<int>(sizes.size());
  from.shape = sizes.data();
  from.strides = strides.data();
  hologram::copy(from, write_view(rows), threads_for(rows.numel()));
  return rows;
}

void take_rows(const at::Tensor& in, const Around& shape, const at::Tensor& index,
               const at::Tensor& out) {
  if (out.numel() == 0) return;
  const auto sizes = shape.sizes();
  const int64_t count = index.numel();
  const int64_t taken[] = {sizes[0], count, sizes[2]};
  record(calls::Take<Arg>{.input = reshaped(in, sizes),
                          .index = reshaped(index, count),
                          .dim = 1,
                          .out = reshaped(written(out), taken)});
}

}  // namespace hologram_torch
