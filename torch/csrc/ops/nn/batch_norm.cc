// SPDX-License-Identifier: MIT
// native_batch_norm and its backward, contiguous and channels last.
#include "ops/elementwise/elementwise.h"
#include "ops/nn/norm.h"

namespace hologram_torch {
namespace {

using at::ScalarType;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool is_last(const Tensor& t) {
  return t.is_contiguous(at::MemoryFormat::ChannelsLast) ||
         t.is_contiguous(at::MemoryFormat::ChannelsLast3d);
}

// t in contiguous or channels-last order; in that of model where one is given.
Tensor formatted(const Tensor& t, const Tensor* model = nullptr) {
  const bool contiguous =
      model != nullptr ? model->is_contiguous() : t.is_contiguous() || !is_last(t);
  if (contiguous) return dense_rows(t);
  if (is_last(t) && !t.is_contiguous()) return t;
  Tensor result = make_like(*model, t.scalar_type());
  TORCH_INTERNAL_ASSERT(native_copy(result, t));
  return result;
}

bool is_param(const OptionalTensor& t, int64_t channels) {
  return !is_given(t) || (t->dim() == 1 && t->size(0) == channels);
}
bool is_channel(const OptionalTensor& t, int64_t channels) {
  return is_param(t, channels) && (!is_given(t) || t->is_contiguous());
}

// PyTorch's kernels read what they are given by the number of channels. Names go with tensors.
void check_channels(const char* op, const Tensor& input,
                    std::initializer_list<std::pair<const char*, const OptionalTensor&>> params) {
  if (input.dim() < 2) return;
  for (const auto& [name, t] : params) {
    TORCH_CHECK(!is_given(t) || t->numel() == input.size(1), op, ": expected ", input.size(1),
                " elements in ", name, ", one per channel of the input of shape ", input.sizes(),
                ", got ", t->numel());
  }
}

bool takes_input(const Tensor& input) {
  return is_dense_float(input) && input.dim() >= 2 && input.dim() <= 5 && input.numel() > 0;
}

template <hologram::OpId kOp, class... Operands>
Tensor row(const Operands&... operands) {
  Target target;
  TORCH_INTERNAL_ASSERT((run_row<kOp>(target, operands...)));
  return std::move(target.fresh);
}

// As torch: input * scale + shift for each channel, scale = weight / sqrt(var + eps), shift = bias
// - mean * scale. Recorded as these ops, they join the convolution before and the activation
// behind.
Tensor normalize(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                 const Tensor& mean, const Tensor& var, double eps) {
  using hologram::OpId;
  const c10::Scalar least(eps);
  Tensor scale = row<OpId::rsqrt>(row<OpId::add>(var, Num{least}));
  if (is_given(weight)) scale = row<OpId::mul>(scale, *weight);
  const Tensor moved = row<OpId::mul>(mean, scale);
  const Tensor shift = is_given(bias) ? row<OpId::sub>(*bias, moved) : row<OpId::neg>(moved);
  c10::SmallVector<int64_t, 4> channels(static_cast<size_t>(input.dim() - 1), 1);
  channels[0] = input.size(1);
  for (const Tensor* t : {static_cast<const Tensor*>(&scale), &shift}) {
    t->unsafeGetTensorImpl()->set_sizes_contiguous(channels);
  }
  const bool last = is_last(input) && !input.is_contiguous();
  Target target;
  target.fresh = last ? make_like(input) : new_empty(input, input.sizes());
  Tensor result = target.fresh;
  target.given = &result;
  const Tensor scaled = row<OpId::mul>(input, scale);
  TORCH_INTERNAL_ASSERT((run_row<OpId::add>(target, scaled, shift)));
  return result;
}

std::tuple<Tensor, Tensor, Tensor> batch_norm(const Tensor& input, const OptionalTensor& weight,
                                              const OptionalTensor& bias,
                                              const OptionalTensor& running_mean,
                                              const OptionalTensor& running_var, bool training,
                                              double momentum, double eps) {
  ScalarType type;
  if (C10_LIKELY(
          takes_input(input) && is_param(weight, input.size(1)) && is_param(bias, input.size(1)) &&
          is_channel(running_mean, input.size(1)) && is_channel(running_var, input.size(1)) &&
          (training || (is_given(running_mean) && is_given(running_var))) &&
          param_type(input.scalar_type(), {&weight, &bias, &running_mean, &running_var}, &type))) {
    const int64_t channels = input.size(1);
    if (!training && type == input.scalar_type() && !is_half_type(type)) {
      return {normalize(input, weight, bias, *running_mean, *running_var, eps),
              new_empty(input, {0}, type), new_empty(input, {0}, type)};
    }
    const Tensor x = formatted(input);
    const OptionalTensor scale = dense_param(weight), shift = dense_param(bias);
    Tensor out = make_like(x);
    Tensor mean = new_empty(input, {training ? channels : 0}, type);
    Tensor invstd = new_empty(input, {training ? channels : 0}, type);
    const auto statistic = [&](const OptionalTensor& t) {
      return training && is_given(t) ? updated(*t) : only_read(t);
    };
    const Arg none;
    record(calls::BatchNorm<Arg>{.input = x,
                                 .weight = scale,
                                 .bias = shift,
                                 .running_mean = statistic(running_mean),
                                 .running_var = statistic(running_var),
                                 .training = training,
                                 .momentum = momentum,
                                 .eps = eps,
                                 .out = out,
                                 .save_mean = training ? written(mean) : none,
                                 .save_invstd = training ? written(invstd) : none});
    return {std::move(out), std::move(mean), std::move(invstd)};
  }
  check_channels("native_batch_norm", input,
                 {{"weight", weight},
                  {"bias", bias},
                  {"running_mean", running_mean},
                  {"running_var", running_var}});
  auto stack = call_fallback<"native_batch_norm">(input, weight, bias, running_mean, running_var,
                                                  training, momentum, eps);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_backward(
    const Tensor& grad, const Tensor& input, const OptionalTensor& weight,
    const OptionalTensor& running_mean, const OptionalTensor& running_var,
    const OptionalTensor& save_mean, const OptionalTensor& save_invstd, bool training, double eps,
    std::array<bool, 3> wanted) {
  ScalarType type;
  const auto is_saved = [&](const OptionalTensor& t) {
    return is_given(t) && is_dense(*t) && t->scalar_type() == type && is_channel(t, input.size(1));
  };
  if (C10_LIKELY(takes_input(input) && is_dense(grad) &&
                 grad.scalar_type() == input.scalar_type() && grad.sizes() == input.sizes() &&
                 is_param(weight, input.size(1)) && is_channel(running_mean, input.size(1)) &&
                 is_channel(running_var, input.size(1)) &&
                 param_type(input.scalar_type(), {&weight, &running_mean, &running_var}, &type) &&
                 (training ? is_saved(save_mean) && is_saved(save_invstd)
                           : is_given(running_mean) && is_given(running_var)) &&
                 ((!wanted[1] && !wanted[2]) || is_given(weight)))) {
    const int64_t channels = input.size(1);
    const Tensor x = formatted(input);
    const Tensor dy = formatted(grad, &x);
    const OptionalTensor scale = dense_param(weight);
    Tensor grad_in, grad_weight, grad_bias;
    if (wanted[0]) grad_in = make_like(x);
    if (wanted[1]) grad_weight = new_empty(input, {channels}, type);
    if (wanted[2]) grad_bias = new_empty(input, {channels}, type);
    const OptionalTensor none;
    record(calls::BatchNormBackward<Arg>{.grad = dy,
                                         .input = x,
                                         .weight = scale,
                                         .running_mean = running_mean,
                                         .running_var = running_var,
                                         .save_mean = training ? save_mean : none,
                                         .save_invstd = training ? save_invstd : none,
                                         .training = training,
                                         .eps = eps,
                                         .grad_input = grad_in,
                                         .grad_weight = grad_weight,
                                         .grad_bias = grad_bias});
    return {std::move(grad_in), std::move(grad_weight), std::move(grad_bias)};
  }
  constexpr const char* kBackward = "native_batch_norm_backward";
  TORCH_CHECK(grad.sizes() == input.sizes(), kBackward, ": expected a gradient of the input's ",
              "shape ", input.sizes(), ", got ", grad.sizes());
  check_channels(
      kBackward, input,
      {{"weight", weight}, {"running_mean", running_mean}, {"running_var", running_var}});
  if (training) {
    check_channels(kBackward, input, {{"save_mean", save_mean}, {"save_invstd", save_invstd}});
  }
  auto stack =
      call_fallback<"native_batch_norm_backward">(grad, input, weight, running_mean, running_var,
                                                  save_mean, save_invstd, training, eps, wanted);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&batch_norm>(m, "native_batch_norm");
  register_native<&batch_norm_backward>(m, "native_batch_norm_backward");
}
