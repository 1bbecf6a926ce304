// SPDX-License-Identifier: MIT
// Convolutions: the library's for float32 and float64, PyTorch's CPU convolutions in place for
// other dtypes.
#include <ATen/Functions.h>
#include <torch/library.h>

#include "device/openmp.h"
#include "host/alias.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::IntArrayRef;
using OptionalTensor = std::optional<Tensor>;

// What a convolution is beside its tensors.
struct Geometry {
  IntArrayRef stride, padding, dilation;
  int64_t groups;
};

// The outputs that an input gives along a dimension.
int64_t outputs(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  const int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

bool is_taken(const Tensor& t, at::ScalarType type, int64_t dim) {
  return is_dense(t) && t.scalar_type() == type && t.dim() == dim;
}

// Whether the library computes with these: everything in one of its dtypes whose sizes agree. What
// is left goes to PyTorch's convolution, which computes or refuses it.
bool takes(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
           IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
           IntArrayRef output_padding, int64_t groups) {
  const at::ScalarType type = input.scalar_type();
  const int64_t dim = input.dim(), used = dim - 2;
  if ((type != at::kFloat && type != at::kDouble) || used < 1 || used > 3 || groups < 1 ||
      !is_taken(input, type, dim) || !is_taken(weight, type, dim) || weight.size(0) % groups != 0 ||
      input.size(1) != (transposed ? weight.size(0) : weight.size(1) * groups)) {
    return false;
  }
  const int64_t results = transposed ? weight.size(1) * groups : weight.size(0);
  if (bias.has_value() && bias->defined() &&
      (!is_taken(*bias, type, 1) || bias->size(0) != results)) {
    return false;
  }
  const auto fits = [&](IntArrayRef list, int64_t least) {
    return static_cast<int64_t>(list.size()) == used &&
           std::all_of(list.begin(), list.end(), [&](int64_t i) { return i >= least; });
  };
  if (!fits(stride, 1) || !fits(padding, 0) || !fits(dilation, 1) ||
      (transposed && !fits(output_padding, 0))) {
    return false;
  }
  for (int64_t d = 2; d < dim; ++d) {
    const auto i = static_cast<size_t>(d - 2);
    const int64_t kernel = weight.size(d), in = input.size(d);
    if (kernel < 1 || in < 1) return false;
    if (transposed && output_padding[i] >= std::max(stride[i], dilation[i])) return false;
    const int64_t reach = dilation[i] * (kernel - 1);
    const int64_t room = transposed
                             ? (in - 1) * stride[i] - 2 * padding[i] + reach + output_padding[i]
                             : in + 2 * padding[i] - reach - 1;
    if (room < 0) return false;
  }
  return true;
}

// Of three dimensions, PyTorch's CPU has channels last only in oneDNN, to which it gives these.
bool is_for_onednn(const Tensor& x, const Tensor& weight, const Geometry& geometry) {
  const auto is_one = [](int64_t i) { return i == 1; };
  const bool is_pointwise = weight.size(-1) == 1 && weight.size(-2) == 1 &&
                            std::all_of(geometry.stride.begin(), geometry.stride.end(), is_one) &&
                            std::all_of(geometry.dilation.begin(), geometry.dilation.end(), is_one);
  // On one thread it does not take products of single pixels.
  if (is_pointwise && x.size(0) < 16 && at::get_num_threads() == 1) return false;
  return x.scalar_type() == at::kFloat &&
         (geometry.groups > 1 || (weight.size(-1) > 3 && weight.size(-2) > 3) || x.size(0) > 1 ||
          x.size(0) * x.size(1) * x.size(2) * x.size(3) > 20480);
}

// As PyTorch's CPU convolutions lay out what they make.
c10::MemoryFormat format_of(const Tensor& x, const Tensor& weight, const Geometry& geometry) {
  constexpr auto kFirst = c10::MemoryFormat::Contiguous;
  if (x.dim() < 4 || (x.dim() == 5 && !is_for_onednn(x, weight, geometry))) return kFirst;
  const auto last =
      x.dim() == 4 ? c10::MemoryFormat::ChannelsLast : c10::MemoryFormat::ChannelsLast3d;
  const bool is_last = x.suggest_memory_format() == last || weight.suggest_memory_format() == last;
  return is_last ? last : kFirst;
}

// The weight as the library takes it: contiguous or channels last.
Tensor dense_weight(const Tensor& weight) {
  if (!weight.is_contiguous() && weight.dim() > 3 &&
      weight.is_contiguous(weight.dim() == 4 ? c10::MemoryFormat::ChannelsLast
                                             : c10::MemoryFormat::ChannelsLast3d)) {
    return weight;
  }
  return weight.contiguous();
}

// Writes y = x * weight + bias.
void forward(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
             const Geometry& geometry, Tensor& y) {
  const Tensor dense = dense_weight(weight);
  const Tensor terms = is_given(bias) ? bias->contiguous() : Tensor();
  record(calls::Convolution<Arg>{.input = x,
                                 .weight = dense,
                                 .bias = terms,
                                 .stride = geometry.stride,
                                 .padding = geometry.padding,
                                 .dilation = geometry.dilation,
                                 .groups = geometry.groups,
                                 .out = y});
}

// Writes the gradient of x in y = x * weight from that of y; terms of each channel are added, as a
// transposed convolution has them.
void backward_input(const Tensor& grad, const Tensor& weight, const OptionalTensor& bias,
                    const Geometry& geometry, Tensor& x) {
  const Tensor dense = dense_weight(weight);
  const Tensor terms = is_given(bias) ? bias->contiguous() : Tensor();
  record(calls::ConvolutionBackwardInput<Arg>{.grad = grad,
                                              .weight = dense,
                                              .bias = terms,
                                              .stride = geometry.stride,
                                              .padding = geometry.padding,
                                              .dilation = geometry.dilation,
                                              .groups = geometry.groups,
                                              .grad_input = x});
}

// Writes the gradient of the weight in y = x * weight, which lies as PyTorch's would.
Tensor backward_weight(const Tensor& x, const Tensor& grad, const Tensor& weight,
                       c10::MemoryFormat format, const Geometry& geometry) {
  Tensor result =
      make_formatted(weight.sizes(), weight.scalar_type(), format, weight.device().index());
  record(calls::ConvolutionBackwardWeight<Arg>{.input = x,
                                               .grad = grad,
                                               .stride = geometry.stride,
                                               .padding = geometry.padding,
                                               .dilation = geometry.dilation,
                                               .groups = geometry.groups,
                                               .grad_weight = result});
  return result;
}

// Sizes of the result of a convolution, or of a transposed one.
c10::SmallVector<int64_t, 5> result_sizes(const Tensor& input, const Tensor& weight,
                                          IntArrayRef stride, IntArrayRef padding,
                                          IntArrayRef dilation, bool transposed,
                                          IntArrayRef output_padding, int64_t groups) {
  c10::SmallVector<int64_t, 5> sizes{input.size(0),
                                     transposed ? weight.size(1) * groups : weight.size(0)};
  for (size_t i = 0; i < stride.size(); ++i) {
    const int64_t in = input.size(static_cast<int64_t>(i) + 2);
    const int64_t kernel = weight.size(static_cast<int64_t>(i) + 2);
    sizes.push_back(transposed ? (in - 1) * stride[i] - 2 * padding[i] +
                                     dilation[i] * (kernel - 1) + output_padding[i] + 1
                               : outputs(in, kernel, stride[i], padding[i], dilation[i]));
  }
  return sizes;
}

Tensor convolution(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                   IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                   IntArrayRef output_padding, int64_t groups) {
  check_same_device(input, weight);
  if (bias.has_value()) check_same_device(input, *bias);
  if (takes(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)) {
    BelowAutograd guard;
    const Geometry geometry{stride, padding, dilation, groups};
    Tensor result = make_formatted(
        result_sizes(input, weight, stride, padding, dilation, transposed, output_padding, groups),
        input.scalar_type(), format_of(input, weight, geometry), input.device().index());
    if (transposed) {
      backward_input(input, weight, bias, geometry, result);
    } else {
      forward(input, weight, bias, geometry, result);
    }
    return result;
  }
  AliasScope scope;
  BelowAutograd guard;
  const OpenMpRegion region;
  return scope.to_device(at::convolution(scope.to_cpu(input), scope.to_cpu(weight),
                                         scope.to_cpu(bias), stride, padding, dilation, transposed,
                                         output_padding, groups));
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad_output,
                                                        const Tensor& input, const Tensor& weight,
                                                        IntArrayRef stride, IntArrayRef padding,
                                                        IntArrayRef dilation, bool transposed,
                                                        IntArrayRef output_padding, int64_t groups,
                                                        std::array<bool, 3> output_mask) {
  check_same_device(input, weight);
  check_same_device(input, grad_output);
  if (takes(input, weight, std::nullopt, stride, padding, dilation, transposed, output_padding,
            groups) &&
      is_taken(grad_output, input.scalar_type(), input.dim()) &&
      grad_output.sizes() == result_sizes(input, weight, stride, padding, dilation, transposed,
                                          output_padding, groups)) {
    BelowAutograd guard;
    const Geometry geometry{stride, padding, dilation, groups};
    const c10::MemoryFormat format = format_of(input, weight, geometry);
    // Of a transposed convolution the result is what another one reads.
    const Tensor& x = transposed ? grad_output : input;
    const Tensor& y = transposed ? input : grad_output;
    Tensor grad_input, grad_weight, grad_bias;
    if (output_mask[0]) {
      grad_input =
          make_formatted(input.sizes(), input.scalar_type(), format, input.device().index());
      if (transposed) {
        forward(x, weight, std::nullopt, geometry, grad_input);
      } else {
        backward_input(y, weight, std::nullopt, geometry, grad_input);
      }
    }
    if (output_mask[1]) grad_weight = backward_weight(x, y, weight, format, geometry);
    if (output_mask[2]) {
      c10::SmallVector<int64_t, 4> dims{0};
      for (int64_t d = 2; d < grad_output.dim(); ++d) dims.push_back(d);
      grad_bias = at::sum(grad_output, dims);
    }
    return {grad_input, grad_weight, grad_bias};
  }
  AliasScope scope;
  BelowAutograd guard;
  const OpenMpRegion region;
  const int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  auto [grad_input, grad_weight, grad_bias] = at::convolution_backward(
      scope.to_cpu(grad_output), scope.to_cpu(input), scope.to_cpu(weight), IntArrayRef(channels),
      stride, padding, dilation, transposed, output_padding, groups, output_mask);
  return {scope.to_device(std::move(grad_input)), scope.to_device(std::move(grad_weight)),
          scope.to_device(std::move(grad_bias))};
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(hologram_torch::convolution));
  m.impl("convolution_backward_overrideable", TORCH_FN(hologram_torch::convolution_backward));
}
