// SPDX-License-Identifier: MIT
// Scaled dot-product attention, forward and backward, without the matrix of all scores in memory.
#pragma once

#include <cstdint>

#include "hologram/dtype.h"

namespace hologram {

// Steps in elements between batches, heads and rows; the elements of a row are contiguous.
struct AttentionStrides {
  int64_t batch = 0, head = 0, row = 0;
};

// softmax(scale Q K^T + mask) V for each batch and head, float32 or float64. Q has `queries` rows
// of `dim` elements, K and V have `keys` rows of `dim` and `value_dim`. Query head h reads head h /
// (heads / kv_heads) of K and V. Causal: query i sees keys 0 to i.
struct AttentionArgs {
  Dtype dtype = Dtype::kFloat32;
  bool causal = false;
  int64_t batch = 0, heads = 0, kv_heads = 0;
  int64_t queries = 0, keys = 0, dim = 0, value_dim = 0;
  double scale = 1.0;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  AttentionStrides q_strides, k_strides, v_strides;
  // Added to the scaled scores; null for none. Any stride may be 0; mask_col is 0 or 1.
  const void* mask = nullptr;
  AttentionStrides mask_strides;
  int64_t mask_col = 0;
  int max_threads = 0;  // 0: num_threads()
};

// `logsumexp` holds per query the logarithm of the sum of the exponentials of its scores, which the
// backward pass wants. A query all of whose scores are -inf gives zeros, and 0 as logsumexp.
struct AttentionOutput {
  void* out = nullptr;
  AttentionStrides out_strides;
  void* logsumexp = nullptr;
  AttentionStrides logsumexp_strides;
};

// Gradients of Q, K and V from that of the output. `result` is what attention() wrote.
struct AttentionGradients {
  AttentionOutput result;
  const void* grad = nullptr;
  AttentionStrides grad_strides;
  void* grad_q = nullptr;
  void* grad_k = nullptr;
  void* grad_v = nullptr;
  AttentionStrides grad_q_strides, grad_k_strides, grad_v_strides;
};

// Both have the same bits for any number of threads. What they write must overlap nothing else.
// Error(kInvalidArgument) for negative sizes, heads that kv_heads does not divide and missing
// operands, Error(kNotSupported) for other dtypes.
void attention(const AttentionArgs& args, const AttentionOutput& output);
void attention_backward(const AttentionArgs& args, const AttentionGradients& gradients);

}  // namespace hologram
