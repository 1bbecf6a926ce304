// SPDX-License-Identifier: MIT
// native_batch_norm and its backward, contiguous and channels last.
#include "hologram/norm.h"
#include "native_norm.h"

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

  explicit BatchShape(const Tensor& t) : sizes{t.size(0), t.size(1), 1} {
    for (int64_t d = 2; d < t.dim(); ++d) sizes[2] *= t.size(d);
    const int64_t whole = sizes[1] * sizes[2];
    if (t.is_contiguous()) {
      strides[0] = whole, strides[1] = sizes[2], strides[2] = 1;
    } else {
      strides[0] = whole, strides[1] = 1, strides[2] = sizes[1];
    }
  }
  View view(const Tensor& t, const char* data) const {
    return {const_cast<char*>(data), static_cast<hologram::Dtype>(dtype_code(t.scalar_type())), 3,
            sizes, strides};
  }
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

bool takes_input(const Tensor& input) {
  return is_float_plain(input) && input.dim() >= 2 && input.dim() <= 5 && input.numel() > 0;
}

// A view of a given parameter, or null.
struct Param {
  Param(const OptionalTensor& t, const Shape& line) : given(is_given(t)) {
    if (given) view = line.read(*t);
  }
  const View* get() const { return given ? &view : nullptr; }

  bool given;
  View view;
};

// Running statistics are written: marks their memory as such.
struct WrittenParam : Param {
  WrittenParam(const OptionalTensor& t, const Shape& line, bool written) : Param(t, line) {
    if (given && written) view = line.write(*t);
  }
};

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
    const BatchShape shape(x);
    const Shape line(channels);
    const Param factors(weight, line), terms(bias, line);
    const WrittenParam means(running_mean, line, training), vars(running_var, line, training);
    BatchNormOptions options;
    options.weight = factors.get(), options.bias = terms.get();
    options.running_mean = means.get(), options.running_var = vars.get();
    options.training = training, options.momentum = momentum, options.eps = eps;
    options.max_threads = threads_for(input.numel());
    View save_mean, save_invstd;
    if (training) save_mean = line.write(mean), save_invstd = line.write(invstd);
    hologram::batch_norm(shape.view(x, read_pointer(x)), shape.view(out, write_pointer(out)),
                         training ? &save_mean : nullptr, training ? &save_invstd : nullptr,
                         options);
    return {std::move(out), std::move(mean), std::move(invstd)};
  }
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
    const BatchShape shape(x);
    const Shape line(channels);
    const Param factors(weight, line), means(running_mean, line), vars(running_var, line);
    const Param saved_mean(training ? save_mean : OptionalTensor(), line);
    const Param saved_invstd(training ? save_invstd : OptionalTensor(), line);
    BatchNormOptions options;
    options.weight = factors.get();
    options.running_mean = means.get(), options.running_var = vars.get();
    options.training = training, options.eps = eps;
    options.max_threads = threads_for(input.numel());
    View dx, dw, db;
    if (wanted[0]) dx = shape.view(grad_in, write_pointer(grad_in));
    if (wanted[1]) dw = line.write(grad_weight);
    if (wanted[2]) db = line.write(grad_bias);
    hologram::batch_norm_backward(shape.view(dy, read_pointer(dy)), shape.view(x, read_pointer(x)),
                                  saved_mean.get(), saved_invstd.get(), wanted[0] ? &dx : nullptr,
                                  wanted[1] ? &dw : nullptr, wanted[2] ? &db : nullptr, options);
    return {std::move(grad_in), std::move(grad_weight), std::move(grad_bias)};
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
