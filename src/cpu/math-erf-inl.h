// SPDX-License-Identifier: MIT
// SIMD error functions and the normal distribution: Erf, Erfc, GeluErf and its derivative.

// Included once per target (see math-inl.h).
#if defined(HOLOGRAM_SRC_CPU_MATH_ERF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_SRC_CPU_MATH_ERF_INL_H_
#undef HOLOGRAM_SRC_CPU_MATH_ERF_INL_H_
#else
#define HOLOGRAM_SRC_CPU_MATH_ERF_INL_H_
#endif

#include "src/cpu/math-exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram::HWY_NAMESPACE {

namespace math {

template <class T>
struct ErfConstants;

template <>
struct ErfConstants<float> {
  // erf(x) = x + x p(x^2) for |x| <= kSmall.
  static constexpr float kSmallTail[] = {0x1.06eba6p-3f,  -0x1.8126eap-2f, 0x1.ce1aecp-4f,
                                         -0x1.b68fccp-6f, 0x1.474912p-8f,  -0x1.3a24aep-11f};
  // erf(x) = 1 - exp(-p(x)) for kSmall <= x <= kLarge, 1 beyond.
  static constexpr float kExponent[] = {-0x1.6e57d8p-13f, 0x1.2127e4p+0f,  0x1.44460cp-1f,
                                        0x1.bb83ep-4f,    -0x1.9b8e64p-6f, 0x1.115a8cp-8f,
                                        -0x1.c78feep-12f, 0x1.61e856p-16f};
  // P(N > t) = exp(-t^2 / 2) / (t + kPivot) * p(1 - 2 kPivot / (t + kPivot)).
  static constexpr float kMills[] = {
      0x1.82b4bcp-1f,  -0x1.373e38p-1f, 0x1.8c6d72p-2f,  -0x1.7e002cp-3f, 0x1.eee37p-5f,
      -0x1.ecfb7ap-8f, -0x1.cfdd5ep-9f, 0x1.97b7a2p-10f, 0x1.b762d2p-13f, -0x1.cbc3f8p-14f};
  static constexpr float kPivot = 4.0f;
  static constexpr float kSmall = 0.925f;
  static constexpr float kLarge = 3.93f;
  static constexpr float kNormalCutoff = 14.5f;  // t P(N > t) rounds to 0 from here on
  static constexpr float kErfcCutoff = 10.25f;   // as does erfc
};

template <>
struct ErfConstants<double> {
  static constexpr double kSmallTail[] = {
      0x1.06eba8214db68p-3,  -0x1.812746b03799cp-2,  0x1.ce2f21a03f78dp-4,  -0x1.b82ce311a3091p-6,
      0x1.565bccedd5a7bp-8,  -0x1.c02dae89d2fcp-11,  0x1.f9a291fc72ab4p-14, -0x1.f4c7dfbf35aedp-17,
      0x1.b9680c1e09f49p-20, -0x1.5b76dcb0c9741p-23, 0x1.d33f26c0eb9a1p-27, -0x1.a049206195883p-31};
  static constexpr double kMills[] = {
      0x1.8e010d2b8a0eap-1,   -0x1.66eaa7d096404p-1, 0x1.234fe3fd9251bp-1,  -0x1.a7d657726a4b1p-2,
      0x1.1267d73842339p-2,   -0x1.38b069db91ffbp-3, 0x1.33e7777477a4ep-4,  -0x1.fba9d540e6699p-6,
      0x1.48a83c5657657p-7,   -0x1.1764c8d9d2a9bp-9, 0x1.13b8af2335829p-15, 0x1.7c55942a782ccp-13,
      -0x1.0f914dacc2c9p-14,  0x1.2384a2bd8ddfp-20,  0x1.c75cb16137c1fp-18, -0x1.e9921f75c63cap-20,
      -0x1.c0aa40768322cp-22, 0x1.7281b504e875fp-22, 0x1.6d63df455807dp-28, -0x1.321c0329260c7p-24,
      -0x1.58b96250b4b67p-28, 0x1.f75a3de27086fp-27, 0x1.44eb34e93630fp-28};
  static constexpr double kPivot = 6.0;
  static constexpr double kSmall = 1.0;
  static constexpr double kNormalCutoff = 38.6;
  static constexpr double kErfcCutoff = 27.29;
};

// exp(t^2 / 2) * P(N > t) for t >= 0: the smooth part of the normal tail.
template <class V>
HWY_INLINE V Mills(V t) {
  using C = ErfConstants<LaneOf<V>>;
  const V w = hn::Div(Constant<V>(1), hn::Add(t, Constant<V>(C::kPivot)));
  const V u = hn::NegMulAdd(w, Constant<V>(2 * C::kPivot), Constant<V>(1));
  return hn::Mul(w, Polynomial(u, C::kMills));
}

// exp(-t^2 * scale) for a power of two `scale`, to full relative accuracy however large t^2 is.
template <class V>
HWY_INLINE Scaled<V> ExpOfMinusSquare(V t, LaneOf<V> scale) {
  const Pair<V> square = TwoProduct(t, t);
  const V minus = Constant<V>(-scale);
  return ExpScaled(Pair<V>{hn::Mul(square.high, minus), hn::Mul(square.low, minus)});
}

template <class V>
HWY_INLINE V ErfSmall(V x) {
  return hn::MulAdd(x, Polynomial(hn::Mul(x, x), ErfConstants<LaneOf<V>>::kSmallTail), x);
}

}  // namespace math

// The error function.
template <class V>
HWY_INLINE V Erf(V x) {
  using namespace math;
  using C = ErfConstants<LaneOf<V>>;
  const V one = Constant<V>(1);
  const V magnitude = hn::Abs(x);
  V large;
  if constexpr (sizeof(LaneOf<V>) == 4) {
    const V t = ClampHigh(magnitude, C::kLarge);
    large = hn::Sub(one, Unscale(ExpScaled(hn::Neg(Polynomial(t, C::kExponent)))));
  } else {
    const V t = ClampHigh(magnitude, 6.0);
    Scaled<V> tail = ExpScaled(hn::Neg(hn::Mul(t, t)));
    tail.mantissa = hn::Mul(tail.mantissa, Mills(hn::Mul(t, Constant<V>(1.4142135623730951))));
    large = hn::NegMulAdd(Unscale(tail), Constant<V>(2), one);
  }
  const auto is_small = hn::Lt(magnitude, Constant<V>(C::kSmall));
  return hn::CopySign(hn::IfThenElse(is_small, ErfSmall(magnitude), large), x);
}

// 1 - erf(x), to full relative accuracy in the tail.
template <class V>
HWY_INLINE V Erfc(V x) {
  using namespace math;
  using C = ErfConstants<LaneOf<V>>;
  const V t = ClampHigh(hn::Abs(x), C::kErfcCutoff);
  Scaled<V> tail = ExpOfMinusSquare(t, 1);
  const V mills = Mills(hn::Mul(t, Constant<V>(1.4142135623730951)));
  tail.mantissa = hn::Mul(tail.mantissa, hn::Add(mills, mills));
  const V upper = Unscale(tail);
  const auto negative = hn::Lt(x, hn::Zero(hn::DFromV<V>()));
  return hn::IfThenElse(negative, hn::Sub(Constant<V>(2), upper), upper);
}

// x * P(N < x), the exact GELU. Like PyTorch's, NaN at -inf.
template <class V>
HWY_INLINE V GeluErf(V x) {
  using namespace math;
  using C = ErfConstants<LaneOf<V>>;
  // For both signs max(x, 0) - |x| P(N > |x|): relative accuracy in the negative tail, no
  // selection.
  const V t = ClampHigh(hn::Abs(x), C::kNormalCutoff);
  Scaled<V> tail = ExpOfMinusSquare(t, 0.5f);
  tail.mantissa = hn::Mul(tail.mantissa, hn::Mul(t, Mills(t)));
  const V result = hn::Sub(ClampLow(x, 0), Unscale(tail));
  return hn::IfThenElse(hn::Eq(x, hn::Neg(Infinity<V>())), QuietNaN<V>(), hn::CopySign(result, x));
}

// The derivative of GeluErf: P(N < x) + x density(x).
template <class V>
HWY_INLINE V GeluErfGrad(V x) {
  using namespace math;
  using C = ErfConstants<LaneOf<V>>;
  const V t = ClampHigh(hn::Abs(x), C::kNormalCutoff);
  Scaled<V> tail = ExpOfMinusSquare(t, 0.5f);
  const V inner = hn::NegMulAdd(t, Constant<V>(0.3989422804014327), Mills(t));
  tail.mantissa = hn::Mul(tail.mantissa, inner);
  const V at_minus_t = Unscale(tail);
  const auto negative = hn::Lt(x, hn::Zero(hn::DFromV<V>()));
  return hn::IfThenElse(negative, at_minus_t, hn::Sub(Constant<V>(1), at_minus_t));
}

// The gradient `grad` through GeluErf(x).
template <class V>
HWY_INLINE V GeluErfBackward(V grad, V x) {
  return hn::Mul(grad, GeluErfGrad(x));
}

}  // namespace hologram::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
