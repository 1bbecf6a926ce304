// SPDX-License-Identifier: MIT
// SIMD error functions and the normal distribution: Erf, Erfc, GeluErf and its derivative.

// Included once per target (see math-inl.h).
#if defined(HOLOGRAM_SRC_CPU_MATH_ERF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_SRC_CPU_MATH_ERF_INL_H_
#undef HOLOGRAM_SRC_CPU_MATH_ERF_INL_H_
#else
#define HOLOGRAM_SRC_CPU_MATH_ERF_INL_H_
#endif

#include "src/cpu/simd/math-exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram::HWY_NAMESPACE {

namespace math {

template <class T>
struct ErfConstants;

template <>
struct ErfConstants<float> {
  // erf(x) = x + x p(x^2) for |x| <= kSmall.
  static constexpr float kSmallTail[] = {0x1.06eba6p-3f,  -0x1.8126eap-2f, 0x1.ce1aecp-4f,
                                         -0x1.b68fccp-6f, 0x1.474908p-8f,  -0x1.3a247ap-11f};
  // erf(x) = 1 - exp(-p(x)) for kSmall <= x <= kLarge, 1 beyond.
  static constexpr float kExponent[] = {-0x1.6e57d8p-13f, 0x1.2127e4p+0f,  0x1.44460cp-1f,
                                        0x1.bb83ep-4f,    -0x1.9b8e64p-6f, 0x1.115a8cp-8f,
                                        -0x1.c78feep-12f, 0x1.61e856p-16f};
  // P(N > t) = exp(-t^2 / 2) / (t + kPivot) * p(q - kCentre), q = t / (t + kPivot).
  static constexpr float kMills[] = {HOLOGRAM_MILLS_F32};
  static constexpr float kPivot = 4.0f;
  static constexpr float kCentre = 0.5f;
  static constexpr float kSmall = 0.925f;
  static constexpr float kLarge = 3.93f;
  static constexpr float kNormalCutoff = 15.0f;  // t P(N > t) is 0 from here on, see Unscale()
  static constexpr float kErfcCutoff = 10.6f;    // as is erfc
};

template <>
struct ErfConstants<double> {
  static constexpr double kSmallTail[] = {
      0x1.06eba8214db68p-3,  -0x1.812746b03799cp-2,  0x1.ce2f21a03f78dp-4,  -0x1.b82ce311a3091p-6,
      0x1.565bccedd5a7bp-8,  -0x1.c02dae89d2fcp-11,  0x1.f9a291fc72ab4p-14, -0x1.f4c7dfbf35aedp-17,
      0x1.b9680c1e09f49p-20, -0x1.5b76dcb0c9741p-23, 0x1.d33f26c0eb9a1p-27, -0x1.a049206195883p-31};
  static constexpr double kMills[] = {
      0x1.0f266442a8cc3p-1,   -0x1.5cf495f0bb6d4p-1,  0x1.a0aef067cdf31p-1,  -0x1.c92800ea32867p-1,
      0x1.c675bb87623b4p-1,   -0x1.90b4bb00427bep-1,  0x1.2e1349e6b4a5p-1,   -0x1.68a32fd0f5cep-2,
      0x1.0b6ae7be78a71p-3,   0x1.3816ac6db93acp-6,   -0x1.29e9c3c70a224p-4, 0x1.9a370648fe2cp-5,
      -0x1.15373d3f4658cp-10, -0x1.c22984983a96ep-6,  0x1.63e6ee9eaa0f5p-6,  0x1.24b35a1625d49p-6,
      0x1.77b8fed25514dp-6,   0x1.4f20457f925e6p-4,   0x1.aba6e5b9669b8p-4,  0x1.ec582fd7da90dp-5,
      0x1.afb26f1439c91p-7,   -0x1.abe921cdb0e17p-10, -0x1.e969fe635d52cp-11};
  static constexpr double kPivot = 5.0;
  static constexpr double kCentre = 0.75;
  static constexpr double kSmall = 1.0;
  static constexpr double kNormalCutoff = 39.0;
  static constexpr double kErfcCutoff = 27.6;
};

// (t + kPivot) exp(t^2 / 2) P(N > t), the smooth part of the normal tail, from q = t / (t +
// kPivot).
template <class V>
HWY_INLINE V MillsOfQuotient(V q) {
  using C = ErfConstants<LaneOf<V>>;
  const V u = hn::Sub(q, Constant<V>(C::kCentre));
  if constexpr (sizeof(LaneOf<V>) == 4) {
    return HornerFrom<0, 1>(u, C::kMills);
  } else {
    return Polynomial(u, C::kMills);
  }
}

// t exp(t^2 / 2) P(N > t) for t >= 0. Its relative error does not grow as t goes to 0.
template <class V>
HWY_INLINE V MillsTimesT(V t) {
  const V q = hn::Div(t, hn::Add(t, Constant<V>(ErfConstants<LaneOf<V>>::kPivot)));
  return hn::Mul(q, MillsOfQuotient(q));
}

// exp(t^2 / 2) P(N > t) for t >= 0.
template <class V>
HWY_INLINE V Mills(V t) {
  using C = ErfConstants<LaneOf<V>>;
  const V w = hn::Div(Constant<V>(1), hn::Add(t, Constant<V>(C::kPivot)));
  return hn::Mul(w, MillsOfQuotient(hn::Mul(t, w)));
}

// The coefficients of (exp(-r / 2) - 1) / r: those of ExpConstants, scaled exactly.
template <class T>
struct ExpMinusHalf {
  static constexpr size_t kCount = sizeof(ExpConstants<T>::kTail) / sizeof(T) + 1;
  struct Array {
    T values[kCount];
  };
  static constexpr Array kCoefficients = [] {
    Array array{};
    T scale = T(-0.5);
    array.values[0] = scale;
    for (size_t i = 1; i < kCount; ++i) {
      scale *= T(-0.5);
      array.values[i] = scale * ExpConstants<T>::kTail[i - 1];
    }
    return array;
  }();
};

// exp(-t^2 / 2) for 0 <= t <= kNormalCutoff, to full relative accuracy: t^2 is never rounded alone.
template <class V>
HWY_INLINE Scaled<V> ExpOfMinusHalfSquare(V t) {
  using T = LaneOf<V>;
  using C = ExpConstants<T>;
  const V square = hn::Mul(t, t);
  const V n = hn::Round(hn::Mul(square, Constant<V>(C::kLog2E * T(-0.5))));
  const V multiple = hn::Mul(n, Constant<V>(2 * C::kLn2High));
#if HWY_NATIVE_FMA
  V r = hn::MulAdd(t, t, multiple);
#else
  V r = hn::Add(hn::Add(square, multiple), TwoProduct(t, t).low);
#endif
  r = hn::MulAdd(n, Constant<V>(2 * C::kLn2Low), r);
  const V slope = Polynomial(r, ExpMinusHalf<T>::kCoefficients.values);
  return {hn::MulAdd(slope, r, Constant<V>(1)), n};
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
    large = hn::Sub(one, UnscaleSmall(ExpScaled(hn::Neg(Polynomial(t, C::kExponent)))));
  } else {
    const V t = ClampHigh(magnitude, 6.0);
    Scaled<V> tail = ExpScaled(hn::Neg(hn::Mul(t, t)));
    tail.mantissa = hn::Mul(tail.mantissa, Mills(hn::Mul(t, Constant<V>(1.4142135623730951))));
    large = hn::NegMulAdd(UnscaleSmall(tail), Constant<V>(2), one);
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
  const Pair<V> square = TwoProduct(t, t);
  Scaled<V> tail = ExpScaled(Pair<V>{hn::Neg(square.high), hn::Neg(square.low)});
  const V mills = Mills(hn::Mul(t, Constant<V>(1.4142135623730951)));
  tail.mantissa = hn::Mul(tail.mantissa, hn::Add(mills, mills));
  const V upper = UnscaleSmall(tail);
  const V zero = hn::Zero(hn::DFromV<V>());
  const V large = hn::IfThenElse(hn::Lt(x, zero), hn::Sub(Constant<V>(2), upper), upper);
  const auto is_small = hn::Lt(t, Constant<V>(0.5));
  return hn::IfThenElse(is_small, hn::Sub(Constant<V>(1), ErfSmall(x)), large);
}

// x * P(N < x), the exact GELU. Like PyTorch's, NaN at -inf.
template <class V>
HWY_INLINE V GeluErf(V x) {
  using namespace math;
  using C = ErfConstants<LaneOf<V>>;
  // For both signs max(x, 0) - |x| P(N > |x|): relative accuracy in the negative tail, no
  // selection.
  const V t = ClampHigh(hn::Abs(x), C::kNormalCutoff);
  Scaled<V> tail = ExpOfMinusHalfSquare(t);
  tail.mantissa = hn::Mul(tail.mantissa, MillsTimesT(t));
  return NanAtMinusInfinity(x, hn::Sub(ClampLow(x, -0.0f), UnscaleSmall(tail)));
}

// The derivative of GeluErf: P(N < x) + x density(x).
template <class V>
HWY_INLINE V GeluErfGrad(V x) {
  using namespace math;
  using C = ErfConstants<LaneOf<V>>;
  const V t = ClampHigh(hn::Abs(x), C::kNormalCutoff);
  Scaled<V> tail = ExpOfMinusHalfSquare(t);
  const V inner = hn::NegMulAdd(t, Constant<V>(0.3989422804014327), Mills(t));
  tail.mantissa = hn::Mul(tail.mantissa, inner);
  const V at_minus_t = UnscaleSmall(tail);
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
