// SPDX-License-Identifier: MIT
// Scaled dot-product attention: the library's for float32 and float64, PyTorch's blocked CPU kernel
// for the half types, and the composite of products and softmax for what neither takes.
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <cmath>

#include "alias.h"
#include "generator.h"
#include "hologram/attention.h"
#include "load.h"
#include "native_common.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The fused entry takes what the CPU's blocked kernel takes; everything else is composed of matmul
// and softmax, which is differentiable any number of times.
int64_t fused_sdp_choice(const Tensor& query, const Tensor& key, const Tensor& value,
                         const OptionalTensor& mask, double dropout, bool is_causal,
                         std::optional<double> scale, bool enable_gqa) {
  constexpr auto kMath = static_cast<int64_t>(at::SDPBackend::math);
  if (query.layout() != at::kStrided || query.is_nested() || key.is_nested()) return kMath;
  const bool mask_needs_grad =
      mask.has_value() && mask->requires_grad() && at::GradMode::is_enabled();
  if (mask_needs_grad) return kMath;
  AliasScope scope;
  const int64_t choice =
      at::_fused_sdp_choice(scope.to_cpu(query), scope.to_cpu(key), scope.to_cpu(value),
                            scope.to_cpu(mask), dropout, is_causal, scale, enable_gqa);
  return choice == static_cast<int64_t>(at::SDPBackend::flash_attention)
             ? static_cast<int64_t>(at::SDPBackend::overrideable)
             : kMath;
}

// Rows of elements that lie side by side, as the library takes them.
bool has_rows(const Tensor& t, at::ScalarType type) {
  return is_plain(t) && t.scalar_type() == type && t.dim() == 4 &&
         (t.stride(3) == 1 || t.size(3) <= 1);
}

// What the library takes: everything that fused_sdp_choice lets in, but for the half types.
bool takes(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& bias,
           double dropout) {
  const at::ScalarType type = query.scalar_type();
  if ((type != at::kFloat && type != at::kDouble) || dropout != 0 || !has_rows(query, type) ||
      !has_rows(key, type) || !has_rows(value, type)) {
    return false;
  }
  const int64_t batch = query.size(0), heads = query.size(1), shared = key.size(1);
  if (key.size(0) != batch || value.size(0) != batch || value.size(1) != shared ||
      key.size(2) != value.size(2) || key.size(3) != query.size(3) ||
      (heads > 0 && (shared == 0 || heads % shared != 0))) {
    return false;
  }
  if (!bias.has_value() || !bias->defined()) return true;
  const std::array<int64_t, 4> scores{batch, heads, query.size(2), key.size(2)};
  return is_plain(*bias) && at::isFloatingType(bias->scalar_type()) && bias->dim() <= 4 &&
         at::is_expandable_to(bias->sizes(), scores);
}

hologram::AttentionStrides strides_of(const Tensor& t) {
  return {t.stride(0), t.stride(1), t.stride(2)};
}

// The arguments of the library, and what they point into.
struct Arguments {
  hologram::AttentionArgs args;
  Tensor mask;

  Arguments(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& bias,
            bool is_causal, std::optional<double> scale) {
    args.dtype = static_cast<hologram::Dtype>(dtype_code(query.scalar_type()));
    args.causal = is_causal;
    args.batch = query.size(0), args.heads = query.size(1), args.kv_heads = key.size(1);
    args.queries = query.size(2), args.keys = key.size(2);
    args.dim = query.size(3), args.value_dim = value.size(3);
    args.scale = scale.has_value() ? *scale : 1 / std::sqrt(static_cast<double>(args.dim));
    args.q = read_pointer(query), args.q_strides = strides_of(query);
    args.k = read_pointer(key), args.k_strides = strides_of(key);
    args.v = read_pointer(value), args.v_strides = strides_of(value);
    args.max_threads = at::get_num_threads();
    if (!bias.has_value() || !bias->defined()) return;
    mask = bias->to(query.scalar_type());
    mask = mask.expand({args.batch, args.heads, args.queries, args.keys});
    if (mask.stride(3) > 1 && args.keys > 1) mask = mask.contiguous();
    args.mask = read_pointer(mask), args.mask_strides = strides_of(mask);
    args.mask_col = args.keys > 1 ? mask.stride(3) : 0;
  }
};

// A tensor whose rows of one head are as far apart as all heads are wide, as PyTorch's kernel makes
// them: layers join the heads again.
Tensor make_alternating(int64_t batch, int64_t heads, int64_t rows, int64_t dim,
                        at::ScalarType type) {
  return make_strided({batch, heads, rows, dim}, {heads * rows * dim, dim, heads * dim, 1}, type);
}

using Forward =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

std::tuple<Tensor, Tensor> own_attention(const Tensor& query, const Tensor& key,
                                         const Tensor& value, const OptionalTensor& bias,
                                         bool is_causal, std::optional<double> scale) {
  const Arguments given(query, key, value, bias, is_causal, scale);
  const hologram::AttentionArgs& args = given.args;
  const at::ScalarType type = query.scalar_type();
  // As PyTorch's kernel gives them: the output as the queries lie, the logsumexp of all heads of a
  // query side by side.
  const bool alternating = query.stride(1) < query.stride(2);
  Tensor out = alternating
                   ? make_alternating(args.batch, args.heads, args.queries, args.value_dim, type)
                   : make_tensor({args.batch, args.heads, args.queries, args.value_dim}, type);
  Tensor logsumexp = make_strided({args.batch, args.heads, args.queries},
                                  {args.queries * args.heads, 1, args.heads}, type);
  hologram::attention(args, {.out = write_pointer(out),
                             .out_strides = strides_of(out),
                             .logsumexp = write_pointer(logsumexp),
                             .logsumexp_strides = strides_of(logsumexp)});
  return {std::move(out), std::move(logsumexp)};
}

std::tuple<Tensor, Tensor> torch_attention(const Tensor& query, const Tensor& key,
                                           const Tensor& value, const OptionalTensor& bias,
                                           double dropout, bool is_causal,
                                           std::optional<double> scale) {
  AliasScope scope;
  BelowAutograd guard;
  LoadGuard load;
  auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      scope.to_cpu(query), scope.to_cpu(key), scope.to_cpu(value), dropout, is_causal,
      scope.to_cpu(bias), scale);
  return {scope.to_device(std::move(output)), scope.to_device(std::move(logsumexp))};
}

Forward attention(const Tensor& query, const Tensor& key, const Tensor& value,
                  const OptionalTensor& bias, double dropout, bool is_causal,
                  bool /*return_debug_mask*/, std::optional<double> scale) {
  auto [output, logsumexp] =
      takes(query, key, value, bias, dropout)
          ? own_attention(query, key, value, bias, is_causal, scale)
          : torch_attention(query, key, value, bias, dropout, is_causal, scale);
  return {std::move(output),
          std::move(logsumexp),
          Tensor(),
          Tensor(),
          c10::SymInt(query.size(2)),
          c10::SymInt(key.size(2)),
          make_tensor({}, at::kLong),
          make_tensor({}, at::kLong),
          Tensor()};
}

using Backward = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Backward own_backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                      const Tensor& value, const OptionalTensor& bias, const Tensor& output,
                      const Tensor& logsumexp, bool is_causal, std::optional<double> scale) {
  const Arguments given(query, key, value, bias, is_causal, scale);
  const hologram::AttentionArgs& args = given.args;
  const at::ScalarType type = query.scalar_type();
  const Tensor rows = has_rows(grad, type) ? grad : grad.contiguous();
  const Tensor grad_q = make_alternating(args.batch, args.heads, args.queries, args.dim, type);
  const Tensor grad_k = make_alternating(args.batch, args.kv_heads, args.keys, args.dim, type);
  const Tensor grad_v =
      make_alternating(args.batch, args.kv_heads, args.keys, args.value_dim, type);
  hologram::AttentionGradients gradients;
  gradients.result = {.out = const_cast<char*>(read_pointer(output)),
                      .out_strides = strides_of(output),
                      .logsumexp = const_cast<char*>(read_pointer(logsumexp)),
                      .logsumexp_strides = strides_of(logsumexp)};
  gradients.grad = read_pointer(rows), gradients.grad_strides = strides_of(rows);
  gradients.grad_q = write_pointer(grad_q), gradients.grad_q_strides = strides_of(grad_q);
  gradients.grad_k = write_pointer(grad_k), gradients.grad_k_strides = strides_of(grad_k);
  gradients.grad_v = write_pointer(grad_v), gradients.grad_v_strides = strides_of(grad_v);
  hologram::attention_backward(args, gradients);
  return {grad_q, grad_k, grad_v, Tensor()};
}

Backward attention_backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                            const Tensor& value, const Tensor& bias, std::array<bool, 4> /*mask*/,
                            const Tensor& output, const Tensor& logsumexp,
                            const Tensor& /*cum_seq_q*/, const Tensor& /*cum_seq_k*/,
                            int64_t /*max_q*/, int64_t /*max_k*/, double dropout, bool is_causal,
                            const Tensor& /*philox_seed*/, const Tensor& /*philox_offset*/,
                            std::optional<double> scale) {
  const OptionalTensor mask = bias.defined() ? OptionalTensor(bias) : std::nullopt;
  const at::ScalarType type = query.scalar_type();
  if (takes(query, key, value, mask, dropout) && is_plain(grad) && grad.scalar_type() == type &&
      has_rows(output, type) && is_plain(logsumexp) && logsumexp.scalar_type() == type &&
      logsumexp.dim() == 3) {
    return own_backward(grad, query, key, value, mask, output, logsumexp, is_causal, scale);
  }
  AliasScope scope;
  BelowAutograd guard;
  LoadGuard load;
  auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      scope.to_cpu(grad), scope.to_cpu(query), scope.to_cpu(key), scope.to_cpu(value),
      scope.to_cpu(output), scope.to_cpu(logsumexp), dropout, is_causal, scope.to_cpu(mask), scale);
  return {scope.to_device(std::move(grad_q)), scope.to_device(std::move(grad_k)),
          scope.to_device(std::move(grad_v)), Tensor()};
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  m.impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice));
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(attention_backward));
}

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &hologram_torch::fused_sdp_choice)
}  // namespace at::native
