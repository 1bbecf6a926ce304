// SPDX-License-Identifier: MIT
// What nn.MultiheadAttention and nn.TransformerEncoderLayer call without gradients: recorded as the
// linear layers, attention, norms and activations that they consist of. Masks and nested tensors
// are left to PyTorch's CPU kernels.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <cmath>

#include "dispatch/alias.h"
#include "dispatch/autograd_bypass.h"
#include "recording/native_common.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool is_matrix(const Tensor& t, at::ScalarType type, int64_t rows, int64_t cols) {
  return is_plain(t) && t.scalar_type() == type && t.dim() == 2 && t.size(0) == rows &&
         t.size(1) == cols;
}
bool is_vector(const Tensor& t, at::ScalarType type, int64_t size) {
  return is_plain(t) && t.scalar_type() == type && t.dim() == 1 && t.size(0) == size;
}

// The weights of an attention layer: rows of queries, keys and values one after another.
struct AttentionLayer {
  int64_t width, heads;
  const Tensor &weight, &bias, &out_weight, &out_bias;

  int64_t head_width() const { return width / heads; }
  bool takes(const Tensor& input) const {
    const at::ScalarType type = input.scalar_type();
    return (type == at::kFloat || type == at::kDouble) && is_plain(input) && input.dim() == 3 &&
           input.numel() > 0 && input.size(2) == width && heads > 0 && width % heads == 0 &&
           is_matrix(weight, type, 3 * width, width) && is_vector(bias, type, 3 * width) &&
           is_matrix(out_weight, type, width, width) && is_vector(out_bias, type, width);
  }

  // Part `which` of the product of queries, keys and values, by heads.
  Tensor by_heads(const Tensor& product, int64_t which) const {
    const Tensor part = product.narrow(2, which * width, width);
    return part.view({part.size(0), part.size(1), heads, head_width()}).transpose(1, 2);
  }
  Tensor project(const Tensor& input, int64_t which) const {
    const Tensor product = at::linear(input, weight.narrow(0, which * width, width),
                                      bias.narrow(0, which * width, width));
    return by_heads(product, 0);
  }

  // The result, and the weights of attention where they are asked for.
  std::tuple<Tensor, Tensor> run(const Tensor& query, const Tensor& key, const Tensor& value,
                                 bool need_weights, bool average) const {
    Tensor q, k, v, weights, mixed;
    if (key.is_same(query) && value.is_same(query)) {
      const Tensor product = at::linear(query, weight, bias);
      q = by_heads(product, 0), k = by_heads(product, 1), v = by_heads(product, 2);
    } else {
      q = project(query, 0), k = project(key, 1), v = project(value, 2);
    }
    if (need_weights) {
      const double scale = 1 / std::sqrt(static_cast<double>(head_width()));
      weights = at::softmax(at::matmul(at::mul(q, scale), k.transpose(2, 3)), -1);
      mixed = at::matmul(weights, v);
      if (average) weights = at::mean(weights, {1});
    } else {
      mixed = at::scaled_dot_product_attention(q, k, v);
    }
    const Tensor rows = mixed.transpose(1, 2).reshape({query.size(0), query.size(1), width});
    return {at::linear(rows, out_weight, out_bias), std::move(weights)};
  }
};

std::tuple<Tensor, Tensor> multi_head_attention(const Tensor& query, const Tensor& key,
                                                const Tensor& value, int64_t width, int64_t heads,
                                                const Tensor& weight, const Tensor& bias,
                                                const Tensor& out_weight, const Tensor& out_bias,
                                                const OptionalTensor& mask, bool need_weights,
                                                bool average, std::optional<int64_t> mask_type) {
  const AttentionLayer layer{width, heads, weight, bias, out_weight, out_bias};
  const auto agrees = [&](const Tensor& t) {
    return is_plain(t) && t.scalar_type() == query.scalar_type() && t.sizes() == query.sizes();
  };
  if (!is_given(mask) && layer.takes(query) && agrees(key) && agrees(value)) {
    BelowAutograd guard;
    return layer.run(query, key, value, need_weights, average);
  }
  auto stack = call_fallback<"_native_multi_head_attention">(
      query, key, value, width, heads, weight, bias, out_weight, out_bias, mask, need_weights,
      average, mask_type);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

Tensor encoder_layer(const Tensor& input, int64_t width, int64_t heads, const Tensor& weight,
                     const Tensor& bias, const Tensor& out_weight, const Tensor& out_bias,
                     bool use_gelu, bool norm_first, double eps, const Tensor& norm_weight,
                     const Tensor& norm_bias, const Tensor& second_norm_weight,
                     const Tensor& second_norm_bias, const Tensor& inner_weight,
                     const Tensor& inner_bias, const Tensor& outer_weight, const Tensor& outer_bias,
                     const OptionalTensor& mask, std::optional<int64_t> mask_type) {
  const AttentionLayer layer{width, heads, weight, bias, out_weight, out_bias};
  const at::ScalarType type = input.scalar_type();
  const int64_t inner = inner_weight.dim() == 2 ? inner_weight.size(0) : 0;
  if (!is_given(mask) && layer.takes(input) && is_vector(norm_weight, type, width) &&
      is_vector(norm_bias, type, width) && is_vector(second_norm_weight, type, width) &&
      is_vector(second_norm_bias, type, width) && is_matrix(inner_weight, type, inner, width) &&
      is_vector(inner_bias, type, inner) && is_matrix(outer_weight, type, width, inner) &&
      is_vector(outer_bias, type, width)) {
    BelowAutograd guard;
    const auto first = [&](const Tensor& x) {
      return at::layer_norm(x, {width}, norm_weight, norm_bias, eps);
    };
    const auto second = [&](const Tensor& x) {
      return at::layer_norm(x, {width}, second_norm_weight, second_norm_bias, eps);
    };
    const auto attend = [&](const Tensor& x) {
      return std::get<0>(layer.run(x, x, x, false, true));
    };
    const auto feed_forward = [&](const Tensor& x) {
      const Tensor hidden = at::linear(x, inner_weight, inner_bias);
      return at::linear(use_gelu ? at::gelu(hidden) : at::relu(hidden), outer_weight, outer_bias);
    };
    if (norm_first) {
      const Tensor x = at::add(attend(first(input)), input);
      return at::add(feed_forward(second(x)), x);
    }
    const Tensor x = first(at::add(attend(input), input));
    return second(at::add(feed_forward(x), x));
  }
  return std::move(call_fallback<"_transformer_encoder_layer_fwd">(
                       input, width, heads, weight, bias, out_weight, out_bias, use_gelu,
                       norm_first, eps, norm_weight, norm_bias, second_norm_weight,
                       second_norm_bias, inner_weight, inner_bias, outer_weight, outer_bias, mask,
                       mask_type)
                       .back())
      .toTensor();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&multi_head_attention>(m, "_native_multi_head_attention");
  register_native<&encoder_layer>(m, "_transformer_encoder_layer_fwd");
}
