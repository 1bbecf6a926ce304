// SPDX-License-Identifier: MIT
// What nn.MultiheadAttention and nn.TransformerEncoderLayer call without gradients: recorded as the
// linear layers, attention, norms and activations that they consist of. A nested tensor, which
// nn.TransformerEncoder makes of a batch with padding, is computed as the rows that it has.
#include <ATen/Functions.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <vector>

#include "host/alias.h"
#include "recording/autograd_bypass.h"
#include "recording/native_common.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool is_matrix(const Tensor& t, at::ScalarType type, int64_t rows, int64_t cols) {
  return is_dense(t) && t.scalar_type() == type && t.dim() == 2 && t.size(0) == rows &&
         t.size(1) == cols;
}
bool is_vector(const Tensor& t, at::ScalarType type, int64_t size) {
  return is_dense(t) && t.scalar_type() == type && t.dim() == 1 && t.size(0) == size;
}

// The weights of an attention layer: rows of queries, keys and values one after another.
struct AttentionLayer {
  int64_t width, heads;
  const Tensor &weight, &bias, &out_weight, &out_bias;

  int64_t head_width() const { return width / heads; }
  bool takes(at::ScalarType type) const {
    return (type == at::kFloat || type == at::kDouble) && heads > 0 && width % heads == 0 &&
           is_matrix(weight, type, 3 * width, width) && is_vector(bias, type, 3 * width) &&
           is_matrix(out_weight, type, width, width) && is_vector(out_bias, type, width);
  }
  bool takes(const Tensor& input) const {
    return is_dense(input) && input.dim() == 3 && input.numel() > 0 && input.size(2) == width &&
           takes(input.scalar_type());
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

  // Of rows of several sequences, one after another.
  Tensor run_rows(const Tensor& rows, at::IntArrayRef lengths) const {
    const Tensor product = at::linear(rows, weight, bias);
    std::vector<Tensor> mixed;
    int64_t first = 0;
    for (const int64_t length : lengths) {
      if (length == 0) continue;
      const Tensor own = product.narrow(0, first, length).unsqueeze(0);
      first += length;
      const Tensor result =
          at::scaled_dot_product_attention(by_heads(own, 0), by_heads(own, 1), by_heads(own, 2));
      mixed.push_back(result.transpose(1, 2).reshape({length, width}));
    }
    return at::linear(mixed.size() == 1 ? mixed[0] : at::cat(mixed), out_weight, out_bias);
  }

  // The result, and the weights of attention where they are asked for. mask: of the scores that do
  // not count, or undefined.
  std::tuple<Tensor, Tensor> run(const Tensor& query, const Tensor& key, const Tensor& value,
                                 const Tensor& mask, bool need_weights, bool average) const {
    Tensor q, k, v, weights, mixed;
    if (key.is_same(query) && value.is_same(query)) {
      const Tensor product = at::linear(query, weight, bias);
      q = by_heads(product, 0), k = by_heads(product, 1), v = by_heads(product, 2);
    } else {
      q = project(query, 0), k = project(key, 1), v = project(value, 2);
    }
    if (need_weights) {
      const double scale = 1 / std::sqrt(static_cast<double>(head_width()));
      Tensor scores = at::matmul(at::mul(q, scale), k.transpose(2, 3));
      if (mask.defined()) {
        scores = at::masked_fill(scores, mask, -std::numeric_limits<double>::infinity());
      }
      weights = at::softmax(scores, -1);
      mixed = at::matmul(weights, v);
      if (average) weights = at::mean(weights, {1});
    } else {
      const OptionalTensor kept =
          mask.defined() ? OptionalTensor(at::logical_not(mask)) : std::nullopt;
      mixed = at::scaled_dot_product_attention(q, k, v, kept);
      if (mask.defined()) {
        // As cpu gives them in this layer.
        mixed = at::masked_fill(mixed, at::all(mask, -1, /*keepdim=*/true),
                                std::numeric_limits<double>::quiet_NaN());
      }
    }
    const Tensor rows = mixed.transpose(1, 2).reshape({query.size(0), query.size(1), width});
    return {at::linear(rows, out_weight, out_bias), std::move(weights)};
  }
};

// A mask of `input` as one of its scores, undefined where none is given, or nothing where it is not
// of the shape that its type says: 0, queries x keys; 1, batch x keys; 2, a mask for each score. As
// on cpu, what is not 0 masks.
std::optional<Tensor> mask_of_scores(const OptionalTensor& mask, std::optional<int64_t> type,
                                     const Tensor& input, int64_t heads) {
  if (!is_given(mask)) return Tensor();
  if (!is_dense(*mask)) return std::nullopt;
  const int64_t batch = input.size(0), length = input.size(1);
  const Tensor there = mask->to(at::kBool);
  switch (type.value_or(2)) {
    case 0:
      if (there.sizes() == at::IntArrayRef({length, length})) return there;
      return std::nullopt;
    case 1:
      if (there.sizes() != at::IntArrayRef({batch, length})) return std::nullopt;
      return there.unsqueeze(1).unsqueeze(1);
    case 2:
      if (there.sizes() == at::IntArrayRef({batch, heads, length, length})) return there;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::tuple<Tensor, Tensor> multi_head_attention(const Tensor& query, const Tensor& key,
                                                const Tensor& value, int64_t width, int64_t heads,
                                                const Tensor& weight, const Tensor& bias,
                                                const Tensor& out_weight, const Tensor& out_bias,
                                                const OptionalTensor& mask, bool need_weights,
                                                bool average, std::optional<int64_t> mask_type) {
  const AttentionLayer layer{width, heads, weight, bias, out_weight, out_bias};
  const auto agrees = [&](const Tensor& t) {
    return is_dense(t) && t.scalar_type() == query.scalar_type() && t.sizes() == query.sizes();
  };
  if (layer.takes(query) && agrees(key) && agrees(value)) {
    BelowAutograd guard;
    if (const auto masked = mask_of_scores(mask, mask_type, query, heads)) {
      return layer.run(query, key, value, *masked, need_weights, average);
    }
  }
  auto stack = call_fallback<"_native_multi_head_attention">(
      query, key, value, width, heads, weight, bias, out_weight, out_bias, mask, need_weights,
      average, mask_type);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

// The rows of a nested tensor of sequences of rows of this width, and how many each has; undefined
// where it has none, or they do not lie one after another.
Tensor rows_of(const Tensor& nested, int64_t width, std::vector<int64_t>& lengths) {
  const auto* impl = at::native::get_nested_tensor_impl(nested);
  const Tensor& sizes = impl->get_nested_sizes();
  if (sizes.dim() != 2 || sizes.size(1) != 2 ||
      !at::native::nested_tensor_impl_is_contiguous(impl)) {
    return {};
  }
  const int64_t* size = sizes.const_data_ptr<int64_t>();
  int64_t count = 0;
  for (int64_t i = 0; i < sizes.size(0); ++i, size += 2) {
    if (size[1] != width) return {};
    lengths.push_back(size[0]);
    count += size[0];
  }
  const Tensor buffer = impl->get_buffer();
  if (count == 0 || !is_dense(buffer) || buffer.numel() != count * width) return {};
  return buffer.view({count, width});
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
  const bool takes_weights =
      layer.takes(type) && is_vector(norm_weight, type, width) &&
      is_vector(norm_bias, type, width) && is_vector(second_norm_weight, type, width) &&
      is_vector(second_norm_bias, type, width) && is_matrix(inner_weight, type, inner, width) &&
      is_vector(inner_bias, type, inner) && is_matrix(outer_weight, type, width, inner) &&
      is_vector(outer_bias, type, width);
  // The layer around `attend`, of rows of any shape.
  const auto around = [&](const Tensor& x, const auto& attend) {
    const auto first = [&](const Tensor& t) {
      return at::layer_norm(t, {width}, norm_weight, norm_bias, eps);
    };
    const auto second = [&](const Tensor& t) {
      return at::layer_norm(t, {width}, second_norm_weight, second_norm_bias, eps);
    };
    const auto feed_forward = [&](const Tensor& t) {
      const Tensor hidden = at::linear(t, inner_weight, inner_bias);
      return at::linear(use_gelu ? at::gelu(hidden) : at::relu(hidden), outer_weight, outer_bias);
    };
    if (norm_first) {
      const Tensor y = at::add(attend(first(x)), x);
      return at::add(feed_forward(second(y)), y);
    }
    const Tensor y = first(at::add(attend(x), x));
    return second(at::add(feed_forward(y), y));
  };
  if (takes_weights && input.is_nested() && !is_given(mask)) {
    std::vector<int64_t> lengths;
    if (const Tensor rows = rows_of(input, width, lengths); rows.defined()) {
      BelowAutograd guard;
      const Tensor result =
          around(rows, [&](const Tensor& x) { return layer.run_rows(x, lengths); });
      return at::native::wrap_buffer(result.flatten(),
                                     at::native::get_nested_tensor_impl(input)->get_nested_sizes());
    }
  } else if (takes_weights && !input.is_nested() && layer.takes(input)) {
    BelowAutograd guard;
    if (const auto masked = mask_of_scores(mask, mask_type, input, heads)) {
      return around(input, [&](const Tensor& x) {
        return std::get<0>(layer.run(x, x, x, *masked, false, true));
      });
    }
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

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("_transformer_encoder_layer_fwd", TORCH_FN(hologram_torch::encoder_layer));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&multi_head_attention>(m, "_native_multi_head_attention");
  register_native<&encoder_layer>(m, "_transformer_encoder_layer_fwd");
}
