// SPDX-License-Identifier: MIT
// Index tensors copied into rows, and rows gathered by them.
#include "ops/shape/index_tensors.h"

#include "hologram/elementwise.h"

namespace hologram_torch {
namespace {

struct TakeValues {
  Around shape;  // inner in bytes
};

void run_take(CallFrame& call) {
  const auto [outer, size, inner] = call.value<TakeValues>().shape;
  const hologram::Positions positions = take_positions(call);
  const char* in = call.memory();
  hologram::take(in, outer, size, inner, positions, call.memory(),
                 call.threads(outer * positions.n * inner / 4));
}

}  // namespace

at::Tensor settled_rows(const at::Tensor& t, c10::IntArrayRef sizes, at::ScalarType type) {
  if (t.scalar_type() == type && t.sizes() == sizes && t.is_contiguous()) return t;
  at::Tensor rows = make_tensor(sizes, type);
  if (rows.numel() == 0) return rows;
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
  Call call;
  TakeValues values{shape};
  values.shape.inner *= static_cast<int64_t>(in.itemsize());
  call.value(values);
  add_positions(call, index);
  call.memory(in, Access::reads);
  call.memory(out, Access::writes);
  call.run<"take", &run_take>(static_cast<double>(out.nbytes()) * 0.1);
}

}  // namespace hologram_torch
