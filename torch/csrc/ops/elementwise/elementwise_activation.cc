// SPDX-License-Identifier: MIT
// ATen's activations and their derivatives that choose a row by an argument.
#include "ops/elementwise/elementwise_forms.h"

namespace hologram_torch {
namespace {

using at::Scalar;
using at::Tensor;
using hologram::OpId;

// --- Forward ---------------------------------------------------------------------------------

bool hardtanh(Target& target, const Tensor& x, const Scalar& low, const Scalar& high) {
  return x.is_floating_point() && run_row<OpId::clamp>(target, x, Param{low}, Param{high});
}
bool gelu(Target& target, const Tensor& x, std::string_view approximate) {
  if (approximate == "none") return run_row<OpId::gelu>(target, x);
  return approximate == "tanh" && run_row<OpId::gelu_tanh>(target, x);
}
// PyTorch refuses thresholds below zero or above the dtype's largest number, which is at least this
// one.
bool softshrink(Target& target, const Tensor& x, const Scalar& threshold) {
  constexpr double kLargestHalf = 65504;
  return !threshold.isComplex() && threshold.toDouble() >= 0 &&
         threshold.toDouble() <= kLargestHalf &&
         run_row<OpId::softshrink>(target, x, Param{threshold});
}
bool prelu(Target& target, const Tensor& x, const Tensor& slope) {
  return run_row<OpId::leaky_relu>(target, x, slope);
}

// The second result, which PyTorch's kernel on cpu keeps for the gradient, is empty, as on other
// accelerators.
std::tuple<Tensor, Tensor> log_sigmoid_forward(const Tensor& x) {
  Target target;
  if (C10_LIKELY(run_row<OpId::logsigmoid>(target, x))) {
    return {std::move(target.fresh), at::empty({0}, x.options())};
  }
  auto results = call_fallback<"log_sigmoid_forward">(x);
  return {results[0].toTensor(), results[1].toTensor()};
}

// --- Backward --------------------------------------------------------------------------------

bool gelu_backward(Target& target, const Tensor& grad, const Tensor& x,
                   std::string_view approximate) {
  if (approximate == "none") return run_row<OpId::gelu_backward>(target, grad, x);
  return approximate == "tanh" && run_row<OpId::gelu_tanh_backward>(target, grad, x);
}
bool leaky_relu_backward(Target& target, const Tensor& grad, const Tensor& x, const Scalar& slope,
                         bool x_is_result) {
  // A result with a negative slope does not tell the sign of its input: the fallback explains.
  if (x_is_result) return false;
  return run_row<OpId::leaky_relu_backward>(target, grad, x, Param{slope});
}
// What is saved is the input; of a result the fallback knows.
bool elu_backward(Target& target, const Tensor& grad, const Scalar& alpha, const Scalar& scale,
                  const Scalar& input_scale, bool is_result, const Tensor& saved) {
  if (is_result || alpha.isComplex() || scale.isComplex() || input_scale.isComplex()) return false;
  const Scalar slope = alpha.toDouble() * input_scale.toDouble();
  if (scale.toDouble() == 1) {
    return run_row<OpId::elu_backward>(target, grad, saved, Param{slope}, Param{input_scale});
  }
  // Two roundings to a half type would be one too many.
  if (grad.scalar_type() != at::kFloat && grad.scalar_type() != at::kDouble) return false;
  Target plain;
  return run_row<OpId::elu_backward>(plain, grad, saved, Param{slope}, Param{input_scale}) &&
         run_row<OpId::mul>(target, plain.fresh, Num{scale});
}

bool hardshrink_backward(Target& target, const Tensor& grad, const Tensor& x,
                         const Scalar& threshold) {
  return run_row<OpId::hardshrink_backward>(target, grad, x, Param{threshold});
}
bool log_sigmoid_backward(Target& target, const Tensor& grad, const Tensor& x, const Tensor&) {
  return run_row<OpId::logsigmoid_backward>(target, grad, x);
}

std::tuple<Tensor, Tensor> prelu_backward(const Tensor& grad, const Tensor& x,
                                          const Tensor& slope) {
  Target of_x, product, of_slope;
  if (C10_LIKELY(
          run_row<OpId::leaky_relu_backward>(of_x, grad, x, slope) &&
          run_row<OpId::mul>(product, grad, x) &&
          run_row<OpId::where>(of_slope, Mask{at::gt(x, 0)}, Param{Scalar(0)}, product.fresh))) {
    return {std::move(of_x.fresh), std::move(of_slope.fresh)};
  }
  auto results = call_fallback<"_prelu_kernel_backward">(grad, x, slope);
  return {results[0].toTensor(), results[1].toTensor()};
}

template <Name kName, auto* kRule>
void add_backward(torch::Library& m) {
  Ops<kRule>{m}.template functional<kName>().template out<kName + Name(".grad_input")>();
}

}  // namespace

void register_activations(torch::Library& m) {
  add_all<"hardtanh", &hardtanh>(m);
  add_all<"gelu", &gelu>(m);

  Ops<&softshrink>{m}.functional<"softshrink">().out<"softshrink.out">();
  Ops<&prelu>{m}.functional<"_prelu_kernel">();
  register_native<&log_sigmoid_forward>(m, "log_sigmoid_forward");

  Ops<&tensors<OpId::mish_backward>>{m}.functional<"mish_backward">();
  register_native<&prelu_backward>(m, "_prelu_kernel_backward");
  add_backward<"softshrink_backward", &hardshrink_backward>(m);
  add_backward<"log_sigmoid_backward", &log_sigmoid_backward>(m);
  add_backward<"gelu_backward", &gelu_backward>(m);
  add_backward<"leaky_relu_backward", &leaky_relu_backward>(m);
  add_backward<"elu_backward", &elu_backward>(m);
}

}  // namespace hologram_torch
