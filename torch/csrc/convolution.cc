// SPDX-License-Identifier: MIT
// Convolutions: the hooks PyTorch leaves to a device, served by its own CPU convolutions in place.
#include <ATen/Functions.h>
#include <torch/library.h>

#include "alias.h"
#include "load.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::IntArrayRef;
using OptionalTensor = std::optional<Tensor>;

void check_same_device(const Tensor& input, const Tensor& other) {
  TORCH_CHECK(!other.defined() || other.device() == input.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              input.device(), " and ", other.device(), "!");
}

Tensor convolution(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                   IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                   IntArrayRef output_padding, int64_t groups) {
  check_same_device(input, weight);
  if (bias.has_value()) check_same_device(input, *bias);
  AliasScope scope;
  BelowAutograd guard;
  LoadGuard load(INT64_MAX, /*keeps_threads=*/true);
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
  AliasScope scope;
  BelowAutograd guard;
  LoadGuard load(INT64_MAX, /*keeps_threads=*/true);
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
