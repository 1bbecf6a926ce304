// SPDX-License-Identifier: MIT
// Scaled dot-product attention: PyTorch's blocked CPU kernel where it applies, else the composite.
#include <ATen/Functions.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include "alias.h"
#include "generator.h"
#include "load.h"

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

using Forward =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

Forward attention(const Tensor& query, const Tensor& key, const Tensor& value,
                  const OptionalTensor& bias, double dropout, bool is_causal,
                  bool /*return_debug_mask*/, std::optional<double> scale) {
  AliasScope scope;
  BelowAutograd guard;
  LoadGuard load;
  auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      scope.to_cpu(query), scope.to_cpu(key), scope.to_cpu(value), dropout, is_causal,
      scope.to_cpu(bias), scale);
  return {scope.to_device(std::move(output)),
          scope.to_device(std::move(logsumexp)),
          Tensor(),
          Tensor(),
          c10::SymInt(query.size(2)),
          c10::SymInt(key.size(2)),
          make_tensor({}, at::kLong),
          make_tensor({}, at::kLong),
          Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& bias, std::array<bool, 4> /*mask*/, const Tensor& output, const Tensor& logsumexp,
    const Tensor& /*cum_seq_q*/, const Tensor& /*cum_seq_k*/, int64_t /*max_q*/, int64_t /*max_k*/,
    double dropout, bool is_causal, const Tensor& /*philox_seed*/, const Tensor& /*philox_offset*/,
    std::optional<double> scale) {
  AliasScope scope;
  BelowAutograd guard;
  LoadGuard load;
  const OptionalTensor mask = bias.defined() ? OptionalTensor(scope.to_cpu(bias)) : std::nullopt;
  auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      scope.to_cpu(grad), scope.to_cpu(query), scope.to_cpu(key), scope.to_cpu(value),
      scope.to_cpu(output), scope.to_cpu(logsumexp), dropout, is_causal, mask, scale);
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
