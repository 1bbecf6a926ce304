// SPDX-License-Identifier: MIT
// SIMD exponentials: Exp, Exp2, Expm1, and the scaled forms other functions build on.

// Included once per target (see math-inl.h).
#if defined(HOLOGRAM_SRC_CPU_MATH_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_SRC_CPU_MATH_EXP_INL_H_
#undef HOLOGRAM_SRC_CPU_MATH_EXP_INL_H_
#else
#define HOLOGRAM_SRC_CPU_MATH_EXP_INL_H_
#endif

#include "src/cpu/simd/math-core-inl.h"
#include "src/ops/special_terms.h"

HWY_BEFORE_NAMESPACE();
namespace hologram::HWY_NAMESPACE {

namespace math {

// exp(r) = 1 + r + r^2 q(r) for |r| <= ln(2) / 2.
template <class T>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  static constexpr float kTail[] = {HOLOGRAM_EXP_F32};
  static constexpr float kExpm1Tail[] = {0x1p-1f,        0x1.555556p-3f,  0x1.5554eap-5f,
                                         0x1.110f62p-7f, 0x1.6d4c92p-10f, 0x1.a3e6bep-13f};
  static constexpr float kLog2E = 0x1.715476p+0f;
  // High parts have trailing zeros: their product with an exponent is exact also without FMA.
  static constexpr float kLn2High = 0x1.62e4p-1f;
  static constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  static constexpr float kLn2 = 0x1.62e43p-1f;
  static constexpr float kOverflow = 89.0f;
  static constexpr float kUnderflow = -110.0f;
  static constexpr float kExp2Overflow = 128.0f;
  static constexpr float kExp2Underflow = -160.0f;
  static constexpr float kLeastExponent = -157.5f;
  static constexpr int kLift = 64;
  static constexpr float kLifted = 0x1p64f;  // 1
  static constexpr float kExpm1Saturation = -18.0f;
  static constexpr float kMaxExponent = 127.0f;
};

template <>
struct ExpConstants<double> {
  static constexpr double kTail[] = {
      0x1.000000000000ap-1,  0x1.55555555555p-3,    0x1.55555555505f4p-5,  0x1.1111111125a9cp-7,
      0x1.6c16c184bbb8fp-10, 0x1.a01a01385ed7ep-13, 0x1.a0199876e6b73p-16, 0x1.71defff31fd08p-19,
      0x1.28aef2bdfe204p-22, 0x1.adc3f1867a971p-26};
  static constexpr const double (&kExpm1Tail)[10] = kTail;
  static constexpr double kLog2E = 0x1.71547652b82fep+0;
  static constexpr double kLn2High = 0x1.62e42fefa38p-1;
  static constexpr double kLn2Low = 0x1.ef35793c7673p-45;
  static constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  static constexpr double kOverflow = 710.0;
  static constexpr double kUnderflow = -754.0;
  static constexpr double kExp2Overflow = 1024.0;
  static constexpr double kExp2Underflow = -1088.0;
  static constexpr double kLeastExponent = -1085.5;
  static constexpr int kLift = 256;
  static constexpr double kLifted = 0x1p256;
  static constexpr double kExpm1Saturation = -40.0;
  static constexpr double kMaxExponent = 1023.0;
};

// mantissa * 2^exponent with an integral exponent, kept apart so that a product can be rounded into
// the denormals once.
template <class V>
struct Scaled {
  V mantissa;
  V exponent;
};

// mantissa * 2^exponent, for mantissas below 2^8 (float64: 2^11). With an exponent below
// kLeastExponent it would round to 0, and is set to 0 without computing it: many processors take a
// hundred cycles for a result that is denormal or rounds to 0. What uses this clamps its operand
// beyond that exponent, so that scores far below the largest, as masked ones are, cost no more.
template <class V>
HWY_INLINE V Unscale(Scaled<V> s) {
  const V least = Constant<V>(ExpConstants<LaneOf<V>>::kLeastExponent);
#if HOLOGRAM_HAVE_AVX512_MATH
  return ScaleFAbove(s.mantissa, s.exponent, least);
#else
  const V zero = hn::Zero(hn::DFromV<V>());
  return ScaleByPow2(hn::IfThenElse(hn::Lt(s.exponent, least), zero, s.mantissa), s.exponent);
#endif
}

// mantissa * 2^(exponent + kLift), which is normal for exponents up to 1 that Unscale() does not
// set to 0; they are set to 0 here, too. With kLifted for 1, a fraction of such numbers is that of
// the unscaled ones, and only it is rounded into the denormals.
template <class V>
HWY_INLINE V Lift(Scaled<V> s) {
  using C = ExpConstants<LaneOf<V>>;
#if HOLOGRAM_HAVE_AVX512_MATH
  return ScaleFAbove(s.mantissa, hn::Add(s.exponent, Constant<V>(C::kLift)),
                     Constant<V>(C::kLeastExponent + C::kLift));
#else
  const V zero = hn::Zero(hn::DFromV<V>());
  const auto is_least = hn::Lt(s.exponent, Constant<V>(C::kLeastExponent));
  return hn::Mul(hn::IfThenElse(is_least, zero, s.mantissa), PowerOfTwo(s.exponent, C::kLift));
#endif
}

// As Unscale(), for exponents up to 32: without AVX-512 half the instructions, the same bits.
template <class V>
HWY_INLINE V UnscaleSmall(Scaled<V> s) {
#if HOLOGRAM_HAVE_AVX512_MATH
  return Unscale(s);
#else
  return hn::Mul(Lift(s), Constant<V>(1 / ExpConstants<LaneOf<V>>::kLifted));
#endif
}

// exp(r) for |r| <= ln(2) / 2.
template <class V>
HWY_INLINE V ExpReduced(V r) {
  using C = ExpConstants<LaneOf<V>>;
  const V q = Polynomial(r, C::kTail);
  return hn::Add(hn::MulAdd(q, hn::Mul(r, r), r), Constant<V>(1));
}

// exp(x) for x within the clamps of Exp.
template <class V>
HWY_INLINE Scaled<V> ExpScaled(V x) {
  using C = ExpConstants<LaneOf<V>>;
  const V n = hn::Round(hn::Mul(x, Constant<V>(C::kLog2E)));
  V r = hn::NegMulAdd(n, Constant<V>(C::kLn2High), x);
  r = hn::NegMulAdd(n, Constant<V>(C::kLn2Low), r);
  return {ExpReduced(r), n};
}

// exp(x.high + x.low) to full precision, for |x.high| within the clamps of Exp.
template <class V>
HWY_INLINE Scaled<V> ExpScaled(Pair<V> x) {
  using C = ExpConstants<LaneOf<V>>;
  const V n = hn::Round(hn::Mul(x.high, Constant<V>(C::kLog2E)));
  V r = hn::NegMulAdd(n, Constant<V>(C::kLn2High), x.high);
  r = hn::Add(hn::NegMulAdd(n, Constant<V>(C::kLn2Low), r), x.low);
  return {ExpReduced(r), n};
}

// expm1(x) for x in [kExpm1Saturation, kOverflow]; loses only the sign of -0.
template <class V>
HWY_INLINE V Expm1Clamped(V x) {
  using C = ExpConstants<LaneOf<V>>;
  const V n = hn::Round(hn::Mul(x, Constant<V>(C::kLog2E)));
  V r = hn::NegMulAdd(n, Constant<V>(C::kLn2High), x);
  r = hn::NegMulAdd(n, Constant<V>(C::kLn2Low), r);
  const V small = hn::MulAdd(Polynomial(r, C::kExpm1Tail), hn::Mul(r, r), r);
  // 2^n (1 + small) - 1 as 2^n small + (2^n - 1): each term is exact or nearly so.
  const V scale = PowerOfTwo(n);
  return hn::MulAdd(scale, small, hn::Sub(scale, Constant<V>(1)));
}

}  // namespace math

// e^x.
template <class V>
HWY_INLINE V Exp(V x) {
  using C = math::ExpConstants<math::LaneOf<V>>;
  return math::Unscale(math::ExpScaled(math::Clamp(x, C::kUnderflow, C::kOverflow)));
}

// e^x for x <= 20, and NaN; above that anything.
template <class V>
HWY_INLINE V ExpOfSmall(V x) {
  using namespace math;
  return UnscaleSmall(ExpScaled(ClampLow(x, ExpConstants<LaneOf<V>>::kUnderflow)));
}

// 2^x.
template <class V>
HWY_INLINE V Exp2(V x) {
  using C = math::ExpConstants<math::LaneOf<V>>;
  x = math::Clamp(x, C::kExp2Underflow, C::kExp2Overflow);
  const V n = hn::Round(x);
  const V r = hn::Mul(hn::Sub(x, n), math::Constant<V>(C::kLn2));
  return math::Unscale(math::Scaled<V>{math::ExpReduced(r), n});
}

// e^x - 1, without cancellation near 0.
template <class V>
HWY_INLINE V Expm1(V x) {
  using namespace math;
  using C = ExpConstants<LaneOf<V>>;
  const V clamped = Clamp(x, C::kExpm1Saturation, C::kOverflow);
  const V n = hn::Round(hn::Mul(clamped, Constant<V>(C::kLog2E)));
  V r = hn::NegMulAdd(n, Constant<V>(C::kLn2High), clamped);
  r = hn::NegMulAdd(n, Constant<V>(C::kLn2Low), r);
  const V small = hn::MulAdd(Polynomial(r, C::kExpm1Tail), hn::Mul(r, r), r);
  // The largest exponent is one more than 2^n can hold; the rest of it is applied at the end.
  const V held = ClampHigh(n, C::kMaxExponent);
  const V scale = PowerOfTwo(held);
  const V result = hn::MulAdd(scale, small, hn::Sub(scale, Constant<V>(1)));
  return hn::CopySign(hn::Mul(result, PowerOfTwo(hn::Sub(n, held))), x);
}

}  // namespace hologram::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
