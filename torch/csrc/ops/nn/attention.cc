// SPDX-License-Identifier: MIT
// Scaled dot-product attention: the library's, which computes the half types in float32; PyTorch's
// blocked CPU kernel for the half types where there is much to do; and the composite of products
// and softmax for what neither takes.
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward_ops.h>
#include <torch/library.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "device/generator.h"
#include "device/openmp.h"
#include "host/alias.h"
#include "ops/nn/processor.h"
#include "recording/autograd_bypass.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Rows of elements that lie side by side, as the library takes them.
bool has_rows(const Tensor& t, at::ScalarType type) {
  return is_dense(t) && t.scalar_type() == type && t.dim() == 4 &&
         (t.stride(3) == 1 || t.size(3) <= 1);
}

// Whether the library takes these: floating heads of one size, whose keys the query heads share
// evenly.
bool takes_heads(const Tensor& query, const Tensor& key, const Tensor& value) {
  const at::ScalarType type = query.scalar_type();
  if (!at::isFloatingType(type) || at::elementSize(type) < 2 || !has_rows(query, type) ||
      !has_rows(key, type) || !has_rows(value, type)) {
    return false;
  }
  const int64_t batch = query.size(0), heads = query.size(1), shared = key.size(1);
  return key.size(0) == batch && value.size(0) == batch && value.size(1) == shared &&
         key.size(2) == value.size(2) && key.size(3) == query.size(3) &&
         (heads == 0 || (shared != 0 && heads % shared == 0));
}

// Whether PyTorch's CPU rules send these to its blocked kernel. Only said where that is certain;
// it reads no bytes, so nothing recorded has to run.
bool is_certainly_fused(const Tensor& query, const Tensor& key, const Tensor& value,
                        const OptionalTensor& mask, double dropout, bool is_causal,
                        bool enable_gqa) {
  if (!at::globalContext().userEnabledFlashSDP() || dropout != 0 ||
      !takes_heads(query, key, value) || value.size(3) != query.size(3) || query.size(2) == 0 ||
      key.size(2) == 0 || (query.size(1) != key.size(1) && !enable_gqa)) {
    return false;
  }
  if (!is_given(mask)) return true;
  const std::array<int64_t, 4> scores{query.size(0), query.size(1), query.size(2), key.size(2)};
  return !is_causal && (mask->dim() == 2 || mask->dim() == 4) &&
         at::is_expandable_to(mask->sizes(), scores);
}

// is_certainly_fused() for the tensors of a trace, whose sizes are symbols: questions that their
// names answer make no size a constant.
bool is_fused_in_trace(const Tensor& query, const Tensor& key, const Tensor& value,
                       const OptionalTensor& mask, bool is_causal, bool enable_gqa) {
  if (!at::globalContext().userEnabledFlashSDP() || !at::isFloatingType(query.scalar_type()) ||
      at::elementSize(query.scalar_type()) < 2) {
    return false;
  }
  for (const Tensor* t : {&query, &key, &value}) {
    if (t->dim() != 4 || t->scalar_type() != query.scalar_type() || t->sym_stride(3) != 1) {
      return false;
    }
  }
  const c10::SymInt batch = query.sym_size(0), heads = query.sym_size(1), shared = key.sym_size(1);
  const bool fits =
      key.sym_size(0) == batch && value.sym_size(0) == batch && value.sym_size(1) == shared &&
      key.sym_size(2) == value.sym_size(2) && key.sym_size(3) == query.sym_size(3) &&
      value.sym_size(3) == query.sym_size(3) && query.sym_size(2) != 0 && key.sym_size(2) != 0;
  if (!fits || (heads != shared && !(enable_gqa && shared != 0 && heads % shared == 0))) {
    return false;
  }
  if (!is_given(mask)) return true;
  if (is_causal || (mask->dim() != 2 && mask->dim() != 4)) return false;
  const std::array<c10::SymInt, 4> scores{batch, heads, query.sym_size(2), key.sym_size(2)};
  for (int64_t d = 1; d <= mask->dim(); ++d) {
    const c10::SymInt size = mask->sym_size(-d);
    if (size != scores[static_cast<size_t>(4 - d)] && size != 1) return false;
  }
  return true;
}

// The fused entry takes what the CPU's blocked kernel takes; everything else is composed of matmul
// and softmax, which is differentiable any number of times.
int64_t fused_sdp_choice(const Tensor& query, const Tensor& key, const Tensor& value,
                         const OptionalTensor& mask, double dropout, bool is_causal,
                         std::optional<double> scale, bool enable_gqa) {
  constexpr auto kMath = static_cast<int64_t>(at::SDPBackend::math);
  if (query.layout() != at::kStrided || query.is_nested() || key.is_nested()) return kMath;
  // Under torch.func.vmap: functorch has rules for what the composition is made of, not for ours.
  for (const Tensor* t : {&query, &key, &value}) {
    if (t->key_set().has(c10::DispatchKey::FuncTorchBatched)) return kMath;
  }
  if (mask.has_value() && mask->key_set().has(c10::DispatchKey::FuncTorchBatched)) return kMath;
  const bool mask_needs_grad =
      mask.has_value() && mask->requires_grad() && at::GradMode::is_enabled();
  // The CPU's rules send dropout there, too. Said here, for they want addresses, which the tensors
  // of a trace with symbolic sizes do not have.
  if (mask_needs_grad || dropout != 0) return kMath;
  constexpr auto kFused = static_cast<int64_t>(at::SDPBackend::overrideable);
  const auto in_trace = [&] {
    return is_fused_in_trace(query, key, value, mask, is_causal, enable_gqa) ? kFused : kMath;
  };
  if (has_symbols(query) || has_symbols(key) || has_symbols(value)) return in_trace();
  if (is_certainly_fused(query, key, value, mask, dropout, is_causal, enable_gqa)) return kFused;
  // The CPU is asked with tensors of its own, which have no values yet in a graph or a trace, and
  // which on other devices would be copies.
  if (hologram::is_capturing_graph() || !is_on_host(query) || is_of_python(query) ||
      is_of_python(key) || is_of_python(value) || (is_given(mask) && is_of_python(*mask))) {
    return in_trace();
  }
  AliasScope scope;
  // A mode sees no such question on cpu.
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::python_ks);
  const int64_t choice =
      at::_fused_sdp_choice(scope.to_cpu(query), scope.to_cpu(key), scope.to_cpu(value),
                            scope.to_cpu(mask), dropout, is_causal, scale, enable_gqa);
  return choice == static_cast<int64_t>(at::SDPBackend::flash_attention) ? kFused : kMath;
}

// Whether PyTorch's kernel takes the half types: it uses instructions for their products, and is
// faster from some length on. Measured with AMX; its backward pass is slower for longer.
bool is_long(const Tensor& query, const Tensor& key, bool backward) {
  constexpr int64_t kLongBackward = 65536, kLong = 32768, kLongWithTiles = 8192;
  // The instructions of the host's processor say nothing about another device.
  if (!is_half_type(query.scalar_type()) || !is_on_host(query)) return false;
  const bool tiles = has_bfloat16_tiles() && query.scalar_type() == at::kBFloat16;
  const int64_t length = std::min(query.size(2), key.size(2)) * query.size(3);
  const bool is = length >= (backward ? kLongBackward : tiles ? kLongWithTiles : kLong);
  return is && !captures_otherwise("attention of a half type that is this long");
}

// What the library takes of what fused_sdp_choice lets in.
bool takes(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& bias,
           double dropout, bool backward = false) {
  if (dropout != 0 || !takes_heads(query, key, value) || is_long(query, key, backward)) {
    return false;
  }
  if (!is_given(bias)) return true;
  const std::array<int64_t, 4> scores{query.size(0), query.size(1), query.size(2), key.size(2)};
  return is_dense(*bias) && at::isFloatingType(bias->scalar_type()) &&
         at::is_expandable_to(bias->sizes(), scores);
}

// The mask as the library takes it: in the dtype of the queries, its rows contiguous or one element
// repeated.
Tensor mask_of(const OptionalTensor& bias, const Tensor& query, const Tensor& key) {
  if (!is_given(bias)) return {};
  const Tensor mask = bias->to(query.scalar_type())
                          .expand({query.size(0), query.size(1), query.size(2), key.size(2)});
  return mask.size(3) > 1 && mask.stride(3) > 1 ? mask.contiguous() : mask;
}

double scale_of(const Tensor& query, std::optional<double> scale) {
  return scale.has_value() ? *scale : 1 / std::sqrt(static_cast<double>(query.size(3)));
}

// A tensor whose rows of one head are as far apart as all heads are wide, as PyTorch's kernel makes
// them: layers join the heads again.
Tensor make_alternating(int64_t batch, int64_t heads, int64_t rows, int64_t dim,
                        at::ScalarType type, c10::DeviceIndex index) {
  return make_strided({batch, heads, rows, dim}, {heads * rows * dim, dim, heads * dim, 1}, type,
                      index);
}

using Forward =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

// The type that the library computes in.
at::ScalarType computed_in(const Tensor& t) {
  return is_half_type(t.scalar_type()) ? at::kFloat : t.scalar_type();
}

std::tuple<Tensor, Tensor> own_attention(const Tensor& given_query, const Tensor& given_key,
                                         const Tensor& given_value, const OptionalTensor& bias,
                                         bool is_causal, std::optional<double> scale) {
  const at::ScalarType wide = computed_in(given_query);
  const Tensor query = given_query.to(wide), key = given_key.to(wide), value = given_value.to(wide);
  const int64_t batch = query.size(0), heads = query.size(1), queries = query.size(2);
  const int64_t dim = value.size(3);
  const at::ScalarType type = query.scalar_type();
  const c10::DeviceIndex index = query.device().index();
  // As PyTorch's kernel gives them: the output as the queries lie, the logsumexp of all heads of a
  // query side by side.
  Tensor out = query.stride(1) < query.stride(2)
                   ? make_alternating(batch, heads, queries, dim, type, index)
                   : new_empty(query, {batch, heads, queries, dim}, type);
  Tensor logsumexp =
      make_strided({batch, heads, queries}, {queries * heads, 1, heads}, type, index);
  const Tensor mask = mask_of(bias, query, key);
  record(calls::Attention<Arg>{.query = query,
                               .key = key,
                               .value = value,
                               .mask = mask,
                               .is_causal = is_causal,
                               .scale = scale_of(query, scale),
                               .out = out,
                               .logsumexp = logsumexp});
  return {out.to(given_query.scalar_type()), std::move(logsumexp)};
}

// PyTorch's kernel divides by what it is given, and walks keys and values by each other's sizes.
void check_heads(const Tensor& query, const Tensor& key, const Tensor& value) {
  const bool heads = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  const bool shared = heads && key.size(1) != 0 && query.size(1) % key.size(1) == 0;
  TORCH_CHECK(shared && key.size(0) == query.size(0) && value.size(0) == query.size(0) &&
                  value.size(1) == key.size(1) && value.size(2) == key.size(2) &&
                  key.size(3) == query.size(3) && query.numel() > 0 && key.numel() > 0,
              "attention: expected queries, keys and values of four dimensions, none empty, ",
              "of one batch size, with heads that share those of the keys evenly, got ",
              query.sizes(), ", ", key.sizes(), " and ", value.sizes());
}

std::tuple<Tensor, Tensor> torch_attention(const Tensor& query, const Tensor& key,
                                           const Tensor& value, const OptionalTensor& bias,
                                           double dropout, bool is_causal,
                                           std::optional<double> scale) {
  check_heads(query, key, value);
  AliasScope scope;
  BelowAutograd guard;
  const OpenMpRegion region;
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
          new_empty(query, {}, at::kLong),
          new_empty(query, {}, at::kLong),
          Tensor()};
}

using Backward = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Backward own_backward(const Tensor& given_grad, const Tensor& given_query, const Tensor& given_key,
                      const Tensor& given_value, const OptionalTensor& bias,
                      const Tensor& given_output, const Tensor& logsumexp, bool is_causal,
                      std::optional<double> scale) {
  const at::ScalarType given = given_query.scalar_type(), wide = computed_in(given_query);
  const Tensor grad = given_grad.to(wide), query = given_query.to(wide), key = given_key.to(wide),
               value = given_value.to(wide), output = given_output.to(wide);
  const int64_t batch = query.size(0), shared = key.size(1), keys = key.size(2);
  const at::ScalarType type = query.scalar_type();
  const c10::DeviceIndex index = query.device().index();
  const Tensor rows = has_rows(grad, type) ? grad : grad.contiguous();
  Tensor grad_q = make_alternating(batch, query.size(1), query.size(2), query.size(3), type, index);
  Tensor grad_k = make_alternating(batch, shared, keys, query.size(3), type, index);
  Tensor grad_v = make_alternating(batch, shared, keys, value.size(3), type, index);
  const Tensor mask = mask_of(bias, query, key);
  record(calls::AttentionBackward<Arg>{.query = query,
                                       .key = key,
                                       .value = value,
                                       .mask = mask,
                                       .output = output,
                                       .logsumexp = logsumexp,
                                       .grad = rows,
                                       .is_causal = is_causal,
                                       .scale = scale_of(query, scale),
                                       .grad_query = grad_q,
                                       .grad_key = grad_k,
                                       .grad_value = grad_v});
  return {grad_q.to(given), grad_k.to(given), grad_v.to(given), Tensor()};
}

Backward attention_backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                            const Tensor& value, const Tensor& bias, std::array<bool, 4> /*mask*/,
                            const Tensor& output, const Tensor& logsumexp,
                            const Tensor& /*cum_seq_q*/, const Tensor& /*cum_seq_k*/,
                            int64_t /*max_q*/, int64_t /*max_k*/, double dropout, bool is_causal,
                            const Tensor& /*philox_seed*/, const Tensor& /*philox_offset*/,
                            std::optional<double> scale) {
  if (!takes_heads(query, key, value)) check_heads(query, key, value);
  // PyTorch's kernel compares none of these, and reads past the end of what is too small.
  const std::array<int64_t, 4> result{query.size(0), query.size(1), query.size(2), value.size(3)};
  TORCH_CHECK(!grad.defined() || (grad.sizes() == result && output.sizes() == result &&
                                  logsumexp.sizes() == at::IntArrayRef(result).slice(0, 3)),
              "attention backward: expected a gradient and an output of shape ",
              at::IntArrayRef(result), " and a logsumexp of the first three dimensions, got ",
              grad.sizes(), ", ", output.sizes(), " and ", logsumexp.sizes());
  const OptionalTensor mask = bias.defined() ? OptionalTensor(bias) : std::nullopt;
  const at::ScalarType type = query.scalar_type();
  if (takes(query, key, value, mask, dropout, /*backward=*/true) && is_dense(grad) &&
      grad.scalar_type() == type && has_rows(output, type) && is_dense(logsumexp) &&
      logsumexp.scalar_type() == computed_in(query) &&
      logsumexp.sizes() == at::IntArrayRef(result).slice(0, 3)) {
    return own_backward(grad, query, key, value, mask, output, logsumexp, is_causal, scale);
  }
  AliasScope scope;
  BelowAutograd guard;
  const OpenMpRegion region;
  auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      scope.to_cpu(grad), scope.to_cpu(query), scope.to_cpu(key), scope.to_cpu(value),
      scope.to_cpu(output), scope.to_cpu(logsumexp), dropout, is_causal, scope.to_cpu(mask), scale);
  return {scope.to_device(std::move(grad_q)), scope.to_device(std::move(grad_k)),
          scope.to_device(std::move(grad_v)), Tensor()};
}

// --- Gradients of gradients ------------------------------------------------------------------

// The heads of the keys that a query head reads, for each query head.
Tensor for_each_head(const Tensor& keys, const Tensor& query) {
  const c10::SymInt heads = query.sym_size(1), shared = keys.sym_size(1);
  return heads == shared ? keys : keys.repeat_interleave_symint(heads / shared, 1);
}

// The gradient of what for_each_head() made, to that of its argument.
Tensor of_each_head(const Tensor& grad, const Tensor& keys) {
  const c10::SymInt heads = grad.sym_size(1), shared = keys.sym_size(1);
  if (heads == shared) return grad;
  return grad.unflatten_symint(1, {shared, heads / shared}).sum(2);
}

// The backward pass by operators that have gradients.
Backward attention_backward_in_steps(const Tensor& given_grad, const Tensor& given_query,
                                     const Tensor& given_key, const Tensor& given_value,
                                     const Tensor& bias, bool is_causal,
                                     std::optional<double> scale) {
  const at::ScalarType type = given_query.scalar_type(), wide = computed_in(given_query);
  const Tensor grad = given_grad.to(wide), query = given_query.to(wide);
  const Tensor key = for_each_head(given_key.to(wide), query);
  const Tensor value = for_each_head(given_value.to(wide), query);
  const c10::SymFloat factor = scale.has_value()
                                   ? c10::SymFloat(*scale)
                                   : c10::SymFloat(1.0) / c10::SymFloat(query.sym_size(3)).sqrt();
  Tensor scores = at::mul(at::matmul(query, key.transpose(-2, -1)), factor);
  if (bias.defined()) scores = at::add(scores, bias.to(wide));
  if (is_causal) {
    const Tensor later =
        at::ones_symint({query.sym_size(2), key.sym_size(2)}, scores.options().dtype(at::kBool))
            .triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  // A row that is masked whole has weights of 0.
  const Tensor weights = at::_safe_softmax(scores, -1);
  const Tensor grad_weights = at::matmul(grad, value.transpose(-2, -1));
  const Tensor mean = at::mul(grad_weights, weights).sum(-1, /*keepdim=*/true);
  const Tensor grad_scores = at::mul(at::mul(weights, at::sub(grad_weights, mean)), factor);
  const Tensor grad_key = at::matmul(grad_scores.transpose(-2, -1), query);
  const Tensor grad_value = at::matmul(weights.transpose(-2, -1), grad);
  return {at::matmul(grad_scores, key).to(type), of_each_head(grad_key, given_key).to(type),
          of_each_head(grad_value, given_value).to(type), Tensor()};
}

// PyTorch has no gradient of this operator. Where one may be asked for, it is computed in steps.
Backward attention_backward_autograd(c10::DispatchKeySet keys, const Tensor& grad,
                                     const Tensor& query, const Tensor& key, const Tensor& value,
                                     const Tensor& bias, std::array<bool, 4> mask,
                                     const Tensor& output, const Tensor& logsumexp,
                                     const Tensor& cum_seq_q, const Tensor& cum_seq_k,
                                     c10::SymInt max_q, c10::SymInt max_k, double dropout,
                                     bool is_causal, const Tensor& philox_seed,
                                     const Tensor& philox_offset, std::optional<double> scale) {
  // The weights that dropout took cannot be had again; fused_sdp_choice() does not lead here then.
  if (dropout == 0 && grad.defined() &&
      (is_tracked(grad) || is_tracked(query) || is_tracked(key) || is_tracked(value))) {
    return attention_backward_in_steps(grad, query, key, value, bias, is_causal, scale);
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return at::_ops::_scaled_dot_product_fused_attention_overrideable_backward::redispatch(
      keys & c10::after_autograd_keyset, grad, query, key, value, bias, mask, output, logsumexp,
      cum_seq_q, cum_seq_k, std::move(max_q), std::move(max_k), dropout, is_causal, philox_seed,
      philox_offset, scale);
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward",
         TORCH_FN(hologram_torch::attention_backward_autograd));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  m.impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice));
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(attention_backward));
}

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &hologram_torch::fused_sdp_choice)
}  // namespace at::native
