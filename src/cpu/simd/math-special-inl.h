// SPDX-License-Identifier: MIT
// SIMD special functions: Erfinv and Digamma.

// Included once per target (see math-inl.h).
#if defined(HOLOGRAM_SRC_CPU_MATH_SPECIAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_SRC_CPU_MATH_SPECIAL_INL_H_
#undef HOLOGRAM_SRC_CPU_MATH_SPECIAL_INL_H_
#else
#define HOLOGRAM_SRC_CPU_MATH_SPECIAL_INL_H_
#endif

#include "src/cpu/simd/math-log-inl.h"
#include "src/cpu/simd/math-trig-inl.h"
#include "src/ops/special_terms.h"
#ifndef HOLOGRAM_SYMBOLIC_MATH  // generated loops call the kernels of rows with these functions
HWY_BEFORE_NAMESPACE();
namespace hologram::HWY_NAMESPACE {

namespace math {

// See special_terms.h.
template <class T>
struct ErfinvConstants;

template <>
struct ErfinvConstants<float> {
  static constexpr float kNear = 2.5f, kNearMost = 5.0f, kFar = 3.0f;
  static constexpr float kNearTerms[] = {HOLOGRAM_ERFINV_NEAR_F32};
  static constexpr float kFarTerms[] = {HOLOGRAM_ERFINV_FAR_F32};
};

template <>
struct ErfinvConstants<double> {
  static constexpr double kNear = 3.125, kNearMost = 6.25, kFar = 3.25, kFarMost = 4.0,
                          kFarthest = 5.0;
  static constexpr double kNearTerms[] = {HOLOGRAM_ERFINV_NEAR_F64};
  static constexpr double kFarTerms[] = {HOLOGRAM_ERFINV_FAR_F64};
  static constexpr double kFarthestTerms[] = {HOLOGRAM_ERFINV_FARTHEST_F64};
};

inline constexpr double kDigammaSeries[] = {HOLOGRAM_DIGAMMA_SERIES};
inline constexpr int kDigammaLarge = 10;

template <class V>
HWY_INLINE V DigammaOfDouble(V x) {
  const V zero = hn::Zero(hn::DFromV<V>()), one = Constant<V>(1);
  // digamma(x) = digamma(1 - x) - pi / tan(pi x) left of zero.
  const auto is_negative = hn::Lt(x, zero);
  V t = hn::IfThenElse(is_negative, hn::Sub(one, x), x);
  // digamma(t) = digamma(t + 1) - 1 / t up to where the series converges.
  V poles = zero;
  for (int k = 0; k < kDigammaLarge; ++k) {
    const auto is_small = hn::Lt(t, Constant<V>(kDigammaLarge));
    poles = hn::Add(poles, hn::IfThenElseZero(is_small, hn::Div(one, t)));
    t = hn::Add(t, hn::IfThenElseZero(is_small, one));
  }
  const V inverse = hn::Div(one, t);
  const V square = hn::Mul(inverse, inverse);
  V result = hn::NegMulAdd(square, Polynomial(square, kDigammaSeries), Log(t));
  result = hn::NegMulAdd(inverse, Constant<V>(0.5), result);
  result = hn::Sub(result, poles);
  const V offset = hn::Sub(x, hn::Round(x));
  const V pi = Constant<V>(3.14159265358979323846);
  const V reflected = hn::Sub(result, hn::Div(pi, Tan(hn::Mul(offset, pi))));
  const V left = hn::IfThenElse(hn::Eq(offset, zero), QuietNaN<V>(), reflected);
  return hn::IfThenElse(is_negative, left, result);
}

}  // namespace math

// The inverse of Erf: infinite at -1 and 1, NaN beyond.
template <class V>
HWY_INLINE V Erfinv(V x) {
  using namespace math;
  using C = ErfinvConstants<LaneOf<V>>;
  const hn::DFromV<V> d;
  const V one = Constant<V>(1);
  const V magnitude = hn::Abs(x);
  const V w = hn::Neg(Log(hn::Mul(hn::Sub(one, magnitude), hn::Add(one, magnitude))));
  V factor = Polynomial(hn::Sub(w, Constant<V>(C::kNear)), C::kNearTerms);
  const auto is_far = hn::Gt(w, Constant<V>(C::kNearMost));
  if (!hn::AllFalse(d, is_far)) {
    const V root = hn::Sqrt(w);
    V far = Polynomial(hn::Sub(root, Constant<V>(C::kFar)), C::kFarTerms);
    if constexpr (sizeof(LaneOf<V>) == 8) {
      const V farthest = Polynomial(hn::Sub(root, Constant<V>(C::kFarthest)), C::kFarthestTerms);
      far = hn::IfThenElse(hn::Gt(root, Constant<V>(C::kFarMost)), farthest, far);
    }
    factor = hn::IfThenElse(is_far, far, factor);
  }
  const V result = hn::Mul(x, factor);
  return hn::IfThenElse(hn::Eq(magnitude, one), hn::CopySign(Infinity<V>(), x), result);
}

// The derivative of log(gamma(x)): infinite at zeros, of the other sign; NaN at negative integers.
template <class V>
HWY_INLINE V Digamma(V x) {
  if constexpr (sizeof(math::LaneOf<V>) == 4) {
    return math::InDouble(x, [](auto wide) HWY_ATTR { return math::DigammaOfDouble(wide); });
  } else {
    return math::DigammaOfDouble(x);
  }
}

}  // namespace hologram::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
