// SPDX-License-Identifier: MIT
// SIMD inverse and hyperbolic functions: Asin, Acos, Atan, Atan2, Sinh, Cosh, Asinh, Acosh, Atanh;
// Hypot.

// Included once per target (see math-inl.h).
#if defined(HOLOGRAM_SRC_CPU_MATH_INVERSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_SRC_CPU_MATH_INVERSE_INL_H_
#undef HOLOGRAM_SRC_CPU_MATH_INVERSE_INL_H_
#else
#define HOLOGRAM_SRC_CPU_MATH_INVERSE_INL_H_
#endif

#include "src/cpu/simd/math-exp-inl.h"
#include "src/cpu/simd/math-log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram::HWY_NAMESPACE {

namespace math {

template <class T>
struct InverseConstants;

template <>
struct InverseConstants<float> {
  // atan(u) = u + u^3 p(u^2) for |u| <= tan(pi / 8); asin(s) = s + s^3 p(s^2) for |s| <= 1/2.
  static constexpr float kAtan[] = {-0x1.55554ap-2f, 0x1.9991ep-3f, -0x1.23b964p-3f, 0x1.b21fbap-4f,
                                    -0x1.f2ca24p-5f};
  static constexpr float kAsin[] = {0x1.55554cp-3f, 0x1.3338acp-4f, 0x1.6ca754p-5f,
                                    0x1.04d2ep-5f,  0x1.d5249ap-7f, 0x1.34c3c6p-5f};
  static constexpr float kHalfPiHigh = 0x1.921fb6p+0f, kHalfPiLow = -0x1.777a5cp-25f;
  // Above kHuge x^2 + 1 is x^2; up to it no square overflows.
  static constexpr float kHuge = 0x1p28f;
  // Halves of numbers up to kTop add without overflow; numbers from kBottom on keep their bits when
  // they are halved.
  static constexpr float kTop = 0x1p120f, kBottom = 0x1p-90f, kDown = 0x1p-8f, kUp = 0x1p60f;
};

template <>
struct InverseConstants<double> {
  static constexpr double kAtan[] = {
      -0x1.555555555553cp-2, 0x1.999999999564ep-3, -0x1.24924922a06a1p-3, 0x1.c71c70e108a6bp-4,
      -0x1.745cf84bc2a31p-4, 0x1.3b110f0370c6ep-4, -0x1.10eb44c4a0747p-4, 0x1.df08add82eddbp-5,
      -0x1.9cb4b2671702ap-5, 0x1.3788b13d9ac5cp-5, -0x1.24c06a2efc16p-6};
  static constexpr double kAsin[] = {
      0x1.5555555555577p-3, 0x1.333333332e131p-4, 0x1.6db6db7212675p-5, 0x1.f1c71a94f35a3p-6,
      0x1.6e8bdee02fc82p-6, 0x1.1c49f05e2b43dp-6, 0x1.ca1f8d4e960b8p-7, 0x1.75858ac94cac1p-7,
      0x1.613c85ac4e578p-7, 0x1.e5f5f8e8b4a4dp-9, 0x1.639c4b87c82e1p-6, -0x1.57fd3dc200279p-6,
      0x1.0b46a74682fabp-5};
  static constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0, kHalfPiLow = 0x1.1a62633145c07p-54;
  static constexpr double kHuge = 0x1p60;
  static constexpr double kTop = 0x1p1000, kBottom = 0x1p-900, kDown = 0x1p-30, kUp = 0x1p120;
};

// tan(pi / 8) and tan(3 pi / 8): where the three forms of an angle meet.
inline constexpr double kTanEighthPi = 0.41421356237309503;
inline constexpr double kTanThreeEighthsPi = 2.414213562373095;

// atan(a / b) for a, b >= 0 whose sum does not overflow, not both zero or infinite. By a / b, an
// angle of pi / 4 plus that of (a - b) / (a + b), or pi / 2 less that of b / a: one division.
template <class V>
HWY_INLINE V AngleOf(V a, V b) {
  using C = InverseConstants<LaneOf<V>>;
  const V zero = hn::Zero(hn::DFromV<V>());
  const auto is_flat = hn::Le(a, hn::Mul(b, Constant<V>(kTanEighthPi)));
  const auto is_steep = hn::Lt(hn::Mul(b, Constant<V>(kTanThreeEighthsPi)), a);
  const V top = hn::IfThenElse(is_flat, a, hn::IfThenElse(is_steep, hn::Neg(b), hn::Sub(a, b)));
  const V bottom = hn::IfThenElse(is_flat, b, hn::IfThenElse(is_steep, a, hn::Add(a, b)));
  const V half = Constant<V>(0.5);
  const V part = hn::IfThenElse(is_flat, zero, hn::IfThenElse(is_steep, Constant<V>(1), half));
  const V u = hn::Div(top, bottom);
  const V z = hn::Mul(u, u);
  const V bend =
      hn::MulAdd(hn::Mul(u, z), Polynomial(z, C::kAtan), hn::Mul(part, Constant<V>(C::kHalfPiLow)));
  return hn::Add(hn::Mul(part, Constant<V>(C::kHalfPiHigh)), hn::Add(u, bend));
}

// asin(s) = s + bend for |s| <= 1/2: of |x| up to 1/2, beyond of sqrt((1 - |x|) / 2), whose
// angle is half of what is missing from pi / 2.
template <class V>
struct SineAngle {
  MaskOf<V> is_small;
  V s, bend;
};

template <class V>
HWY_INLINE SineAngle<V> SineAngleOf(V x) {
  const V half = Constant<V>(0.5);
  const V a = hn::Abs(x);
  const auto is_small = hn::Le(a, half);
  const V rest = hn::Mul(hn::Sub(Constant<V>(1), a), half);
  const V z = hn::IfThenElse(is_small, hn::Mul(a, a), rest);
  const V s = hn::IfThenElse(is_small, x, hn::Sqrt(rest));
  return {is_small, s, hn::Mul(hn::Mul(s, z), Polynomial(z, InverseConstants<LaneOf<V>>::kAsin))};
}

}  // namespace math

// The inverse tangent.
template <class V>
HWY_INLINE V Atan(V x) {
  return hn::CopySign(math::AngleOf(hn::Abs(x), math::Constant<V>(1)), x);
}

// The angle of the point (x, y), in [-pi, pi]. Signed zeros and infinities as C99 has them.
template <class V>
HWY_INLINE V Atan2(V y, V x) {
  using namespace math;
  using C = InverseConstants<LaneOf<V>>;
  const V one = Constant<V>(1), infinity = Infinity<V>();
  V a = hn::Abs(y), b = hn::Abs(x);
  const auto both_infinite = hn::And(hn::Eq(a, infinity), hn::Eq(b, infinity));
  a = hn::IfThenElse(both_infinite, one, a);
  b = hn::IfThenElse(both_infinite, one, b);
  const V larger = hn::Max(a, b);
  const V scale = hn::IfThenElse(
      hn::Lt(Constant<V>(C::kTop), larger), Constant<V>(C::kDown),
      hn::IfThenElse(hn::Lt(larger, Constant<V>(C::kBottom)), Constant<V>(C::kUp), one));
  b = hn::IfThenElse(hn::Eq(larger, hn::Zero(hn::DFromV<V>())), one, hn::Mul(b, scale));
  const V angle = AngleOf(hn::Mul(a, scale), b);
  const V beyond =
      hn::Add(hn::Sub(Constant<V>(2 * C::kHalfPiHigh), angle), Constant<V>(2 * C::kHalfPiLow));
  const auto is_left = hn::Lt(hn::CopySign(one, x), hn::Zero(hn::DFromV<V>()));
  return hn::CopySign(hn::IfThenElse(is_left, beyond, angle), y);
}

// The inverse sine; NaN outside [-1, 1].
template <class V>
HWY_INLINE V Asin(V x) {
  using namespace math;
  using C = InverseConstants<LaneOf<V>>;
  const auto [is_small, s, bend] = SineAngleOf(x);
  const V angle = hn::Add(s, bend);
  const V large = hn::Sub(Constant<V>(C::kHalfPiHigh),
                          hn::Sub(hn::Add(angle, angle), Constant<V>(C::kHalfPiLow)));
  return hn::CopySign(hn::IfThenElse(is_small, angle, large), x);
}

// The inverse cosine; NaN outside [-1, 1].
template <class V>
HWY_INLINE V Acos(V x) {
  using namespace math;
  using C = InverseConstants<LaneOf<V>>;
  const auto [is_small, s, bend] = SineAngleOf(x);
  const V middle =
      hn::Sub(Constant<V>(C::kHalfPiHigh), hn::Sub(s, hn::Sub(Constant<V>(C::kHalfPiLow), bend)));
  const V angle = hn::Add(s, bend);
  const V twice = hn::Add(angle, angle);
  const V left =
      hn::Sub(Constant<V>(2 * C::kHalfPiHigh), hn::Sub(twice, Constant<V>(2 * C::kHalfPiLow)));
  const auto is_left = hn::Lt(x, hn::Zero(hn::DFromV<V>()));
  return hn::IfThenElse(is_small, middle, hn::IfThenElse(is_left, left, twice));
}

// The hyperbolic sine: u / 2 (1 + 1 / (u + 1)) with u = expm1(x), from expm1(x / 2), which does
// not overflow before the result does.
template <class V>
HWY_INLINE V Sinh(V x) {
  using namespace math;
  const V one = Constant<V>(1), half = Constant<V>(0.5);
  const V e = Expm1(hn::Mul(hn::Abs(x), half));
  const V half_u = hn::Mul(hn::Mul(e, half), hn::Add(e, Constant<V>(2)));
  const V u = hn::Add(half_u, half_u);
  return hn::CopySign(hn::Mul(half_u, hn::Add(hn::Div(one, hn::Add(u, one)), one)), x);
}

// The hyperbolic cosine, from exp(x / 2).
template <class V>
HWY_INLINE V Cosh(V x) {
  using namespace math;
  const V half = Constant<V>(0.5);
  const V e = Exp(hn::Mul(hn::Abs(x), half));
  return hn::MulAdd(hn::Mul(e, half), e, hn::Div(half, hn::Mul(e, e)));
}

// The inverse hyperbolic sine: log1p(a + a^2 / (1 + sqrt(1 + a^2))), log(2 a) for huge a.
template <class V>
HWY_INLINE V Asinh(V x) {
  using namespace math;
  const V one = Constant<V>(1);
  const V a = hn::Abs(x);
  const auto is_huge = hn::Lt(Constant<V>(InverseConstants<LaneOf<V>>::kHuge), a);
  const V square = hn::Mul(a, a);
  const V root = hn::Sqrt(hn::Add(square, one));
  const V sum = hn::Add(a, hn::Div(square, hn::Add(root, one)));
  const V log = Log1p(hn::IfThenElse(is_huge, a, sum));
  const V ln2 = hn::IfThenElseZero(is_huge, Constant<V>(0.69314718055994531));
  return hn::CopySign(hn::Add(log, ln2), x);
}

// The inverse hyperbolic cosine, NaN below 1: log1p(t + sqrt(t (t + 2))) with t = x - 1.
template <class V>
HWY_INLINE V Acosh(V x) {
  using namespace math;
  const V one = Constant<V>(1);
  const auto is_huge = hn::Lt(Constant<V>(InverseConstants<LaneOf<V>>::kHuge), x);
  const V t = hn::Sub(x, one);
  const V sum = hn::Add(t, hn::Sqrt(hn::Mul(t, hn::Add(t, Constant<V>(2)))));
  const V log = Log1p(hn::IfThenElse(is_huge, x, sum));
  const V ln2 = hn::IfThenElseZero(is_huge, Constant<V>(0.69314718055994531));
  return hn::IfThenElse(hn::Lt(x, one), QuietNaN<V>(), hn::Add(log, ln2));
}

// The inverse hyperbolic tangent: infinite at -1 and 1, NaN beyond.
template <class V>
HWY_INLINE V Atanh(V x) {
  using namespace math;
  const V a = hn::Abs(x);
  const V ratio = hn::Div(hn::Add(a, a), hn::Sub(Constant<V>(1), a));
  return hn::CopySign(hn::Mul(Log1p(ratio), Constant<V>(0.5)), x);
}

// sqrt(x^2 + y^2) without overflow on the way; infinite where either is, even beside NaN.
template <class V>
HWY_INLINE V Hypot(V x, V y) {
  using namespace math;
  const V infinity = Infinity<V>();
  const V a = hn::Abs(x), b = hn::Abs(y);
  const V larger = hn::Max(a, b), smaller = hn::Min(a, b);
  const V ratio = hn::Div(smaller, larger);
  const V length = hn::Mul(larger, hn::Sqrt(hn::MulAdd(ratio, ratio, Constant<V>(1))));
  const auto is_plain = hn::Eq(smaller, hn::Zero(hn::DFromV<V>()));
  const auto is_infinite = hn::Or(hn::Eq(a, infinity), hn::Eq(b, infinity));
  const V sum = hn::Add(a, b);
  V result = hn::IfThenElse(is_plain, larger, length);
  result = hn::IfThenElse(hn::IsNaN(sum), sum, result);
  return hn::IfThenElse(is_infinite, infinity, result);
}

}  // namespace hologram::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
