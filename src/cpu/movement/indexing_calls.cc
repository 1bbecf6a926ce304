// SPDX-License-Identifier: MIT
// The calls that move elements by index, join them and cut triangles: from the operands of a call
// to the kernels.
#include <algorithm>
#include <string>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/indexing.h"
#include "src/cpu/device/call_table.h"
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

void run(const calls::Take<>& call, CallThreads threads) {
  const Around around(call.input, call.dim);
  const int64_t inner = around.inner * item_bytes(call.input);
  check_inside(call.index, around.size);
  hologram::take(call.input.data, around.outer, around.size, inner, positions_of(call.index),
                 call.out.data, threads(around.outer * call.index.numel() * inner / 4));
}

void run(const calls::AddAt<>& call, CallThreads threads) {
  const View& self = call.self;
  const Around around(self, call.dim);
  check_inside(call.index, around.size);
  AddAtOptions options;
  options.max_threads = threads(call.source.numel());
  hologram::add_at(self.dtype, self.data, around.outer, around.size, around.inner,
                   positions_of(call.index), call.source.data, options);
}

void run(const calls::PutAt<>& call, CallThreads threads) {
  const View& self = call.self;
  const Around around(self, call.dim);
  check_inside(call.index, around.size);
  hologram::put_at(self.data, around.outer, around.size, around.inner * item_bytes(self),
                   positions_of(call.index), call.source.data, threads(call.source.numel()));
}

void run(const calls::EmbeddingBackward<>& call, CallThreads threads) {
  const View &grad = call.grad, &out = call.grad_weight;
  check_inside(call.indices, call.num_weights);
  AddAtOptions options;
  options.mean = call.scale_grad_by_freq;
  options.skipped = &call.padding_idx;
  options.max_threads = threads(grad.numel());
  hologram::fill(int64_t{0}, out, threads(out.numel()));
  hologram::add_at(grad.dtype, out.data, 1, call.num_weights, out.shape[1],
                   positions_of(call.indices), grad.data, options);
}

void run(const calls::Gather<>& call, CallThreads threads) {
  const Around around(call.input, call.dim);
  const GatherShape shape{around.outer, around.size, call.index.shape[call.dim], around.inner};
  if (!hologram::gather(call.input.data, item_bytes(call.input), shape,
                        static_cast<const int64_t*>(call.index.data), call.out.data,
                        threads(call.index.numel()))) {
    fail_outside(shape.size);
  }
}

void run(const calls::Scatter<>& call, CallThreads threads) {
  const View& self = call.self;
  const Around around(self, call.dim);
  const GatherShape shape{around.outer, around.size, call.index.shape[call.dim], around.inner};
  const auto* at = static_cast<const int64_t*>(call.index.data);
  const int most = threads(call.index.numel());
  const bool one = !call.source.has_data();
  const bool inside =
      call.add && !one
          ? hologram::scatter_add(self.dtype, self.data, shape, at, call.source.data, most)
          : hologram::scatter(self.data, item_bytes(self), shape, at,
                              one ? &call.element : call.source.data, one, most);
  if (!inside) fail_outside(shape.size);
}

// indices: dimensions from the first on, sizes[d] positions in each; all have as many positions as
// the result.
void run(const calls::JointPositions<>& call, CallThreads) {
  auto* const joint = static_cast<int64_t*>(call.out.data);
  const int64_t n = call.out.numel();
  std::fill_n(joint, n, 0);
  for (size_t d = 0; d < call.indices.size(); ++d) {
    const int64_t size = call.sizes[d];
    const auto* const at = static_cast<const int64_t*>(call.indices[d].data);
    if (!positions_within({at, Dtype::kInt64, n}, -size, size)) fail_outside(size);
    for (int64_t i = 0; i < n; ++i) joint[i] = joint[i] * size + (at[i] < 0 ? at[i] + size : at[i]);
  }
}

// A piece is [rows, width] elements; without data: zeros.
void run(const calls::Join<>& call, CallThreads threads) {
  std::vector<Piece> pieces;
  int64_t row = 0;
  for (const View& piece : call.pieces) {
    pieces.push_back({piece.data, piece.shape[1] * item_bytes(piece)});
    row += pieces.back().bytes;
  }
  hologram::join(pieces.data(), static_cast<int64_t>(pieces.size()), call.rows, call.out.data,
                 threads(call.rows * row / 4));
}

// begins[k]: the byte of the result where piece k's first element goes; strides: in the result, for
// each dimension of each piece.
void run(const calls::Place<>& call, CallThreads threads) {
  const int64_t* strides = call.strides.data();
  for (size_t k = 0; k < call.pieces.size(); ++k) {
    const View& from = call.pieces[k];
    hologram::copy(from,
                   {static_cast<char*>(call.out.data) + call.begins[k], call.out.dtype, from.ndim,
                    from.shape, strides},
                   threads(from.numel()));
    strides += from.ndim;
  }
}

void run(const calls::Triangle<>& call, CallThreads threads) {
  const View& in = call.input;
  const int64_t rows = in.shape[in.ndim - 2], cols = in.shape[in.ndim - 1];
  hologram::triangle(in.data, in.numel() / (rows * cols), rows, cols, item_bytes(in), call.diagonal,
                     call.upper, call.out.data, threads(in.numel()));
}

}  // namespace hologram::cpu
