// SPDX-License-Identifier: MIT
// native_batch_norm and its backward, contiguous and channels last.
#include "hologram/norm.h"
#include "ops/nn/norm.h"

namespace hologram_torch {
namespace {

using at::ScalarType;
using at::Tensor;
using hologram::BatchNormOptions;
using hologram::View;
using OptionalTensor = std::optional<Tensor>;

// [batch, channels, size] over the memory of a tensor of 2 to 5 dimensions.
struct BatchShape {
  int64_t sizes[3], strides[3];

  BatchShape() = default;
  explicit BatchShape(const Tensor& t) : sizes{t.size(0), t.size(1), 1} {
    for (int64_t d = 2; d < t.dim(); ++d) sizes[2] *= t.size(d);
    const int64_t whole = sizes[1] * sizes[2];
    if (t.is_contiguous()) {
      strides[0] = whole, strides[1] = sizes[2], strides[2] = 1;
    } else {
      strides[0] = whole, strides[1] = 1, strides[2] = sizes[1];
    }
  }
  // data may be null.
  View view(char* data, hologram::Dtype dtype) const { return {data, dtype, 3, sizes, strides}; }
};

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

bool is_channel(const OptionalTensor& t, int64_t channels) {
  return !is_given(t) || (t->dim() == 1 && t->size(0) == channels && t->is_contiguous());
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
  return is_float_plain(input) && input.dim() >= 2 && input.dim() <= 5 && input.numel() > 0;
}

struct BatchValues {
  BatchShape shape;
  hologram::Dtype type, param_type;
  bool training;
  uint8_t unused[5] = {};

  BatchValues() = default;
  BatchValues(const Tensor& x, ScalarType param, bool trains)
      : shape(x), type(dtype_of(x)), param_type(dtype_of(param)), training(trains) {}

  int64_t channels() const { return shape.sizes[1]; }
  int64_t numel() const { return shape.sizes[0] * shape.sizes[1] * shape.sizes[2]; }
};

void run_batch_norm(CallFrame& call) {
  const auto values = call.value<BatchValues>();
  const Shape line(values.channels());
  const auto channel = [&] { return line.view(call.memory(), values.param_type); };
  const View in = values.shape.view(call.memory(), values.type);
  const View out = values.shape.view(call.memory(), values.type);
  const View weight = channel(), bias = channel(), running_mean = channel();
  const View running_var = channel(), save_mean = channel(), save_invstd = channel();
  BatchNormOptions options;
  options.weight = if_given(weight), options.bias = if_given(bias);
  options.running_mean = if_given(running_mean), options.running_var = if_given(running_var);
  options.training = values.training;
  options.momentum = call.number(), options.eps = call.number();
  options.max_threads = call.threads(values.numel());
  hologram::batch_norm(in, out, if_given(save_mean), if_given(save_invstd), options);
}

void run_batch_norm_backward(CallFrame& call) {
  const auto values = call.value<BatchValues>();
  const Shape line(values.channels());
  const auto channel = [&] { return line.view(call.memory(), values.param_type); };
  const View grad = values.shape.view(call.memory(), values.type);
  const View in = values.shape.view(call.memory(), values.type);
  const View weight = channel(), running_mean = channel(), running_var = channel();
  const View save_mean = channel(), save_invstd = channel();
  const View grad_in = values.shape.view(call.memory(), values.type);
  const View grad_weight = channel(), grad_bias = channel();
  BatchNormOptions options;
  options.weight = if_given(weight);
  options.running_mean = if_given(running_mean), options.running_var = if_given(running_var);
  options.training = values.training;
  options.eps = call.number();
  options.max_threads = call.threads(values.numel());
  hologram::batch_norm_backward(grad, in, if_given(save_mean), if_given(save_invstd),
                                if_given(grad_in), if_given(grad_weight), if_given(grad_bias),
                                options);
}

std::tuple<Tensor, Tensor, Tensor> batch_norm(const Tensor& input, const OptionalTensor& weight,
                                              const OptionalTensor& bias,
                                              const OptionalTensor& running_mean,
                                              const OptionalTensor& running_var, bool training,
                                              double momentum, double eps) {
  ScalarType type;
  if (C10_LIKELY(
          takes_input(input) && is_channel(weight, input.size(1)) &&
          is_channel(bias, input.size(1)) && is_channel(running_mean, input.size(1)) &&
          is_channel(running_var, input.size(1)) &&
          (training || (is_given(running_mean) && is_given(running_var))) &&
          param_type(input.scalar_type(), {&weight, &bias, &running_mean, &running_var}, &type))) {
    const int64_t channels = input.size(1);
    const Tensor x = formatted(input);
    Tensor out = make_like(x);
    Tensor mean = make_tensor({training ? channels : 0}, type);
    Tensor invstd = make_tensor({training ? channels : 0}, type);
    const Access statistics = training ? Access::updates : Access::reads;
    Call call;
    call.value(BatchValues(x, type, training));
    call.memory(x, Access::reads);
    call.memory(out, Access::writes);
    call.memory(weight, Access::reads);
    call.memory(bias, Access::reads);
    call.memory(running_mean, statistics);
    call.memory(running_var, statistics);
    call.memory(training ? mean : Tensor(), Access::writes);
    call.memory(training ? invstd : Tensor(), Access::writes);
    call.number(momentum);
    call.number(eps);
    call.run<"batch_norm", &run_batch_norm>(norm_cost(input));
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
    return is_given(t) && is_plain(*t) && t->scalar_type() == type && is_channel(t, input.size(1));
  };
  if (C10_LIKELY(takes_input(input) && is_plain(grad) &&
                 grad.scalar_type() == input.scalar_type() && grad.sizes() == input.sizes() &&
                 is_channel(weight, input.size(1)) && is_channel(running_mean, input.size(1)) &&
                 is_channel(running_var, input.size(1)) &&
                 param_type(input.scalar_type(), {&weight, &running_mean, &running_var}, &type) &&
                 (training ? is_saved(save_mean) && is_saved(save_invstd)
                           : is_given(running_mean) && is_given(running_var)) &&
                 ((!wanted[1] && !wanted[2]) || is_given(weight)))) {
    const int64_t channels = input.size(1);
    const Tensor x = formatted(input);
    const Tensor dy = formatted(grad, &x);
    Tensor grad_in, grad_weight, grad_bias;
    if (wanted[0]) grad_in = make_like(x);
    if (wanted[1]) grad_weight = make_tensor({channels}, type);
    if (wanted[2]) grad_bias = make_tensor({channels}, type);
    const OptionalTensor none;
    Call call;
    call.value(BatchValues(x, type, training));
    call.memory(dy, Access::reads);
    call.memory(x, Access::reads);
    call.memory(weight, Access::reads);
    call.memory(running_mean, Access::reads);
    call.memory(running_var, Access::reads);
    call.memory(training ? save_mean : none, Access::reads);
    call.memory(training ? save_invstd : none, Access::reads);
    call.memory(grad_in, Access::writes);
    call.memory(grad_weight, Access::writes);
    call.memory(grad_bias, Access::writes);
    call.number(eps);
    call.run<"batch_norm_backward", &run_batch_norm_backward>(2 * norm_cost(input));
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
