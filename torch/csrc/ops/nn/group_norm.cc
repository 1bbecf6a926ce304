// SPDX-License-Identifier: MIT
// native_group_norm and its backward.
#include "ops/nn/norm.h"

namespace hologram_torch {
namespace {

using at::ScalarType;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// [samples, channels, places], as PyTorch gives the sizes beside the input; some in each.
bool fits_groups(const Tensor& input, int64_t samples, int64_t channels, int64_t places,
                 int64_t groups) {
  return is_dense_float(input) && samples > 0 && channels > 0 && places > 0 && groups > 0 &&
         channels % groups == 0 && input.dim() >= 2 && input.size(0) == samples &&
         input.size(1) == channels && input.numel() == samples * channels * places;
}

bool fits_channels(const OptionalTensor& t, int64_t channels) {
  return !is_given(t) || (t->dim() == 1 && t->size(0) == channels);
}

std::tuple<Tensor, Tensor, Tensor> group_norm(const Tensor& input, const OptionalTensor& weight,
                                              const OptionalTensor& bias, int64_t samples,
                                              int64_t channels, int64_t places, int64_t groups,
                                              double eps) {
  ScalarType type;
  // PyTorch's cpu keeps images in channels last as they are.
  if (C10_LIKELY(fits_groups(input, samples, channels, places, groups) &&
                 fits_channels(weight, channels) && fits_channels(bias, channels) &&
                 input.suggest_memory_format() == at::MemoryFormat::Contiguous &&
                 param_type(input.scalar_type(), {&weight, &bias}, &type))) {
    const Tensor x = dense_rows(input);
    const OptionalTensor scale = dense_param(weight), shift = dense_param(bias);
    Tensor out = new_empty(input, input.sizes());
    Tensor mean = new_empty(input, {samples, groups}, type),
           rstd = new_empty(input, {samples, groups}, type);
    record(calls::GroupNorm<Arg>{.input = x,
                                 .weight = scale,
                                 .bias = shift,
                                 .groups = groups,
                                 .eps = eps,
                                 .out = out,
                                 .mean = mean,
                                 .rstd = rstd});
    return {std::move(out), std::move(mean), std::move(rstd)};
  }
  auto stack = call_fallback<"native_group_norm">(input, weight, bias, samples, channels, places,
                                                  groups, eps);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

std::tuple<Tensor, Tensor, Tensor> group_norm_backward(const Tensor& grad, const Tensor& input,
                                                       const Tensor& mean, const Tensor& rstd,
                                                       const OptionalTensor& weight,
                                                       int64_t samples, int64_t channels,
                                                       int64_t places, int64_t groups,
                                                       std::array<bool, 3> wanted) {
  ScalarType type;
  const auto is_stat = [&](const Tensor& t) {
    return is_dense(t) && t.scalar_type() == type && t.numel() == samples * groups &&
           t.is_contiguous();
  };
  if (C10_LIKELY(fits_groups(input, samples, channels, places, groups) &&
                 fits_channels(weight, channels) && is_dense(grad) &&
                 grad.scalar_type() == input.scalar_type() && grad.sizes() == input.sizes() &&
                 input.suggest_memory_format() == at::MemoryFormat::Contiguous &&
                 param_type(input.scalar_type(), {&weight}, &type) && is_stat(mean) &&
                 is_stat(rstd) && ((!wanted[1] && !wanted[2]) || is_given(weight)))) {
    const Tensor x = dense_rows(input), dy = dense_rows(grad);
    const OptionalTensor scale = dense_param(weight);
    Tensor grad_in, grad_weight, grad_bias;
    if (wanted[0]) grad_in = new_empty(input, input.sizes());
    if (wanted[1]) grad_weight = new_empty(input, {channels}, type);
    if (wanted[2]) grad_bias = new_empty(input, {channels}, type);
    record(calls::GroupNormBackward<Arg>{.grad = dy,
                                         .input = x,
                                         .mean = mean,
                                         .rstd = rstd,
                                         .weight = scale,
                                         .groups = groups,
                                         .grad_input = grad_in,
                                         .grad_weight = grad_weight,
                                         .grad_bias = grad_bias});
    return {std::move(grad_in), std::move(grad_weight), std::move(grad_bias)};
  }
  auto stack = call_fallback<"native_group_norm_backward">(grad, input, mean, rstd, weight, samples,
                                                           channels, places, groups, wanted);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&group_norm>(m, "native_group_norm");
  register_native<&group_norm_backward>(m, "native_group_norm_backward");
}
