// SPDX-License-Identifier: MIT
// embedding and its dense gradient: rows taken, rows added.
#include <ATen/TensorUtils.h>

#include "ops/shape/index_tensors.h"

namespace hologram_torch {
namespace {

using at::Tensor;
Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx,
                 bool scale_grad_by_freq, bool sparse) {
  if (C10_LIKELY(is_dense(weight) && weight.dim() == 2 && weight.is_contiguous() &&
                 weight.numel() > 0 && is_position(indices))) {
    const Tensor index = settled_rows(indices);
    if (C10_LIKELY(are_within(index, 0, weight.size(0)))) {
      c10::SmallVector<int64_t, 5> sizes(indices.sizes().begin(), indices.sizes().end());
      sizes.push_back(weight.size(1));
      Tensor out = new_empty(weight, sizes);
      take_rows(weight, Around(weight, 0), index, out);
      return out;
    }
  }
  // Of two faults PyTorch names this one first.
  if (weight.device() != indices.device()) {
    at::checkScalarTypes("embedding", at::TensorArg(indices, "indices", 1), {at::kLong, at::kInt});
  }
  return call_fallback<"embedding">(weight, indices, padding_idx, scale_grad_by_freq, sparse)
      .back()
      .toTensor();
}

Tensor embedding_dense_backward(const Tensor& grad, const Tensor& indices, int64_t rows,
                                int64_t padding_idx, bool scale_grad_by_freq) {
  if (C10_LIKELY(is_dense_float(grad) && is_position(indices) && rows > 0 && grad.numel() > 0 &&
                 grad.dim() == indices.dim() + 1 &&
                 grad.sizes().slice(0, static_cast<size_t>(indices.dim())) == indices.sizes())) {
    const Tensor index = settled_rows(indices), values = dense_rows(grad);
    Tensor out = new_empty(grad, {rows, grad.size(-1)});
    // PyTorch refuses an index outside, unless it is the padding.
    if (C10_LIKELY(are_within(index, 0, rows))) {
      record(calls::EmbeddingBackward<Arg>{.grad = values,
                                           .indices = index,
                                           .num_weights = rows,
                                           .padding_idx = padding_idx,
                                           .scale_grad_by_freq = scale_grad_by_freq,
                                           .grad_weight = out});
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
