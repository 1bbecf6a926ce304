// SPDX-License-Identifier: MIT
// native_layer_norm and its backward.
#include "ops/nn/norm.h"

#include "hologram/norm.h"

namespace hologram_torch {
namespace {

using at::ScalarType;
using at::Tensor;
using c10::IntArrayRef;
using hologram::View;
using OptionalTensor = std::optional<Tensor>;

// An input of `rows` times `n` elements, n those of normalized_shape.
struct NormShape {
  bool ok = false;
  int64_t rows = 1;
  int64_t n = 1;
};

bool fits_param(const OptionalTensor& param, IntArrayRef shape) {
  return !is_given(param) || (param->sizes() == shape && param->is_contiguous());
}

NormShape norm_shape(const Tensor& input, IntArrayRef normalized, const OptionalTensor& weight,
                     const OptionalTensor& bias) {
  NormShape shape;
  const IntArrayRef sizes = input.sizes();
  if (!is_float_plain(input) || normalized.empty() || normalized.size() > sizes.size() ||
      sizes.slice(sizes.size() - normalized.size()) != normalized ||
      !fits_param(weight, normalized) || !fits_param(bias, normalized)) {
    return shape;
  }
  for (const int64_t size : normalized) shape.n *= size;
  for (const int64_t size : sizes.slice(0, sizes.size() - normalized.size())) shape.rows *= size;
  shape.ok = shape.n > 0 && shape.rows > 0;
  return shape;
}

struct NormValues {
  int64_t rows, n;
  hologram::Dtype type, param_type;
  uint8_t unused[6] = {};

  NormValues() = default;
  NormValues(const NormShape& shape, ScalarType input, ScalarType param)
      : rows(shape.rows), n(shape.n), type(dtype_of(input)), param_type(dtype_of(param)) {}
};

void run_layer_norm(CallFrame& call) {
  const auto values = call.value<NormValues>();
  const Shape rows(values.rows, values.n), line(values.n), stats(values.rows);
  const View in = rows.view(call.memory(), values.type);
  const View weight = line.view(call.memory(), values.param_type);
  const View bias = line.view(call.memory(), values.param_type);
  const View out = rows.view(call.memory(), values.type);
  const View mean = stats.view(call.memory(), values.param_type);
  const View rstd = stats.view(call.memory(), values.param_type);
  hologram::layer_norm(in, if_given(weight), if_given(bias), call.number(), out, mean, rstd,
                       call.threads(values.rows * values.n));
}

void run_layer_norm_backward(CallFrame& call) {
  const auto values = call.value<NormValues>();
  const Shape rows(values.rows, values.n), line(values.n), stats(values.rows);
  const View grad = rows.view(call.memory(), values.type);
  const View in = rows.view(call.memory(), values.type);
  const View mean = stats.view(call.memory(), values.param_type);
  const View rstd = stats.view(call.memory(), values.param_type);
  const View weight = line.view(call.memory(), values.param_type);
  const View grad_in = rows.view(call.memory(), values.type);
  const View grad_weight = line.view(call.memory(), values.param_type);
  const View grad_bias = line.view(call.memory(), values.param_type);
  hologram::layer_norm_backward(grad, in, mean, rstd, if_given(weight), if_given(grad_in),
                                if_given(grad_weight), if_given(grad_bias),
                                call.threads(values.rows * values.n));
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
    Tensor out = make_tensor(input.sizes(), input.scalar_type());
    Tensor mean = make_tensor(stat_sizes, type), rstd = make_tensor(stat_sizes, type);
    Call call;
    call.value(NormValues(shape, input.scalar_type(), type));
    call.memory(x, Access::reads);
    call.memory(weight, Access::reads);
    call.memory(bias, Access::reads);
    call.memory(out, Access::writes);
    call.memory(mean, Access::writes);
    call.memory(rstd, Access::writes);
    call.number(eps);
    call.run<"layer_norm", &run_layer_norm>(norm_cost(input));
    return {std::move(out), std::move(mean), std::move(rstd)};
  }
  auto stack = call_fallback<"native_layer_norm">(input, normalized, weight, bias, eps);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
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
    return is_plain(t) && t.scalar_type() == type && t.numel() == shape.rows && t.is_contiguous();
  };
  if (C10_LIKELY(shape.ok && is_plain(grad) && grad.scalar_type() == input.scalar_type() &&
                 grad.sizes() == input.sizes() &&
                 param_type(input.scalar_type(), {&weight, &bias}, &type) && is_stat(mean) &&
                 is_stat(rstd) && (!wanted[1] || is_given(weight)) &&
                 (!wanted[2] || is_given(bias)))) {
    const Tensor x = dense_rows(input), dy = dense_rows(grad);
    Tensor grad_in, grad_weight, grad_bias;
    if (wanted[0]) grad_in = make_tensor(input.sizes(), input.scalar_type());
    if (wanted[1]) grad_weight = make_tensor(normalized, type);
    if (wanted[2]) grad_bias = make_tensor(normalized, type);
    Call call;
    call.value(NormValues(shape, input.scalar_type(), type));
    call.memory(dy, Access::reads);
    call.memory(x, Access::reads);
    call.memory(mean, Access::reads);
    call.memory(rstd, Access::reads);
    call.memory(weight, Access::reads);
    call.memory(grad_in, Access::writes);
    call.memory(grad_weight, Access::writes);
    call.memory(grad_bias, Access::writes);
    call.run<"layer_norm_backward", &run_layer_norm_backward>(2 * norm_cost(input));
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
  auto stack = call_fallback<"native_layer_norm_backward">(grad, input, normalized, mean, rstd,
                                                           weight, bias, wanted);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&layer_norm>(m, "native_layer_norm");
  register_native<&layer_norm_backward>(m, "native_layer_norm_backward");
}
