// SPDX-License-Identifier: MIT
// SIMD activations built on exponentials: Tanh, Sigmoid, Silu, GeluTanh, Softplus and derivatives.

// Included once per target (see math-inl.h).
#if defined(HOLOGRAM_SRC_CPU_MATH_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_SRC_CPU_MATH_ACTIVATION_INL_H_
#undef HOLOGRAM_SRC_CPU_MATH_ACTIVATION_INL_H_
#else
#define HOLOGRAM_SRC_CPU_MATH_ACTIVATION_INL_H_
#endif

#include "src/cpu/simd/math-exp-inl.h"
#include "src/cpu/simd/math-log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram::HWY_NAMESPACE {

namespace math {

template <class T>
struct ActivationConstants;

// The tanh form of GELU is x sigmoid(x (a + b x^2)), a = 2 sqrt(2 / pi), b = 0.044715 a.
template <>
struct ActivationConstants<float> {
  static constexpr float kAHigh = 0x1.988454p+0f, kALow = -0x1.857936p-25f;
  static constexpr float kBHigh = 0x1.2444f2p-4f, kBLow = 0x1.49b16ap-29f;
  static constexpr float kGeluCutoff = 11.0f;  // |x| sigmoid(-...) rounds to 0 from here on
  static constexpr float kSiluCutoff = 110.0f;
  static constexpr float kTanhCutoff = 20.0f;  // of 2 |x|: tanh is 1 from here on
};

template <>
struct ActivationConstants<double> {
  static constexpr double kAHigh = 0x1.9884533d43651p+0, kALow = -0x1.cbc0d30ebfd15p-54;
  static constexpr double kBHigh = 0x1.2444f2a4d8b4bp-4, kBLow = -0x1.6c843a29d1c7p-61;
  static constexpr double kGeluCutoff = 22.0;
  static constexpr double kSiluCutoff = 755.0;
  static constexpr double kTanhCutoff = 44.0;
};

// x (a + b x^2) as a pair, for 0 <= x <= kGeluCutoff: its error would be that of the exponent.
template <class V>
HWY_INLINE Pair<V> GeluTanhArgument(V x) {
  using C = ActivationConstants<LaneOf<V>>;
  const V b = Constant<V>(C::kBHigh);
  const Pair<V> square = TwoProduct(x, x);
  const Pair<V> cubic = TwoProduct(square.high, b);
  const V cubic_low =
      hn::MulAdd(square.low, b, hn::MulAdd(square.high, Constant<V>(C::kBLow), cubic.low));
  const Pair<V> sum = TwoSum(cubic.high, Constant<V>(C::kAHigh));
  const V sum_low = hn::Add(sum.low, hn::Add(cubic_low, Constant<V>(C::kALow)));
  const Pair<V> product = TwoProduct(x, sum.high);
  return {product.high, hn::MulAdd(x, sum_low, product.low)};
}

// max(x, 0) - t sigmoid(-y) with sigmoid(-y) = e / (1 + e): x sigmoid(y) for both signs of x where
// t = |x| and y grows with t. NaN at -inf, as PyTorch has it.
template <class V>
HWY_INLINE V GateBySigmoid(V x, V t, Scaled<V> e) {
  const V lifted = Lift(e);
  const V below = hn::Add(lifted, Constant<V>(ExpConstants<LaneOf<V>>::kLifted));
  const V gate = hn::Div(hn::Mul(t, lifted), below);
  return NanAtMinusInfinity(x, hn::Sub(ClampLow(x, -0.0f), gate));
}

// sigmoid(y) + t sigmoid'(y) slope at the sign of x, from e = exp(-y) at |x| = t.
template <class V>
HWY_INLINE V GateBySigmoidGrad(V x, V t, V e, V slope) {
  const V one = Constant<V>(1);
  const V upper = hn::Div(one, hn::Add(e, one));
  const V lower = hn::Mul(e, upper);
  const V at_minus_t = hn::Mul(lower, hn::NegMulAdd(hn::Mul(t, slope), upper, one));
  const auto negative = hn::Lt(x, hn::Zero(hn::DFromV<V>()));
  return hn::IfThenElse(negative, at_minus_t, hn::Sub(one, at_minus_t));
}

}  // namespace math

// The hyperbolic tangent.
template <class V>
HWY_INLINE V Tanh(V x) {
  using namespace math;
  const V magnitude = hn::Abs(x);
  const V twice =
      ClampHigh(hn::Add(magnitude, magnitude), ActivationConstants<LaneOf<V>>::kTanhCutoff);
  const V t = Expm1Clamped(twice);
  return hn::CopySign(hn::Div(t, hn::Add(t, Constant<V>(2))), x);
}

// 1 / (1 + exp(-x)), to full relative accuracy for negative x.
template <class V>
HWY_INLINE V Sigmoid(V x) {
  using namespace math;
  using C = ExpConstants<LaneOf<V>>;
  const V one = Constant<V>(C::kLifted);
  const V e = Lift(ExpScaled(ClampLow(hn::Neg(hn::Abs(x)), C::kUnderflow)));
  const auto negative = hn::Lt(x, hn::Zero(hn::DFromV<V>()));
  return hn::Div(hn::IfThenElse(negative, e, one), hn::Add(e, one));
}

// x * sigmoid(x).
template <class V>
HWY_INLINE V Silu(V x) {
  using namespace math;
  const V t = ClampHigh(hn::Abs(x), ActivationConstants<LaneOf<V>>::kSiluCutoff);
  return GateBySigmoid(x, t, ExpScaled(hn::Neg(t)));
}

// The derivative of Silu.
template <class V>
HWY_INLINE V SiluGrad(V x) {
  using namespace math;
  const V t = ClampHigh(hn::Abs(x), ActivationConstants<LaneOf<V>>::kSiluCutoff);
  return GateBySigmoidGrad(x, t, UnscaleSmall(ExpScaled(hn::Neg(t))), Constant<V>(1));
}

// x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
template <class V>
HWY_INLINE V GeluTanh(V x) {
  using namespace math;
  const V t = ClampHigh(hn::Abs(x), ActivationConstants<LaneOf<V>>::kGeluCutoff);
  const Pair<V> y = GeluTanhArgument(t);
  return GateBySigmoid(x, t, ExpScaled(Pair<V>{hn::Neg(y.high), hn::Neg(y.low)}));
}

// The derivative of GeluTanh.
template <class V>
HWY_INLINE V GeluTanhGrad(V x) {
  using namespace math;
  using C = ActivationConstants<LaneOf<V>>;
  const V t = ClampHigh(hn::Abs(x), C::kGeluCutoff);
  const Pair<V> y = GeluTanhArgument(t);
  const V e = UnscaleSmall(ExpScaled(Pair<V>{hn::Neg(y.high), hn::Neg(y.low)}));
  const V slope = hn::MulAdd(hn::Mul(t, t), Constant<V>(3 * C::kBHigh), Constant<V>(C::kAHigh));
  return GateBySigmoidGrad(x, t, e, slope);
}

// log(1 + exp(beta x)) / beta, and x itself where beta x > threshold.
template <class V>
HWY_INLINE V Softplus(V x, V beta, V threshold) {
  using namespace math;
  const V scaled = hn::Mul(x, beta);
  const V e = ExpOfSmall(hn::Neg(hn::Abs(scaled)));
  const V result = hn::Div(hn::Add(ClampLow(scaled, 0), Log1pFinite(e)), beta);
  return hn::IfThenElse(hn::Gt(scaled, threshold), x, result);
}

// log(sigmoid(x)).
template <class V>
HWY_INLINE V LogSigmoid(V x) {
  using namespace math;
  const V e = ExpOfSmall(hn::Neg(hn::Abs(x)));
  return hn::Sub(ClampHigh(x, 0), Log1pFinite(e));
}

// x tanh(log(1 + exp(x))). With q = exp(-|x|) it is x - 2 x q^2 / (1 + 2 q + 2 q^2) right of zero,
// x q (q + 2) / (q (q + 2) + 2) left of it.
template <class V>
HWY_INLINE V Mish(V x) {
  using namespace math;
  using C = ExpConstants<LaneOf<V>>;
  const V two = Constant<V>(2);
  const V t = ClampHigh(hn::Abs(x), ActivationConstants<LaneOf<V>>::kSiluCutoff);
  const V lifted = Lift(ExpScaled(hn::Neg(t)));
  const V q = hn::Mul(lifted, Constant<V>(1 / C::kLifted));
  const auto is_left = hn::Lt(x, hn::Zero(hn::DFromV<V>()));
  const V twice = hn::Add(q, q);
  const V below = hn::Add(hn::MulAdd(q, q, twice),
                          hn::IfThenElse(is_left, two, hn::MulAdd(q, q, Constant<V>(1))));
  const V share = hn::Mul(lifted, hn::Add(q, hn::IfThenElse(is_left, two, q)));
  const V gate = hn::Div(hn::Mul(t, share), hn::Mul(below, Constant<V>(C::kLifted)));
  return NanAtMinusInfinity(x, hn::Sub(ClampLow(x, -0.0f), gate));
}

// The gradient `grad` through Mish(x): with n = e^x (e^x + 2), n / (n + 2) plus
// 4 x e^x (1 + e^x) / (n + 2)^2.
template <class V>
HWY_INLINE V MishBackward(V grad, V x) {
  using namespace math;
  const V one = Constant<V>(1), two = Constant<V>(2);
  const V t = ClampHigh(hn::Abs(x), ActivationConstants<LaneOf<V>>::kSiluCutoff);
  const V q = UnscaleSmall(ExpScaled(hn::Neg(t)));
  const V twice = hn::Add(q, q);
  const auto is_left = hn::Lt(x, hn::Zero(hn::DFromV<V>()));
  // Right of zero both fractions are those of e^x, times q^2.
  const V below = hn::MulAdd(q, q, twice);
  const V top = hn::IfThenElse(is_left, below, hn::Add(one, twice));
  const V bottom = hn::Add(top, hn::IfThenElse(is_left, two, hn::Mul(twice, q)));
  const V slope = hn::IfThenElse(is_left, q, hn::Mul(q, q));
  const V rest = hn::Mul(hn::Mul(hn::IfThenElse(is_left, hn::Neg(t), t), Constant<V>(4)),
                         hn::Mul(slope, hn::Add(q, one)));
  const V square = hn::Mul(bottom, bottom);
  return hn::Mul(grad, hn::Add(hn::Div(top, bottom), hn::Div(rest, square)));
}

// The gradient `grad` through Silu(x).
template <class V>
HWY_INLINE V SiluBackward(V grad, V x) {
  return hn::Mul(grad, SiluGrad(x));
}

// The gradient `grad` through GeluTanh(x).
template <class V>
HWY_INLINE V GeluTanhBackward(V grad, V x) {
  return hn::Mul(grad, GeluTanhGrad(x));
}

}  // namespace hologram::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
