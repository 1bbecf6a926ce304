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
}

}  // namespace hologram_torch
