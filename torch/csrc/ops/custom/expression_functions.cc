// SPDX-License-Identifier: MIT
// The functions that steps of expressions call, by name: PyTorch's, with numbers at any place.
#include <ATen/ATen.h>

#include <algorithm>

#include "ops/custom/derived_node.h"
#include "ops/custom/expression.h"

namespace hologram_torch {
namespace step_functions {
namespace {

using at::Tensor;

bool is_number_value(const Value& v) { return !v.is_tensor(); }

// A number as PyTorch's own functions take it beside tensors.
Tensor wrapped(const Value& v) {
  if (v.is_tensor()) return v.tensor;
  Tensor t = c10::scalar_to_tensor(v.number);
  t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

// The gradient in the dtype of what it goes through, as autograd hands it on.
Tensor matched(const Value& grad, const Value& other) {
  const Tensor g = wrapped(grad);
  return g.scalar_type() == other.tensor.scalar_type() ? g : g.to(other.tensor.scalar_type());
}

template <Tensor (*kFunction)(const Tensor&)>
Tensor one(const StepOperands& v) {
  return kFunction(v[0]->tensor);
}

template <Tensor (*kFunction)(const Tensor&, const Tensor&)>
Tensor two(const StepOperands& v) {
  return kFunction(wrapped(*v[0]), wrapped(*v[1]));
}

// A gradient and a tensor.
template <Tensor (*kFunction)(const Tensor&, const Tensor&)>
Tensor backward(const StepOperands& v) {
  return kFunction(matched(*v[0], *v[1]), v[1]->tensor);
}

Tensor gelu_none(const Tensor& x) { return at::gelu(x, "none"); }
Tensor gelu_tanh(const Tensor& x) { return at::gelu(x, "tanh"); }
Tensor trigamma(const Tensor& x) { return at::polygamma(1, x); }
Tensor gelu_none_backward(const Tensor& g, const Tensor& x) {
  return at::gelu_backward(g, x, "none");
}
Tensor gelu_tanh_backward(const Tensor& g, const Tensor& x) {
  return at::gelu_backward(g, x, "tanh");
}
Tensor hardsigmoid_gradient(const Tensor& g, const Tensor& x) {
  if (C10_LIKELY(!c10::GradMode::is_enabled())) return at::hardsigmoid_backward(g, x);
  return at::where(at::logical_and(at::gt(x, -3), at::lt(x, 3)), at::div(g, 6), 0);
}
Tensor relu_backward(const Tensor& g, const Tensor& x) { return at::threshold_backward(g, x, 0); }

Tensor add(const StepOperands& v) {
  if (is_number_value(*v[1])) return at::add(v[0]->tensor, v[1]->number);
  if (is_number_value(*v[0])) return at::add(v[1]->tensor, v[0]->number);
  return at::add(v[0]->tensor, v[1]->tensor);
}
Tensor sub(const StepOperands& v) {
  if (is_number_value(*v[1])) return at::sub(v[0]->tensor, v[1]->number);
  if (is_number_value(*v[0])) return at::rsub(v[1]->tensor, v[0]->number);
  return at::sub(v[0]->tensor, v[1]->tensor);
}
Tensor mul(const StepOperands& v) {
  if (is_number_value(*v[1])) return at::mul(v[0]->tensor, v[1]->number);
  if (is_number_value(*v[0])) return at::mul(v[1]->tensor, v[0]->number);
  return at::mul(v[0]->tensor, v[1]->tensor);
}
// As Tensor.__rtruediv__ has it.
Tensor div(const StepOperands& v) {
  if (is_number_value(*v[1])) return at::div(v[0]->tensor, v[1]->number);
  if (is_number_value(*v[0])) return at::mul(at::reciprocal(v[1]->tensor), v[0]->number);
  return at::div(v[0]->tensor, v[1]->tensor);
}
Tensor pow(const StepOperands& v) {
  if (is_number_value(*v[1])) return at::pow(v[0]->tensor, v[1]->number);
  if (is_number_value(*v[0])) return at::pow(v[0]->number, v[1]->tensor);
  return at::pow(v[0]->tensor, v[1]->tensor);
}
Tensor remainder(const StepOperands& v) {
  if (is_number_value(*v[1])) return at::remainder(v[0]->tensor, v[1]->number);
  if (is_number_value(*v[0])) return at::remainder(v[0]->number, v[1]->tensor);
  return at::remainder(v[0]->tensor, v[1]->tensor);
}
Tensor floor_divide(const StepOperands& v) {
  // floor_divide itself has no derivative.
  if (is_number_value(*v[1])) return at::div(v[0]->tensor, v[1]->number, "floor");
  return at::div(wrapped(*v[0]), v[1]->tensor, "floor");
}
Tensor fmod(const StepOperands& v) {
  if (is_number_value(*v[1])) return at::fmod(v[0]->tensor, v[1]->number);
  return at::fmod(wrapped(*v[0]), v[1]->tensor);
}
Tensor minimum(const StepOperands& v) {
  if (is_number_value(*v[1])) return at::clamp_max(v[0]->tensor, v[1]->number);
  if (is_number_value(*v[0])) return at::clamp_max(v[1]->tensor, v[0]->number);
  return at::minimum(v[0]->tensor, v[1]->tensor);
}
Tensor maximum(const StepOperands& v) {
  if (is_number_value(*v[1])) return at::clamp_min(v[0]->tensor, v[1]->number);
  if (is_number_value(*v[0])) return at::clamp_min(v[1]->tensor, v[0]->number);
  return at::maximum(v[0]->tensor, v[1]->tensor);
}

// name(tensors), and the same where a number stands second, or first: then `swapped` has the two
// the other way round.
#define HOLOGRAM_TWO_WAYS(name, swapped)                                        \
  Tensor name(const StepOperands& v) {                                          \
    if (is_number_value(*v[1])) return at::name(v[0]->tensor, v[1]->number);    \
    if (is_number_value(*v[0])) return at::swapped(v[1]->tensor, v[0]->number); \
    return at::name(v[0]->tensor, v[1]->tensor);                                \
  }
HOLOGRAM_TWO_WAYS(eq, eq)
HOLOGRAM_TWO_WAYS(ne, ne)
HOLOGRAM_TWO_WAYS(lt, gt)
HOLOGRAM_TWO_WAYS(le, ge)
HOLOGRAM_TWO_WAYS(gt, lt)
HOLOGRAM_TWO_WAYS(ge, le)
HOLOGRAM_TWO_WAYS(bitwise_and, bitwise_and)
HOLOGRAM_TWO_WAYS(bitwise_or, bitwise_or)
HOLOGRAM_TWO_WAYS(bitwise_xor, bitwise_xor)
#undef HOLOGRAM_TWO_WAYS

Tensor where(const StepOperands& v) {
  const Tensor condition = wrapped(*v[0]);
  const Value &yes = *v[1], &no = *v[2];
  if (yes.is_tensor()) {
    return no.is_tensor() ? at::where(condition, yes.tensor, no.tensor)
                          : at::where(condition, yes.tensor, no.number);
  }
  return no.is_tensor() ? at::where(condition, yes.number, no.tensor)
                        : at::where(condition, yes.number, no.number);
}

Tensor clamp(const StepOperands& v) {
  if (is_number_value(*v[1]) && is_number_value(*v[2])) {
    return at::clamp(v[0]->tensor, v[1]->number, v[2]->number);
  }
  return at::clamp(wrapped(*v[0]), wrapped(*v[1]), wrapped(*v[2]));
}

Tensor softplus(const StepOperands& v) {
  return at::softplus(v[0]->tensor, v[1]->number, v[2]->number);
}
Tensor softplus_backward(const StepOperands& v) {
  return at::softplus_backward(matched(*v[0], *v[1]), v[1]->tensor, v[2]->number, v[3]->number);
}
Tensor leaky_relu(const StepOperands& v) { return at::leaky_relu(v[0]->tensor, v[1]->number); }
Tensor leaky_relu_backward(const StepOperands& v) {
  return at::leaky_relu_backward(matched(*v[0], *v[1]), v[1]->tensor, v[2]->number, false);
}
Tensor elu(const StepOperands& v) {
  return at::elu(v[0]->tensor, v[1]->number, v[2]->number, v[3]->number);
}
Tensor elu_backward(const StepOperands& v) {
  return at::elu_backward(matched(*v[0], *v[1]), v[2]->number, 1, v[3]->number, false,
                          v[1]->tensor);
}

// clang-format off
constexpr StepFunction kStepFunctions[] = {
    {"abs", 1, &one<&at::abs>, true},
    {"acos", 1, &one<&at::acos>, false},
    {"acosh", 1, &one<&at::acosh>, false},
    {"add", 2, &add, true},
    {"asin", 1, &one<&at::asin>, false},
    {"asinh", 1, &one<&at::asinh>, false},
    {"atan", 1, &one<&at::atan>, false},
    {"atan2", 2, &two<&at::atan2>, false},
    {"atanh", 1, &one<&at::atanh>, false},
    {"bitwise_and", 2, &bitwise_and, true},
    {"bitwise_not", 1, &one<&at::bitwise_not>, true},
    {"bitwise_or", 2, &bitwise_or, true},
    {"bitwise_xor", 2, &bitwise_xor, true},
    {"ceil", 1, &one<&at::ceil>, true},
    {"clamp", 3, &clamp, true},
    {"copysign", 2, &two<&at::copysign>, false},
    {"cos", 1, &one<&at::cos>, false},
    {"cosh", 1, &one<&at::cosh>, false},
    {"digamma", 1, &one<&at::digamma>, false},
    {"div", 2, &div, false},
    {"elu", 4, &elu, false},
    {"elu_backward", 4, &elu_backward, false},
    {"eq", 2, &eq, true},
    {"erf", 1, &one<&at::erf>, false},
    {"erfc", 1, &one<&at::erfc>, false},
    {"erfinv", 1, &one<&at::erfinv>, false},
    {"exp", 1, &one<&at::exp>, false},
    {"exp2", 1, &one<&at::exp2>, false},
    {"expm1", 1, &one<&at::expm1>, false},
    {"floor", 1, &one<&at::floor>, true},
    {"floor_divide", 2, &floor_divide, true},
    {"fmod", 2, &fmod, true},
    {"ge", 2, &ge, true},
    {"gelu", 1, &one<&gelu_none>, false},
    {"gelu_backward", 2, &backward<&gelu_none_backward>, false},
    {"gelu_tanh", 1, &one<&gelu_tanh>, false},
    {"gelu_tanh_backward", 2, &backward<&gelu_tanh_backward>, false},
    {"gt", 2, &gt, true},
    {"hardsigmoid", 1, &one<&at::hardsigmoid>, false},
    {"hardsigmoid_backward", 2, &backward<&hardsigmoid_gradient>, false},
    {"hardswish", 1, &one<&at::hardswish>, false},
    {"hardswish_backward", 2, &backward<&at::hardswish_backward>, false},
    {"hypot", 2, &two<&at::hypot>, false},
    {"isfinite", 1, &one<&at::isfinite>, false},
    {"isinf", 1, &one<&at::isinf>, false},
    {"isnan", 1, &one<&at::isnan>, false},
    {"le", 2, &le, true},
    {"leaky_relu", 2, &leaky_relu, false},
    {"leaky_relu_backward", 3, &leaky_relu_backward, false},
    {"lgamma", 1, &one<&at::lgamma>, false},
    {"log", 1, &one<&at::log>, false},
    {"log10", 1, &one<&at::log10>, false},
    {"log1p", 1, &one<&at::log1p>, false},
    {"log2", 1, &one<&at::log2>, false},
    {"logaddexp", 2, &two<&at::logaddexp>, false},
    {"logical_and", 2, &two<&at::logical_and>, true},
    {"logical_not", 1, &one<&at::logical_not>, true},
    {"logical_or", 2, &two<&at::logical_or>, true},
    {"logical_xor", 2, &two<&at::logical_xor>, true},
    {"lt", 2, &lt, true},
    {"maximum", 2, &maximum, true},
    {"minimum", 2, &minimum, true},
    {"mul", 2, &mul, true},
    {"ne", 2, &ne, true},
    {"neg", 1, &one<&at::neg>, true},
    {"pow", 2, &pow, true},
    {"reciprocal", 1, &one<&at::reciprocal>, false},
    {"relu", 1, &one<&at::relu>, true},
    {"relu_backward", 2, &backward<&relu_backward>, false},
    {"remainder", 2, &remainder, true},
    {"round", 1, &one<&at::round>, true},
    {"rsqrt", 1, &one<&at::rsqrt>, false},
    {"sigmoid", 1, &one<&at::sigmoid>, false},
    {"sigmoid_backward", 2, &backward<&at::sigmoid_backward>, false},
    {"sign", 1, &one<&at::sign>, true},
    {"silu", 1, &one<&at::silu>, false},
    {"silu_backward", 2, &backward<&silu_gradient>, false},
    {"sin", 1, &one<&at::sin>, false},
    {"sinh", 1, &one<&at::sinh>, false},
    {"softplus", 3, &softplus, false},
    {"softplus_backward", 4, &softplus_backward, false},
    {"sqrt", 1, &one<&at::sqrt>, false},
    {"square", 1, &one<&at::square>, true},
    {"sub", 2, &sub, true},
    {"tan", 1, &one<&at::tan>, false},
    {"tanh", 1, &one<&at::tanh>, false},
    {"tanh_backward", 2, &backward<&at::tanh_backward>, false},
    {"trigamma", 1, &one<&trigamma>, false},
    {"trunc", 1, &one<&at::trunc>, true},
    {"where", 3, &where, true},
};
// clang-format on
static_assert(std::ranges::is_sorted(kStepFunctions, {}, &StepFunction::name));

}  // namespace
}  // namespace step_functions

using step_functions::kStepFunctions;

const StepFunction* find_step_function(std::string_view name) {
  const auto* found = std::ranges::lower_bound(kStepFunctions, name, {}, &StepFunction::name);
  return found != std::end(kStepFunctions) && found->name == name ? found : nullptr;
}

std::vector<std::string> step_function_names() {
  std::vector<std::string> names;
  for (const StepFunction& f : kStepFunctions) names.emplace_back(f.name);
  return names;
}

}  // namespace hologram_torch
