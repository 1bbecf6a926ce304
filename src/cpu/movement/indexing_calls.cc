// SPDX-License-Identifier: MIT
// The calls that move elements by index, join them and cut triangles: from the operands of a call
// to the kernels.
#include <algorithm>
#include <string>
#include <vector>

#include "hologram/call_frame.h"
#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/indexing.h"
#include "src/cpu/device/dense_view.h"

namespace hologram::cpu {
namespace {

// A dense tensor as [outer, size, inner] around a dimension.
struct Around {
  int64_t outer, size, inner;

  Around(const View& view, int64_t dim)
      : outer(elements_of(view, 0, static_cast<int>(dim))),
        size(view.shape[dim]),
        inner(elements_of(view, static_cast<int>(dim) + 1, view.ndim)) {}
};

Positions positions_of(const View& view) { return {view.data, view.dtype, view.numel()}; }
int64_t item_bytes(const View& view) { return static_cast<int64_t>(itemsize(view.dtype)); }

[[noreturn]] void fail_outside(int64_t size) {
  fail(ErrorKind::kIndex, "an index is outside a dimension of size ", size);
}
// Most callers have looked already; those that replay a graph have not.
void check_inside(const View& index, int64_t size) {
  if (!positions_within(positions_of(index), -size, size)) fail_outside(size);
}

}  // namespace

void run_take(CallFrame& call) {
  const View in = call.view(), index = call.view(), out = call.view();
  const Around around(in, call.integer());
  const int64_t inner = around.inner * item_bytes(in);
  check_inside(index, around.size);
  hologram::take(in.data, around.outer, around.size, inner, positions_of(index), out.data,
                 call.threads(around.outer * index.numel() * inner / 4));
}

void run_add_at(CallFrame& call) {
  const View self = call.view(), index = call.view(), source = call.view();
  const Around around(self, call.integer());
  check_inside(index, around.size);
  AddAtOptions options;
  options.max_threads = call.threads(source.numel());
  hologram::add_at(self.dtype, self.data, around.outer, around.size, around.inner,
                   positions_of(index), source.data, options);
}

void run_put_at(CallFrame& call) {
  const View self = call.view(), index = call.view(), source = call.view();
  const Around around(self, call.integer());
  check_inside(index, around.size);
  hologram::put_at(self.data, around.outer, around.size, around.inner * item_bytes(self),
                   positions_of(index), source.data, call.threads(source.numel()));
}

void run_embedding_backward(CallFrame& call) {
  const View grad = call.view(), indices = call.view(), out = call.view();
  const int64_t rows = call.integer(), padding = call.integer();
  check_inside(indices, rows);
  AddAtOptions options;
  options.mean = call.flag();
  options.skipped = &padding;
  options.max_threads = call.threads(grad.numel());
  hologram::fill(int64_t{0}, out, call.threads(out.numel()));
  hologram::add_at(grad.dtype, out.data, 1, rows, out.shape[1], positions_of(indices), grad.data,
                   options);
}

void run_gather(CallFrame& call) {
  const View in = call.view(), index = call.view(), out = call.view();
  const int64_t dim = call.integer();
  const Around around(in, dim);
  const GatherShape shape{around.outer, around.size, index.shape[dim], around.inner};
  if (!hologram::gather(in.data, item_bytes(in), shape, static_cast<const int64_t*>(index.data),
                        out.data, call.threads(index.numel()))) {
    fail_outside(shape.size);
  }
}

void run_scatter(CallFrame& call) {
  const View self = call.view(), index = call.view(), source = call.view();
  const int64_t dim = call.integer();
  const bool add = call.flag();
  const auto element = call.number<uint64_t>();
  const Around around(self, dim);
  const GatherShape shape{around.outer, around.size, index.shape[dim], around.inner};
  const auto* at = static_cast<const int64_t*>(index.data);
  const int threads = call.threads(index.numel());
  const bool one = source.data == nullptr;
  const bool inside =
      add && !one ? hologram::scatter_add(self.dtype, self.data, shape, at, source.data, threads)
                  : hologram::scatter(self.data, item_bytes(self), shape, at,
                                      one ? &element : source.data, one, threads);
  if (!inside) fail_outside(shape.size);
}

// Dimensions from the first on: the size of each, then as many positions in it as the result has; 0
// ends them.
void run_joint_positions(CallFrame& call) {
  const View out = call.view();
  auto* const joint = static_cast<int64_t*>(out.data);
  const int64_t n = out.numel();
  std::fill_n(joint, n, 0);
  while (const int64_t size = call.integer()) {
    const auto* const at = call.memory<const int64_t>();
    if (!positions_within({at, Dtype::kInt64, n}, -size, size)) fail_outside(size);
    for (int64_t i = 0; i < n; ++i) joint[i] = joint[i] * size + (at[i] < 0 ? at[i] + size : at[i]);
  }
}

// Pieces: the bytes of each row, then the memory, null for zeros; 0 bytes end them.
void run_join(CallFrame& call) {
  const View out = call.view();
  const int64_t rows = call.integer();
  std::vector<Piece> pieces;
  int64_t row = 0;
  while (const int64_t bytes = call.integer()) {
    pieces.push_back({call.memory(), bytes});
    row += bytes;
  }
  hologram::join(pieces.data(), static_cast<int64_t>(pieces.size()), rows, out.data,
                 call.threads(rows * row / 4));
}

// Pieces: 1, the byte of the result where the first element goes, a view, the strides there; 0 ends
// them.
void run_place(CallFrame& call) {
  const View out = call.view();
  while (call.flag()) {
    const int64_t begin = call.integer();
    const View from = call.view();
    int64_t strides[64];
    for (int d = 0; d < from.ndim; ++d) strides[d] = call.integer();
    hologram::copy(
        from, {static_cast<char*>(out.data) + begin, out.dtype, from.ndim, from.shape, strides},
        call.threads(from.numel()));
  }
}

void run_triangle(CallFrame& call) {
  const View in = call.view(), out = call.view();
  const int64_t rows = in.shape[in.ndim - 2], cols = in.shape[in.ndim - 1];
  const int64_t diagonal = call.integer();
  const bool upper = call.flag();
  hologram::triangle(in.data, in.numel() / (rows * cols), rows, cols, item_bytes(in), diagonal,
                     upper, out.data, call.threads(in.numel()));
}

}  // namespace hologram::cpu
