// SPDX-License-Identifier: MIT
// ATen's activations with numbers beside the tensor, and the derivatives of all activations.
#include "ops/elementwise/elementwise.h"

namespace hologram_torch {
namespace {

using at::Scalar;
using at::Tensor;
using hologram::OpId;

// --- Forward ---------------------------------------------------------------------------------

bool leaky_relu(Target& target, const Tensor& x, const Scalar& slope) {
  return run_row<OpId::leaky_relu>(target, x, Param{slope});
}
bool elu(Target& target, const Tensor& x, const Scalar& alpha, const Scalar& scale,
         const Scalar& input_scale) {
  return run_row<OpId::elu>(target, x, Param{alpha}, Param{scale}, Param{input_scale});
}
bool softplus(Target& target, const Tensor& x, const Scalar& beta, const Scalar& threshold) {
  return run_row<OpId::softplus>(target, x, Param{beta}, Param{threshold});
}
bool hardtanh(Target& target, const Tensor& x, const Scalar& low, const Scalar& high) {
  return x.is_floating_point() && run_row<OpId::clamp>(target, x, Param{low}, Param{high});
}
bool threshold(Target& target, const Tensor& x, const Scalar& bound, const Scalar& value) {
  return run_row<OpId::threshold>(target, x, Param{bound}, Param{value});
}
bool gelu(Target& target, const Tensor& x, std::string_view approximate) {
  if (approximate == "none") return run_row<OpId::gelu>(target, x);
  return approximate == "tanh" && run_row<OpId::gelu_tanh>(target, x);
}

// --- Backward --------------------------------------------------------------------------------

template <OpId kOp>
bool backward(Target& target, const Tensor& grad, const Tensor& saved) {
  return run_row<kOp, kSameDtype>(target, grad, saved);
}
bool gelu_backward(Target& target, const Tensor& grad, const Tensor& x,
                   std::string_view approximate) {
  if (approximate == "none") return run_row<OpId::gelu_backward, kSameDtype>(target, grad, x);
  return approximate == "tanh" && run_row<OpId::gelu_tanh_backward, kSameDtype>(target, grad, x);
}
bool threshold_backward(Target& target, const Tensor& grad, const Tensor& x, const Scalar& bound) {
  return run_row<OpId::threshold_backward, kSameDtype | kSecondLeads>(target, grad, x,
                                                                      Param{bound});
}
bool leaky_relu_backward(Target& target, const Tensor& grad, const Tensor& x, const Scalar& slope,
                         bool x_is_result) {
  // A result with a negative slope does not tell the sign of its input: the fallback explains.
  if (x_is_result) return false;
  return run_row<OpId::leaky_relu_backward, kSameDtype | kSecondLeads>(target, grad, x,
                                                                       Param{slope});
}
bool softplus_backward(Target& target, const Tensor& grad, const Tensor& x, const Scalar& beta,
                       const Scalar& threshold) {
  return run_row<OpId::softplus_backward, kSameDtype>(target, grad, x, Param{beta},
                                                      Param{threshold});
}
bool hardtanh_backward(Target& target, const Tensor& grad, const Tensor& x, const Scalar& low,
                       const Scalar& high) {
  return run_row<OpId::hardtanh_backward, kSameDtype>(target, grad, x, Param{low}, Param{high});
}

template <Name kName, auto* kRule>
void add_backward(torch::Library& m) {
  Ops<kRule>{m}.template functional<kName>().template out<kName + Name(".grad_input")>();
}

}  // namespace

void register_activations(torch::Library& m) {
  add_all<"leaky_relu", &leaky_relu>(m);
  add_all<"elu", &elu>(m);
  Ops<&softplus>{m}.functional<"softplus">().out<"softplus.out">();
  add_all<"hardtanh", &hardtanh>(m);
  add_all<"threshold", &threshold>(m);
  add_all<"gelu", &gelu>(m);

  add_backward<"sigmoid_backward", &backward<OpId::sigmoid_backward>>(m);
  add_backward<"tanh_backward", &backward<OpId::tanh_backward>>(m);
  add_backward<"silu_backward", &backward<OpId::silu_backward>>(m);
  add_backward<"gelu_backward", &gelu_backward>(m);
  add_backward<"threshold_backward", &threshold_backward>(m);
  add_backward<"leaky_relu_backward", &leaky_relu_backward>(m);
  add_backward<"softplus_backward", &softplus_backward>(m);
  add_backward<"hardtanh_backward", &hardtanh_backward>(m);
}

}  // namespace hologram_torch
