// SPDX-License-Identifier: MIT
// ATen's arithmetic that is more than a row of the op table: numbers beside it, powers, modes.
#include "ops/elementwise/elementwise_forms.h"

namespace hologram_torch {
namespace {

using at::Scalar;
using at::Tensor;
using hologram::OpId;

bool rsub_tensor(Target& target, const Tensor& x, const Tensor& y, const Scalar& alpha) {
  return sub_tensor(target, y, x, alpha);
}
bool rsub_number(Target& target, const Tensor& x, const Scalar& y, const Scalar& alpha) {
  return is_one(alpha, x) && !y.isBoolean() && !is_bool(x) && run_row<OpId::sub>(target, Num{y}, x);
}
using RoundingMode = std::optional<std::string_view>;
template <class Divisor>
bool divide(Target& target, const Tensor& x, const Divisor& y, RoundingMode mode) {
  if (!mode.has_value()) return run_row<OpId::div>(target, x, y);
  return *mode == "floor" && run_row<OpId::floor_divide>(target, x, y);
}
bool div_tensor_mode(Target& target, const Tensor& x, const Tensor& y, RoundingMode mode) {
  return divide(target, x, y, mode);
}
bool div_number_mode(Target& target, const Tensor& x, const Scalar& y, RoundingMode mode) {
  return divide(target, x, Num{y}, mode);
}

// --- Powers ----------------------------------------------------------------------------------

}  // namespace

bool pow_number(Target& target, const Tensor& x, const Scalar& exponent) {
  if (C10_UNLIKELY(!is_dense(x) || exponent.isComplex() || exponent.isSymbolic())) return false;
  const at::ScalarType type = x.scalar_type();
  // As in the gradient of a square. A product with 1 is x itself when its circuit is planned.
  if (!exponent.isBoolean() && exponent.toDouble() == 1.0 && type != at::kBool) {
    return run_row<OpId::mul>(target, x, Num{exponent});
  }
  if (c10::isFloatingType(type)) {
    const double e = exponent.toDouble();
    if (e == 2.0) return run_row<OpId::square>(target, x);
    if (e == 0.5) return run_row<OpId::sqrt>(target, x);
    if (e == -0.5) return run_row<OpId::rsqrt>(target, x);
    if (e == -1.0) return run_row<OpId::reciprocal>(target, x);
    if (e == 3.0) return run_row<OpId::cube>(target, x);
  } else if (c10::isIntegralType(type, /*includeBool=*/false) && exponent.isIntegral(false) &&
             exponent.equal(2)) {
    return run_row<OpId::square>(target, x);
  }
  return run_row<OpId::pow>(target, x, Num{exponent});
}

void register_binary(torch::Library& m) {
  add_all<"add", &add_tensor, "Tensor", "out">(m);
  add_all<"add", &add_number, "Scalar", "Scalar_out">(m);
  add_all<"sub", &sub_tensor, "Tensor", "out">(m);
  add_all<"sub", &sub_number, "Scalar", "Scalar_out">(m);
  Ops<&rsub_tensor>{m}.functional<"rsub.Tensor">().out<"rsub.Tensor_out">();
  Ops<&rsub_number>{m}.functional<"rsub.Scalar">().out<"rsub.Scalar_out">();
  add_all<"mul", &mul_tensor, "Tensor", "out">(m);
  add_all<"mul", &tensor_number<OpId::mul>, "Scalar", "Scalar_out">(m);
  add_all<"div", &tensors<OpId::div>, "Tensor", "out">(m);
  add_all<"div", &tensor_number<OpId::div>, "Scalar", "Scalar_out">(m);
  add_all<"div", &div_tensor_mode, "Tensor_mode", "out_mode">(m);
  add_all<"div", &div_number_mode, "Scalar_mode", "Scalar_mode_out">(m);

  add_all<"xlogy", &tensors<OpId::xlogy>, "Tensor", "OutTensor">(m);
  add_all<"xlogy", &tensor_number<OpId::xlogy>, "Scalar_Other", "OutScalar_Other">(m);
  Ops<&number_tensor<OpId::xlogy, kContiguousResult>>{m}
      .functional<"xlogy.Scalar_Self">()
      .out<"xlogy.OutScalar_Self">();

  Ops<&tensors<OpId::pow>>{m}
      .functional<"pow.Tensor_Tensor">()
      .in_place<"pow_.Tensor">()
      .out<"pow.Tensor_Tensor_out">();
  Ops<&pow_number>{m}
      .functional<"pow.Tensor_Scalar">()
      .in_place<"pow_.Scalar">()
      .out<"pow.Tensor_Scalar_out">();
  Ops<&number_tensor<OpId::pow, kContiguousResult>>{m}
      .functional<"pow.Scalar">()
      .out<"pow.Scalar_out">();
}

}  // namespace hologram_torch
