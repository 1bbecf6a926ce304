// SPDX-License-Identifier: MIT
// ATen's activations and their derivatives that choose a row by an argument.
#include "ops/elementwise/elementwise.h"

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

template <Name kName, auto* kRule>
void add_backward(torch::Library& m) {
  Ops<kRule>{m}.template functional<kName>().template out<kName + Name(".grad_input")>();
}

}  // namespace

void register_activations(torch::Library& m) {
  add_all<"hardtanh", &hardtanh>(m);
  add_all<"gelu", &gelu>(m);

  add_backward<"gelu_backward", &gelu_backward>(m);
  add_backward<"leaky_relu_backward", &leaky_relu_backward>(m);
  add_backward<"elu_backward", &elu_backward>(m);
}

}  // namespace hologram_torch
