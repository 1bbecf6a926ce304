// SPDX-License-Identifier: MIT
// SIMD trigonometry: Sin, Cos, Tan over the whole range.

// Included once per target (see math-inl.h).
#if defined(HOLOGRAM_SRC_CPU_MATH_TRIG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_SRC_CPU_MATH_TRIG_INL_H_
#undef HOLOGRAM_SRC_CPU_MATH_TRIG_INL_H_
#else
#define HOLOGRAM_SRC_CPU_MATH_TRIG_INL_H_
#endif

#include "src/cpu/math-core-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram::HWY_NAMESPACE {

namespace math {

template <class T>
struct TrigConstants;

template <>
struct TrigConstants<float> {
  // sin(r) = r + r^3 p(r^2) for |r| <= pi / 2.
  static constexpr float kSin[] = {-0x1.555556p-3f, 0x1.111136p-7f, -0x1.a023b8p-13f,
                                   0x1.72c84ep-19f, -0x1.b5667cp-26f};
  // tan(r) = r + r^3 p(r^2) for |r| <= pi / 4.
  static constexpr float kTan[] = {0x1.555562p-2f, 0x1.110d18p-3f,   0x1.baf164p-5f, 0x1.5bcb78p-6f,
                                   0x1.67cf14p-7f, -0x1.9ac606p-14f, 0x1.24fc5cp-8f};
  static constexpr float kInversePi = 0x1.45f306p-2f;
  static constexpr float kPi[] = {0x1.921fb6p+1f, -0x1.777a5cp-24f, -0x1.ee59dap-49f};
  // Up to here the reduction in three steps keeps its relative accuracy at every float.
  static constexpr float kLimit = 0x1p17f;
  static float SinOf(float x) { return static_cast<float>(std::sin(static_cast<double>(x))); }
  static float CosOf(float x) { return static_cast<float>(std::cos(static_cast<double>(x))); }
  static float TanOf(float x) { return static_cast<float>(std::tan(static_cast<double>(x))); }
};

template <>
struct TrigConstants<double> {
  static constexpr double kSin[] = {
      -0x1.5555555555555p-3,  0x1.11111111110dp-7,    -0x1.a01a01a015bcbp-13,
      0x1.71de3a533e937p-19,  -0x1.ae645542e1345p-26, 0x1.6123f837d13eep-33,
      -0x1.ae56a62e9abc7p-41, 0x1.8caefd1abe166p-49,  -0x1.baeef688687a5p-59};
  // For |r| <= pi / 4, where tan(r) is a quotient.
  static constexpr double kShortSin[] = {
      -0x1.5555555555555p-3,  0x1.111111111106ap-7,  -0x1.a01a019ffea5fp-13, 0x1.71de3a343c582p-19,
      -0x1.ae642d45aac41p-26, 0x1.610a735d9b805p-33, -0x1.a0634383fee7bp-41};
  static constexpr double kShortCos[] = {
      0x1.5555555555555p-5,  -0x1.6c16c16c16b2dp-10, 0x1.a01a019ffc142p-16, -0x1.27e4fb595200ep-22,
      0x1.1eed6e8cdff0bp-29, -0x1.937342c6fcdcp-37,  0x1.9d3a61aee86e4p-45};
  static constexpr double kInversePi = 0x1.45f306dc9c883p-2;
#if HWY_NATIVE_FMA
  static constexpr double kPi[] = {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53,
                                   -0x1.f1976b7ed8fbcp-109};
#else
  // 28 bits each: products with integers below 2^24 are exact.
  static constexpr double kPi[] = {0x1.921fb54p+1, 0x1.10b461p-29, 0x1.a62633p-57, 0x1.45c06ep-85,
                                   0x1.cd12902p-114};
#endif
  static constexpr double kLimit = 0x1p24;
  static double SinOf(double x) { return std::sin(x); }
  static double CosOf(double x) { return std::cos(x); }
  static double TanOf(double x) { return std::tan(x); }
};

// x - m * pi * kScale to full relative accuracy, for |x| <= kLimit and m the nearest multiple of
// 1/2.
template <int kScaleDenominator, class V>
HWY_INLINE V SubtractMultipleOfPi(V x, V m) {
  using C = TrigConstants<LaneOf<V>>;
  constexpr LaneOf<V> kScale = LaneOf<V>{1} / kScaleDenominator;
#if HWY_NATIVE_FMA
  // The first step is exact, the others round relative to what is left.
  V r = hn::NegMulAdd(m, Constant<V>(C::kPi[0] * kScale), x);
  r = hn::NegMulAdd(m, Constant<V>(C::kPi[1] * kScale), r);
  return hn::NegMulAdd(m, Constant<V>(C::kPi[2] * kScale), r);
#else
  // Every product is exact; the errors of the sums are kept.
  const V first = hn::Sub(x, hn::Mul(m, Constant<V>(C::kPi[0] * kScale)));
  Pair<V> r = TwoSum(first, hn::Neg(hn::Mul(m, Constant<V>(C::kPi[1] * kScale))));
  V low = r.low;
  r = TwoSum(r.high, hn::Neg(hn::Mul(m, Constant<V>(C::kPi[2] * kScale))));
  low = hn::Add(low, r.low);
  r = TwoSum(r.high, hn::Neg(hn::Mul(m, Constant<V>(C::kPi[3] * kScale))));
  low = hn::Add(low, r.low);
  return hn::Add(r.high, hn::NegMulAdd(m, Constant<V>(C::kPi[4] * kScale), low));
#endif
}

// The sign bit set where the integer that rounder + integer holds in its low bits is odd.
template <class V>
HWY_INLINE V SignOfOdd(V shifted) {
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr int kShift = sizeof(LaneOf<V>) * 8 - 1;
  return hn::BitCast(d, hn::ShiftLeft<kShift>(hn::BitCast(du, shifted)));
}

template <class V>
HWY_INLINE V SignOf(V x) {
  return hn::And(x, hn::SignBit(hn::DFromV<V>()));
}

// sin(r) for |r| <= pi / 2.
template <class V>
HWY_INLINE V SinReduced(V r) {
  using C = TrigConstants<LaneOf<V>>;
  const V z = hn::Mul(r, r);
  return hn::MulAdd(hn::Mul(z, r), Polynomial(z, C::kSin), r);
}

template <class V>
HWY_INLINE V SinWithinLimit(V x) {
  using C = TrigConstants<LaneOf<V>>;
  const V rounder = Constant<V>(Layout<LaneOf<V>>::kRounder);
  // The sign is taken off and put back so that -0 comes out as itself.
  const V magnitude = hn::Abs(x);
  const V shifted = hn::MulAdd(magnitude, Constant<V>(C::kInversePi), rounder);
  const V r = SubtractMultipleOfPi<1>(magnitude, hn::Sub(shifted, rounder));
  return hn::Xor(hn::Xor(SinReduced(r), SignOfOdd(shifted)), SignOf(x));
}

template <class V>
HWY_INLINE V CosWithinLimit(V x) {
  using C = TrigConstants<LaneOf<V>>;
  const V rounder = Constant<V>(Layout<LaneOf<V>>::kRounder);
  const V half = Constant<V>(0.5);
  // cos(r + (k + 1/2) pi) = (-1)^(k + 1) sin(r).
  const V shifted = hn::Add(hn::MulAdd(x, Constant<V>(C::kInversePi), half), rounder);
  const V m = hn::Sub(hn::Sub(shifted, rounder), half);
  return hn::Xor(SinReduced(SubtractMultipleOfPi<1>(x, m)), SignOfOdd(shifted));
}

template <class V>
HWY_INLINE V TanWithinLimit(V x) {
  using C = TrigConstants<LaneOf<V>>;
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const V rounder = Constant<V>(Layout<LaneOf<V>>::kRounder);
  const V one = Constant<V>(1);
  const V magnitude = hn::Abs(x);
  const V shifted = hn::MulAdd(magnitude, Constant<V>(2 * C::kInversePi), rounder);
  const V r = SubtractMultipleOfPi<2>(magnitude, hn::Sub(shifted, rounder));
  const V z = hn::Mul(r, r);
  const V odd_sign = SignOfOdd(shifted);
  // As an integer: a sign bit alone is -0.0.
  const auto odd = hn::RebindMask(d, hn::Ne(hn::BitCast(du, odd_sign), hn::Zero(du)));
  V numerator, denominator;
  if constexpr (sizeof(LaneOf<V>) == 4) {
    numerator = hn::MulAdd(hn::Mul(z, r), Polynomial(z, C::kTan), r);
    denominator = one;
  } else {
    numerator = hn::MulAdd(hn::Mul(z, r), Polynomial(z, C::kShortSin), r);
    const V tail = hn::Mul(hn::Mul(z, z), Polynomial(z, C::kShortCos));
    denominator = hn::Add(hn::NegMulAdd(z, Constant<V>(0.5), one), tail);
  }
  // tan(r + pi / 2) = -1 / tan(r).
  const V quotient = hn::Div(hn::IfThenElse(odd, denominator, numerator),
                             hn::IfThenElse(odd, numerator, denominator));
  return hn::Xor(hn::Xor(quotient, odd_sign), SignOf(x));
}

}  // namespace math

#define HOLOGRAM_DEFINE_TRIG(NAME)                                                            \
  template <class V>                                                                          \
  HWY_INLINE V NAME(V x) {                                                                    \
    using C = math::TrigConstants<math::LaneOf<V>>;                                           \
    V result;                                                                                 \
    if constexpr (!HWY_NATIVE_FMA && sizeof(math::LaneOf<V>) == 4) {                          \
      result = math::InDouble(x, [](auto v) HWY_ATTR { return math::NAME##WithinLimit(v); }); \
    } else {                                                                                  \
      result = math::NAME##WithinLimit(x);                                                    \
    }                                                                                         \
    const auto near = hn::Le(hn::Abs(x), math::Constant<V>(C::kLimit));                       \
    if (HWY_LIKELY(hn::AllTrue(hn::DFromV<V>(), near))) return result;                        \
    return math::ReplaceRareLanes(hn::Not(near), x, result, &C::NAME##Of);                    \
  }

HOLOGRAM_DEFINE_TRIG(Sin)
HOLOGRAM_DEFINE_TRIG(Cos)
HOLOGRAM_DEFINE_TRIG(Tan)
#undef HOLOGRAM_DEFINE_TRIG

}  // namespace hologram::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
