// SPDX-License-Identifier: MIT
// native_layer_norm and its backward.
#include "ops/nn/norm.h"

namespace hologram_torch {
namespace {

using at::ScalarType;
using at::Tensor;
using c10::IntArrayRef;
using OptionalTensor = std::optional<Tensor>;

// An input of `rows` times `n` elements, n those of normalized_shape.
struct NormShape {
  bool ok = false;
  int64_t rows = 1;
  int64_t n = 1;
};

bool fits_param(const OptionalTensor& param, IntArrayRef shape) {
  return !is_given(param) || param->sizes() == shape;
}

NormShape norm_shape(const Tensor& input, IntArrayRef normalized, const OptionalTensor& weight,
                     const OptionalTensor& bias) {
  NormShape shape;
  const IntArrayRef sizes = input.sizes();
  if (!is_dense_float(input) || normalized.empty() || normalized.size() > sizes.size() ||
      sizes.slice(sizes.size() - normalized.size()) != normalized ||
      !fits_param(weight, normalized) || !fits_param(bias, normalized)) {
    return shape;
  }
  for (const int64_t size : normalized) shape.n *= size;
  for (const int64_t size : sizes.slice(0, sizes.size() - normalized.size())) shape.rows *= size;
  shape.ok = shape.n > 0 && shape.rows > 0;
  return shape;
}

// Of mean and rstd: as accelerators have it, and as torch._refs expects of them. The CPU rounds
// them to half types.
ScalarType stat_type(const Tensor& input) {
  const ScalarType type = input.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& input, IntArrayRef normalized,
                                              const OptionalTensor& weight,
                                              const OptionalTensor& bias, double eps) {
  const NormShape shape = norm_shape(input, normalized, weight, bias);
  ScalarType type;
  if (C10_LIKELY(shape.ok && param_type(input.scalar_type(), {&weight, &bias}, &type))) {
    c10::SmallVector<int64_t, 6> stat_sizes(input.sizes().begin(), input.sizes().end());
    std::fill(stat_sizes.end() - static_cast<int64_t>(normalized.size()), stat_sizes.end(), 1);
    const Tensor x = dense_rows(input);
    const OptionalTensor scale = dense_param(weight), shift = dense_param(bias);
    Tensor out = new_empty(input, input.sizes());
    const ScalarType stat = stat_type(input);
    Tensor mean = new_empty(input, stat_sizes, stat), rstd = new_empty(input, stat_sizes, stat);
    record(calls::LayerNorm<Arg>{.input = x,
                                 .weight = scale,
                                 .bias = shift,
                                 .axes = static_cast<int64_t>(normalized.size()),
                                 .eps = eps,
                                 .out = out,
                                 .mean = mean,
                                 .rstd = rstd});
    return {std::move(out), std::move(mean), std::move(rstd)};
  }
  auto stack = call_fallback<"native_layer_norm">(input, normalized, weight, bias, eps);
  const ScalarType stat = stat_type(input);
  return {stack[0].toTensor(), stack[1].toTensor().to(stat), stack[2].toTensor().to(stat)};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& input,
                                                       IntArrayRef normalized, const Tensor& mean,
                                                       const Tensor& rstd,
                                                       const OptionalTensor& weight,
                                                       const OptionalTensor& bias,
                                                       std::array<bool, 3> wanted) {
  const NormShape shape = norm_shape(input, normalized, weight, bias);
  ScalarType type;
  const auto is_stat = [&](const Tensor& t) {
    return is_dense(t) && t.scalar_type() == mean.scalar_type() &&
           (t.scalar_type() == input.scalar_type() || t.scalar_type() == stat_type(input)) &&
           t.numel() == shape.rows && t.is_contiguous();
  };
  if (C10_LIKELY(shape.ok && is_dense(grad) && grad.scalar_type() == input.scalar_type() &&
                 grad.sizes() == input.sizes() &&
                 param_type(input.scalar_type(), {&weight, &bias}, &type) && is_stat(mean) &&
                 is_stat(rstd) && (!wanted[1] || is_given(weight)) &&
                 (!wanted[2] || is_given(bias)))) {
    const Tensor x = dense_rows(input), dy = dense_rows(grad);
    const OptionalTensor scale = dense_param(weight);
    Tensor grad_in, grad_weight, grad_bias;
    if (wanted[0]) grad_in = new_empty(input, input.sizes());
    if (wanted[1]) grad_weight = new_empty(input, normalized, type);
    if (wanted[2]) grad_bias = new_empty(input, normalized, type);
    record(calls::LayerNormBackward<Arg>{.grad = dy,
                                         .input = x,
                                         .mean = mean,
                                         .rstd = rstd,
                                         .weight = scale,
                                         .axes = static_cast<int64_t>(normalized.size()),
                                         .grad_input = grad_in,
                                         .grad_weight = grad_weight,
                                         .grad_bias = grad_bias});
    return {std::move(grad_in), std::move(grad_weight), std::move(grad_bias)};
  }
  // PyTorch's kernel compares none of these.
  TORCH_CHECK(grad.sizes() == input.sizes(), "native_layer_norm_backward: expected a gradient of ",
              "the input's shape ", input.sizes(), ", got ", grad.sizes());
  const auto rows = c10::multiply_integers(input.sizes().slice(
      0, input.sizes().size() - std::min(input.sizes().size(), normalized.size())));
  TORCH_CHECK(mean.numel() == rows && rstd.numel() == rows,
              "native_layer_norm_backward: expected a mean and an rstd of ", rows,
              " elements for an input of shape ", input.sizes(), ", got ", mean.numel(), " and ",
              rstd.numel());
  // The CPU's statistics have the dtype of its parameters.
  const ScalarType stat = is_given(weight) ? weight->scalar_type() : input.scalar_type();
  auto stack = call_fallback<"native_layer_norm_backward">(grad, input, normalized, mean.to(stat),
                                                           rstd.to(stat), weight, bias, wanted);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&layer_norm>(m, "native_layer_norm");
  register_native<&layer_norm_backward>(m, "native_layer_norm_backward");
}
