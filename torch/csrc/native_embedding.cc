// SPDX-License-Identifier: MIT
// embedding and its dense gradient: rows taken, rows added.
#include "hologram/indexing.h"
#include "native_norm.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using hologram::Positions;

bool is_index(const Tensor& t) {
  return is_plain(t) && (t.scalar_type() == at::kLong || t.scalar_type() == at::kInt);
}

Positions positions_of(const Tensor& index) {
  return {read_pointer(index), static_cast<hologram::Dtype>(dtype_code(index.scalar_type())),
          index.numel()};
}

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx,
                 bool scale_grad_by_freq, bool sparse) {
  if (C10_LIKELY(is_plain(weight) && weight.dim() == 2 && weight.is_contiguous() &&
                 weight.numel() > 0 && is_index(indices))) {
    const Tensor index = dense_rows(indices);
    if (C10_LIKELY(hologram::positions_within(positions_of(index), 0, weight.size(0)))) {
      c10::SmallVector<int64_t, 5> sizes(indices.sizes().begin(), indices.sizes().end());
      sizes.push_back(weight.size(1));
      Tensor out = make_tensor(sizes, weight.scalar_type());
      const char* from = read_pointer(weight);
      hologram::take(from, 1, weight.size(0),
                     weight.size(1) * static_cast<int64_t>(weight.itemsize()), positions_of(index),
                     write_pointer(out), threads_for(out.numel()));
      return out;
    }
  }
  return call_fallback<"embedding">(weight, indices, padding_idx, scale_grad_by_freq, sparse)
      .back()
      .toTensor();
}

Tensor embedding_dense_backward(const Tensor& grad, const Tensor& indices, int64_t rows,
                                int64_t padding_idx, bool scale_grad_by_freq) {
  if (C10_LIKELY(is_float_plain(grad) && is_index(indices) && rows > 0 && grad.numel() > 0 &&
                 grad.dim() == indices.dim() + 1 &&
                 grad.sizes().slice(0, static_cast<size_t>(indices.dim())) == indices.sizes())) {
    const Tensor index = dense_rows(indices), values = dense_rows(grad);
    Tensor out = make_tensor({rows, grad.size(-1)}, grad.scalar_type());
    // PyTorch refuses an index outside, unless it is the padding.
    if (C10_LIKELY(hologram::positions_within(positions_of(index), 0, rows) && native_zero(out))) {
      hologram::AddAtOptions options;
      options.mean = scale_grad_by_freq;
      options.skipped = &padding_idx;
      options.max_threads = threads_for(grad.numel());
      const char* from = read_pointer(values);
      hologram::add_at(static_cast<hologram::Dtype>(dtype_code(grad.scalar_type())),
                       write_pointer(out), 1, rows, grad.size(-1), positions_of(index), from,
                       options);
      return out;
    }
  }
  return call_fallback<"embedding_dense_backward">(grad, indices, rows, padding_idx,
                                                   scale_grad_by_freq)
      .back()
      .toTensor();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&embedding>(m, "embedding");
  register_native<&embedding_dense_backward>(m, "embedding_dense_backward");
}
