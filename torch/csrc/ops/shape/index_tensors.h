// SPDX-License-Identifier: MIT
// Index tensors: what they may be, and their bytes, which an op has to see before it may wait.
#pragma once

#include "hologram/indexing.h"
#include "ops/nn/norm.h"
#include "recording/record_call.h"

namespace hologram_torch {

inline bool is_position(const at::Tensor& t) {
  return is_dense(t) && (t.scalar_type() == at::kLong || t.scalar_type() == at::kInt);
}

// Whether the op that is given an index tensor can see what is in it.
inline bool is_seen(const at::Tensor& index) {
  return is_on_host(index) && !hologram::is_capturing_graph();
}

inline hologram::Positions positions_of(const at::Tensor& index) {
  return {read_pointer(index), dtype_of(index), index.numel()};
}

// Whether all positions are inside. Where they cannot be seen at the call, while a graph is
// captured and on devices with memory of their own, true: the kernel checks them when it runs.
inline bool are_within(const at::Tensor& index, int64_t low, int64_t high) {
  return !is_seen(index) || hologram::positions_within(positions_of(index), low, high);
}

// The elements of t, broadcast to sizes, in row-major order, now: an index out of range is an error
// of the call that was given it. Later, where it is not seen at the call.
at::Tensor settled_rows(const at::Tensor& t, c10::IntArrayRef sizes, at::ScalarType type);
inline at::Tensor settled_rows(const at::Tensor& t) {
  return settled_rows(t, t.sizes(), t.scalar_type());
}

// A contiguous tensor as [outer, size, inner] around its dimensions [first, last).
struct Around {
  int64_t outer = 1, size = 1, inner = 1;

  Around() = default;
  Around(const at::Tensor& t, int64_t first, int64_t last) {
    for (int64_t d = 0; d < t.dim(); ++d) {
      (d < first ? outer : d < last ? size : inner) *= t.size(d);
    }
  }
  Around(const at::Tensor& t, int64_t dim) : Around(t, dim, dim + 1) {}

  std::array<int64_t, 3> sizes() const { return {outer, size, inner}; }
};

// out[o, k, :] = in[o, index[k], :], where index is dense and has been found to be valid.
void take_rows(const at::Tensor& in, const Around& shape, const at::Tensor& index,
               const at::Tensor& out);

}  // namespace hologram_torch
