// SPDX-License-Identifier: MIT
// SIMD trigonometry: Sin, Cos, Tan over the whole range.

// Included once per target (see math-inl.h).
#if defined(HOLOGRAM_SRC_CPU_MATH_TRIG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_SRC_CPU_MATH_TRIG_INL_H_
#undef HOLOGRAM_SRC_CPU_MATH_TRIG_INL_H_
#else
#define HOLOGRAM_SRC_CPU_MATH_TRIG_INL_H_
#endif

#include "src/cpu/simd/math-core-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram::HWY_NAMESPACE {

namespace math {

template <class T>
struct TrigConstants;

template <>
struct TrigConstants<float> {
  // For |r| <= pi / 4: sin(r) and tan(r) = r + r^3 p(r^2), cos(r) = 1 - r^2 / 2 + r^4 p(r^2).
  static constexpr float kSin[] = {-0x1.555556p-3f, 0x1.11117p-7f, -0x1.a053f4p-13f,
                                   0x1.7a87b8p-19f};
  static constexpr float kCos[] = {0x1.55554ap-5f, -0x1.6c0c04p-10f, 0x1.99d65ap-16f};
  static constexpr float kTan[] = {0x1.555564p-2f, 0x1.110c8p-3f,    0x1.bb0db2p-5f, 0x1.5a9e3p-6f,
                                   0x1.6e079p-7f,  -0x1.663f42p-12f, 0x1.2ced66p-8f};
  static constexpr float kTwoOverPi = 0x1.45f306p-1f;
  static constexpr float kHalfPi[] = {0x1.921fb6p+0f, -0x1.777a5cp-25f, -0x1.ee59dap-50f};
  // Up to here the reduction in three steps keeps its relative accuracy at every float.
  static constexpr float kLimit = 0x1p17f;
  static float SinOf(float x) { return static_cast<float>(std::sin(static_cast<double>(x))); }
  static float CosOf(float x) { return static_cast<float>(std::cos(static_cast<double>(x))); }
  static float TanOf(float x) { return static_cast<float>(std::tan(static_cast<double>(x))); }
};

template <>
struct TrigConstants<double> {
  static constexpr double kSin[] = {
      -0x1.5555555555555p-3,  0x1.111111111106ep-7,  -0x1.a01a019ffff4ep-13, 0x1.71de3a3693628p-19,
      -0x1.ae64310461f89p-26, 0x1.610d35369dad9p-33, -0x1.a1e8d0162a192p-41};
  static constexpr double kCos[] = {
      0x1.5555555555555p-5, -0x1.6c16c16c16b33p-10, 0x1.a01a019ffd95p-16, -0x1.27e4fb5b89b2bp-22,
      0x1.1eed719d3981p-29, -0x1.937746deba047p-37, 0x1.9f3e86904f452p-45};
  static constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
#if HWY_NATIVE_FMA
  static constexpr double kHalfPi[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54,
                                       -0x1.f1976b7ed8fbcp-110};
#else
  // 28 bits each: products with integers below 2^24 are exact.
  static constexpr double kHalfPi[] = {0x1.921fb54p+0, 0x1.10b461p-30, 0x1.a62633p-58,
                                       0x1.45c06ep-86, 0x1.cd12902p-115};
#endif
  static constexpr double kLimit = 0x1p24;
  static double SinOf(double x) { return std::sin(x); }
  static double CosOf(double x) { return std::cos(x); }
  static double TanOf(double x) { return std::tan(x); }
};

// x reduced to r = x - quadrant * pi / 2, |r| <= pi / 4; the quadrant is in the low bits of
// `shifted`.
template <class V>
struct Reduced {
  V r;
  V shifted;
};

// For 0 <= x <= kLimit, r to full relative accuracy.
template <class V>
HWY_INLINE Reduced<V> ReduceByHalfPi(V x) {
  using C = TrigConstants<LaneOf<V>>;
  const V rounder = Constant<V>(Layout<LaneOf<V>>::kRounder);
  const V shifted = hn::MulAdd(x, Constant<V>(C::kTwoOverPi), rounder);
  const V m = hn::Sub(shifted, rounder);
#if HWY_NATIVE_FMA
  // The first step is exact, the others round relative to what is left.
  V r = hn::NegMulAdd(m, Constant<V>(C::kHalfPi[0]), x);
  r = hn::NegMulAdd(m, Constant<V>(C::kHalfPi[1]), r);
  return {hn::NegMulAdd(m, Constant<V>(C::kHalfPi[2]), r), shifted};
#else
  // Every product is exact; the errors of the sums are kept.
  const V first = hn::Sub(x, hn::Mul(m, Constant<V>(C::kHalfPi[0])));
  Pair<V> r = TwoSum(first, hn::Neg(hn::Mul(m, Constant<V>(C::kHalfPi[1]))));
  V low = r.low;
  r = TwoSum(r.high, hn::Neg(hn::Mul(m, Constant<V>(C::kHalfPi[2]))));
  low = hn::Add(low, r.low);
  r = TwoSum(r.high, hn::Neg(hn::Mul(m, Constant<V>(C::kHalfPi[3]))));
  low = hn::Add(low, r.low);
  low = hn::NegMulAdd(m, Constant<V>(C::kHalfPi[4]), low);
  return {hn::Add(r.high, low), shifted};
#endif
}

// A vector whose sign bits are bit kBit of the quadrants; other bits are noise.
template <int kBit, class V>
HWY_INLINE V QuadrantBit(V shifted) {
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr int kShift = static_cast<int>(sizeof(LaneOf<V>) * 8) - 1 - kBit;
  return hn::BitCast(d, hn::ShiftLeft<kShift>(hn::BitCast(du, shifted)));
}

template <class V>
HWY_INLINE V SignOf(V x) {
  return hn::And(x, hn::SignBit(hn::DFromV<V>()));
}

// sin(r) and cos(r) for |r| <= pi / 4.
template <class V>
HWY_INLINE V SinReduced(V r, V z) {
  return hn::MulAdd(hn::Mul(z, r), Polynomial(z, TrigConstants<LaneOf<V>>::kSin), r);
}
template <class V>
HWY_INLINE V CosReduced(V z) {
  const V head = hn::NegMulAdd(z, Constant<V>(0.5), Constant<V>(1));
  return hn::MulAdd(hn::Mul(z, z), Polynomial(z, TrigConstants<LaneOf<V>>::kCos), head);
}

// The magnitudes are reduced and the signs put back, so that -0 comes out as itself.
template <class V>
HWY_INLINE V SinWithinLimit(V x) {
  const Reduced<V> q = ReduceByHalfPi(hn::Abs(x));
  const V z = hn::Mul(q.r, q.r);
  const V value =
      hn::IfNegativeThenElse(QuadrantBit<0>(q.shifted), CosReduced(z), SinReduced(q.r, z));
  return hn::Xor(value, SignOf(hn::Xor(QuadrantBit<1>(q.shifted), x)));
}

template <class V>
HWY_INLINE V CosWithinLimit(V x) {
  const Reduced<V> q = ReduceByHalfPi(hn::Abs(x));
  const V z = hn::Mul(q.r, q.r);
  const V odd = QuadrantBit<0>(q.shifted);
  const V value = hn::IfNegativeThenElse(odd, SinReduced(q.r, z), CosReduced(z));
  // Negative in the quadrants 1 and 2, where the two bits differ.
  return hn::Xor(value, SignOf(hn::Xor(QuadrantBit<1>(q.shifted), odd)));
}

template <class V>
HWY_INLINE V TanWithinLimit(V x) {
  using C = TrigConstants<LaneOf<V>>;
  const Reduced<V> q = ReduceByHalfPi(hn::Abs(x));
  const V z = hn::Mul(q.r, q.r);
  V numerator, denominator;
  if constexpr (sizeof(LaneOf<V>) == 4) {
    numerator = hn::MulAdd(hn::Mul(z, q.r), Polynomial(z, C::kTan), q.r);
    denominator = Constant<V>(1);
  } else {
    numerator = SinReduced(q.r, z);
    denominator = CosReduced(z);
  }
  // tan(r + pi / 2) = -1 / tan(r).
  const V odd = QuadrantBit<0>(q.shifted);
  const V quotient = hn::Div(hn::IfNegativeThenElse(odd, denominator, numerator),
                             hn::IfNegativeThenElse(odd, numerator, denominator));
  return hn::Xor(quotient, SignOf(hn::Xor(odd, x)));
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
