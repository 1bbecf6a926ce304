// SPDX-License-Identifier: MIT
// Building blocks of the SIMD math functions: polynomials, double-word arithmetic, powers of two,
// rare lanes.

// Included once per target (see math-inl.h).
#if defined(HOLOGRAM_SRC_CPU_MATH_CORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_SRC_CPU_MATH_CORE_INL_H_
#undef HOLOGRAM_SRC_CPU_MATH_CORE_INL_H_
#else
#define HOLOGRAM_SRC_CPU_MATH_CORE_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hologram::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

namespace math {

template <class V>
using LaneOf = hn::TFromD<hn::DFromV<V>>;
template <class V>
using MaskOf = hn::MFromD<hn::DFromV<V>>;

template <class V>
HWY_INLINE V Constant(LaneOf<V> value) {
  return hn::Set(hn::DFromV<V>(), value);
}

template <class V>
HWY_INLINE V Infinity() {
  return Constant<V>(std::numeric_limits<LaneOf<V>>::infinity());
}

template <class V>
HWY_INLINE V QuietNaN() {
  return Constant<V>(std::numeric_limits<LaneOf<V>>::quiet_NaN());
}

template <size_t kFirst, size_t kStep, class V, size_t kCount>
HWY_INLINE V HornerFrom(V x, const LaneOf<V> (&c)[kCount]) {
  if constexpr (kFirst + kStep >= kCount) {
    return Constant<V>(c[kFirst]);
  } else {
    return hn::MulAdd(HornerFrom<kFirst + kStep, kStep>(x, c), x, Constant<V>(c[kFirst]));
  }
}

// c[0] + c[1] x + c[2] x^2 ... Long polynomials run as two chains in x^2: half the latency.
template <class V, size_t kCount>
HWY_INLINE V Polynomial(V x, const LaneOf<V> (&c)[kCount]) {
  if constexpr (kCount < 8) {
    return HornerFrom<0, 1>(x, c);
  } else {
    const V x2 = hn::Mul(x, x);
    return hn::MulAdd(HornerFrom<1, 2>(x2, c), x, HornerFrom<0, 2>(x2, c));
  }
}

// min(max(x, low), high) where NaN stays NaN. x86 returns the second operand for NaN.
template <class V>
HWY_INLINE V ClampLow(V x, LaneOf<V> low) {
#if HWY_ARCH_X86
  return hn::Max(Constant<V>(low), x);
#else
  return hn::IfThenElse(hn::Lt(x, Constant<V>(low)), Constant<V>(low), x);
#endif
}

template <class V>
HWY_INLINE V ClampHigh(V x, LaneOf<V> high) {
#if HWY_ARCH_X86
  return hn::Min(Constant<V>(high), x);
#else
  return hn::IfThenElse(hn::Gt(x, Constant<V>(high)), Constant<V>(high), x);
#endif
}

template <class V>
HWY_INLINE V Clamp(V x, LaneOf<V> low, LaneOf<V> high) {
  return ClampHigh(ClampLow(x, low), high);
}

// The unevaluated sum high + low with |low| <= ulp(high) / 2.
template <class V>
struct Pair {
  V high;
  V low;
};

// The exact sum, for |a| >= |b| or a = 0.
template <class V>
HWY_INLINE Pair<V> FastTwoSum(V a, V b) {
  const V s = hn::Add(a, b);
  return {s, hn::Sub(b, hn::Sub(s, a))};
}

template <class V>
HWY_INLINE Pair<V> TwoSum(V a, V b) {
  const V s = hn::Add(a, b);
  const V bb = hn::Sub(s, a);
  return {s, hn::Add(hn::Sub(a, hn::Sub(s, bb)), hn::Sub(b, bb))};
}

#if !HWY_NATIVE_FMA
// Veltkamp's split into halves whose products are exact. Needs |a| far below overflow.
template <class V>
HWY_INLINE Pair<V> SplitHalves(V a) {
  constexpr LaneOf<V> kFactor = sizeof(LaneOf<V>) == 4 ? 4097.0 : 134217729.0;
  const V scaled = hn::Mul(a, Constant<V>(kFactor));
  const V high = hn::Sub(scaled, hn::Sub(scaled, a));
  return {high, hn::Sub(a, high)};
}
#endif

// The exact product: one rounding error recovered by FMA, or by Dekker's algorithm without it.
template <class V>
HWY_INLINE Pair<V> TwoProduct(V a, V b) {
  const V p = hn::Mul(a, b);
#if HWY_NATIVE_FMA
  return {p, hn::MulSub(a, b, p)};
#else
  const Pair<V> x = SplitHalves(a);
  const Pair<V> y = SplitHalves(b);
  V low = hn::Sub(hn::Mul(x.high, y.high), p);
  low = hn::Add(low, hn::Mul(x.high, y.low));
  low = hn::Add(low, hn::Mul(x.low, y.high));
  return {p, hn::Add(low, hn::Mul(x.low, y.low))};
#endif
}

template <class T>
struct Layout;

template <>
struct Layout<float> {
  static constexpr int kMantissaBits = 23;
  static constexpr int32_t kBias = 127;
  static constexpr float kRounder = 0x1.8p23f;  // adding it leaves the integer in the low bits
  static constexpr float kPow2Of23 = 0x1p23f;   // one unit in the last place is 1
  static constexpr int32_t kPow2Of23Bits = 0x4b000000;
  static constexpr int32_t kOneBits = 0x3f800000;
  static constexpr int32_t kSqrtHalfBits = 0x3f3504f3;
  static constexpr int32_t kMantissaMask = 0x007fffff;
  static constexpr float kMinNormal = 0x1p-126f;
  static constexpr float kDenormalScale = 0x1p24f;
  static constexpr float kDenormalShift = 24.0f;
};

template <>
struct Layout<double> {
  static constexpr int kMantissaBits = 52;
  static constexpr int32_t kBias = 1023;
  static constexpr double kRounder = 0x1.8p52;
  static constexpr double kPow2Of23 = 0x1p52;
  static constexpr int64_t kPow2Of23Bits = 0x4330000000000000;
  static constexpr int64_t kOneBits = 0x3ff0000000000000;
  static constexpr int64_t kSqrtHalfBits = 0x3fe6a09e667f3bcd;
  static constexpr int64_t kMantissaMask = 0x000fffffffffffff;
  static constexpr double kMinNormal = 0x1p-1022;
  static constexpr double kDenormalScale = 0x1p54;
  static constexpr double kDenormalShift = 54.0;
};

// 2^(n + more) for an integral n, where that is in the range of normal exponents.
template <class V>
HWY_INLINE V PowerOfTwo(V n, int more = 0) {
  using L = Layout<LaneOf<V>>;
  const hn::DFromV<V> d;
  const hn::RebindToSigned<decltype(d)> di;
  const V shifted = hn::Add(n, Constant<V>(L::kRounder + L::kBias + more));
  return hn::BitCast(d, hn::ShiftLeft<L::kMantissaBits>(hn::BitCast(di, shifted)));
}

#undef HOLOGRAM_HAVE_AVX512_MATH
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define HOLOGRAM_HAVE_AVX512_MATH 1
#else
#define HOLOGRAM_HAVE_AVX512_MATH 0
#endif

#if HOLOGRAM_HAVE_AVX512_MATH && !defined(HOLOGRAM_SYMBOLIC_MATH)
HWY_INLINE hn::Vec512<float> ScaleF(hn::Vec512<float> x, hn::Vec512<float> n) {
  return hn::Vec512<float>{_mm512_scalef_ps(x.raw, n.raw)};
}
HWY_INLINE hn::Vec512<double> ScaleF(hn::Vec512<double> x, hn::Vec512<double> n) {
  return hn::Vec512<double>{_mm512_scalef_pd(x.raw, n.raw)};
}
HWY_INLINE hn::Vec256<float> ScaleF(hn::Vec256<float> x, hn::Vec256<float> n) {
  return hn::Vec256<float>{_mm256_scalef_ps(x.raw, n.raw)};
}
HWY_INLINE hn::Vec256<double> ScaleF(hn::Vec256<double> x, hn::Vec256<double> n) {
  return hn::Vec256<double>{_mm256_scalef_pd(x.raw, n.raw)};
}
// x * 2^n, 0 where n <= least: those lanes are not computed.
HWY_INLINE hn::Vec512<float> ScaleFAbove(hn::Vec512<float> x, hn::Vec512<float> n,
                                         hn::Vec512<float> least) {
  const __mmask16 mask = _mm512_cmp_ps_mask(n.raw, least.raw, _CMP_NLE_UQ);
  return hn::Vec512<float>{_mm512_maskz_scalef_ps(mask, x.raw, n.raw)};
}
HWY_INLINE hn::Vec512<double> ScaleFAbove(hn::Vec512<double> x, hn::Vec512<double> n,
                                          hn::Vec512<double> least) {
  const __mmask8 mask = _mm512_cmp_pd_mask(n.raw, least.raw, _CMP_NLE_UQ);
  return hn::Vec512<double>{_mm512_maskz_scalef_pd(mask, x.raw, n.raw)};
}
template <size_t kN>
HWY_INLINE hn::Vec128<float, kN> ScaleF(hn::Vec128<float, kN> x, hn::Vec128<float, kN> n) {
  return hn::Vec128<float, kN>{_mm_scalef_ps(x.raw, n.raw)};
}
template <size_t kN>
HWY_INLINE hn::Vec128<double, kN> ScaleF(hn::Vec128<double, kN> x, hn::Vec128<double, kN> n) {
  return hn::Vec128<double, kN>{_mm_scalef_pd(x.raw, n.raw)};
}

// Both bits: NaN for negative numbers, yet 1 rather than -1 for -0.
inline constexpr auto kMantissaSign = static_cast<_MM_MANTISSA_SIGN_ENUM>(3);

// The mantissa in [1, 2), NaN for negative x; 1 for zeros and infinities.
HWY_INLINE hn::Vec512<float> GetMant(hn::Vec512<float> x) {
  return hn::Vec512<float>{_mm512_getmant_ps(x.raw, _MM_MANT_NORM_1_2, kMantissaSign)};
}
HWY_INLINE hn::Vec512<double> GetMant(hn::Vec512<double> x) {
  return hn::Vec512<double>{_mm512_getmant_pd(x.raw, _MM_MANT_NORM_1_2, kMantissaSign)};
}
HWY_INLINE hn::Vec256<float> GetMant(hn::Vec256<float> x) {
  return hn::Vec256<float>{_mm256_getmant_ps(x.raw, _MM_MANT_NORM_1_2, kMantissaSign)};
}
HWY_INLINE hn::Vec256<double> GetMant(hn::Vec256<double> x) {
  return hn::Vec256<double>{_mm256_getmant_pd(x.raw, _MM_MANT_NORM_1_2, kMantissaSign)};
}
template <size_t kN>
HWY_INLINE hn::Vec128<float, kN> GetMant(hn::Vec128<float, kN> x) {
  return hn::Vec128<float, kN>{_mm_getmant_ps(x.raw, _MM_MANT_NORM_1_2, kMantissaSign)};
}
template <size_t kN>
HWY_INLINE hn::Vec128<double, kN> GetMant(hn::Vec128<double, kN> x) {
  return hn::Vec128<double, kN>{_mm_getmant_pd(x.raw, _MM_MANT_NORM_1_2, kMantissaSign)};
}

// floor(log2(|x|)), -inf for zeros and inf for infinities.
HWY_INLINE hn::Vec512<float> GetExp(hn::Vec512<float> x) {
  return hn::Vec512<float>{_mm512_getexp_ps(x.raw)};
}
HWY_INLINE hn::Vec512<double> GetExp(hn::Vec512<double> x) {
  return hn::Vec512<double>{_mm512_getexp_pd(x.raw)};
}
HWY_INLINE hn::Vec256<float> GetExp(hn::Vec256<float> x) {
  return hn::Vec256<float>{_mm256_getexp_ps(x.raw)};
}
HWY_INLINE hn::Vec256<double> GetExp(hn::Vec256<double> x) {
  return hn::Vec256<double>{_mm256_getexp_pd(x.raw)};
}
template <size_t kN>
HWY_INLINE hn::Vec128<float, kN> GetExp(hn::Vec128<float, kN> x) {
  return hn::Vec128<float, kN>{_mm_getexp_ps(x.raw)};
}
template <size_t kN>
HWY_INLINE hn::Vec128<double, kN> GetExp(hn::Vec128<double, kN> x) {
  return hn::Vec128<double, kN>{_mm_getexp_pd(x.raw)};
}

// One nibble per class of x, counted from the lowest: -inf is the fifth, and 3 asks for NaN.
inline constexpr int kFixMinusInfinity = 0x30000;
HWY_INLINE hn::Vec512<float> FixMinusInfinity(hn::Vec512<float> x, hn::Vec512<float> result) {
  const __m512i table = _mm512_set1_epi32(kFixMinusInfinity);
  return hn::Vec512<float>{_mm512_fixupimm_ps(result.raw, x.raw, table, 0)};
}
HWY_INLINE hn::Vec512<double> FixMinusInfinity(hn::Vec512<double> x, hn::Vec512<double> result) {
  const __m512i table = _mm512_set1_epi64(kFixMinusInfinity);
  return hn::Vec512<double>{_mm512_fixupimm_pd(result.raw, x.raw, table, 0)};
}
#endif  // HOLOGRAM_HAVE_AVX512_MATH && !defined(HOLOGRAM_SYMBOLIC_MATH)

// `result`, but NaN where x is -inf, as PyTorch's x * probability(x) gives.
template <class V>
HWY_INLINE V NanAtMinusInfinity(V x, V result) {
#if HOLOGRAM_HAVE_AVX512_MATH
  if constexpr (sizeof(V) == 64) return FixMinusInfinity(x, result);
#endif
  return hn::IfThenElse(hn::Eq(x, hn::Neg(Infinity<V>())), QuietNaN<V>(), result);
}

// x * 2^n for an integral n, |n| at most twice the largest exponent. Rounds once, also into the
// denormals: the first factor of the two-step form stays normal.
template <class V>
HWY_INLINE V ScaleByPow2(V x, V n) {
#if HOLOGRAM_HAVE_AVX512_MATH
  return ScaleF(x, n);
#else
  const V half = hn::Round(hn::Mul(n, Constant<V>(0.5)));
  return hn::Mul(hn::Mul(x, PowerOfTwo(half)), PowerOfTwo(hn::Sub(n, half)));
#endif
}

// 2^exponent * (1 + fraction), fraction in [sqrt(1/2) - 1, sqrt(2) - 1].
template <class V>
struct Decomposed {
  V fraction;
  V exponent;
};

// Decomposes x > 0 (denormals too). With AVX-512, zeros and infinities yield exponents of -inf and
// inf with fraction 0, negative numbers and NaN a fraction of NaN; elsewhere those lanes are noise.
template <class V>
HWY_INLINE Decomposed<V> Decompose(V x) {
  const V one = Constant<V>(1);
#if HOLOGRAM_HAVE_AVX512_MATH
  const V mantissa = GetMant(x);
  const V exponent = GetExp(x);
  // The root itself belongs to the upper half, as elsewhere.
  const auto high = hn::Le(Constant<V>(1.41421356237309504880), mantissa);
  return {hn::Sub(hn::IfThenElse(high, hn::Mul(mantissa, Constant<V>(0.5)), mantissa), one),
          hn::IfThenElse(high, hn::Add(exponent, one), exponent)};
#else
  using L = Layout<LaneOf<V>>;
  const hn::DFromV<V> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto denormal = hn::Lt(x, Constant<V>(L::kMinNormal));
  const V normal = hn::IfThenElse(denormal, hn::Mul(x, Constant<V>(L::kDenormalScale)), x);
  const V shift = hn::IfThenElseZero(denormal, Constant<V>(L::kDenormalShift));
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto bits = hn::Add(hn::BitCast(di, normal), hn::Set(di, L::kOneBits - L::kSqrtHalfBits));
  const auto biased = hn::ShiftRight<L::kMantissaBits>(hn::BitCast(du, bits));
  const V exponent =
      hn::Sub(hn::BitCast(d, hn::Or(hn::BitCast(di, biased), hn::Set(di, L::kPow2Of23Bits))),
              hn::Add(Constant<V>(L::kPow2Of23 + L::kBias), shift));
  const auto mantissa =
      hn::Add(hn::And(bits, hn::Set(di, L::kMantissaMask)), hn::Set(di, L::kSqrtHalfBits));
  return {hn::Sub(hn::BitCast(d, mantissa), one), exponent};
#endif
}

// Replaces the lanes of `result` chosen by `rare` with function(x), one at a time. For arguments
// that do not occur in practice; never inlined, so that the usual loop stays small.
template <class V>
HWY_NOINLINE V ReplaceRareLanes(MaskOf<V> rare, V x, V result, LaneOf<V> (*function)(LaneOf<V>)) {
  const hn::DFromV<V> d;
  using T = LaneOf<V>;
  HWY_ALIGN T arguments[HWY_MAX_BYTES / sizeof(T)];
  HWY_ALIGN T chosen[HWY_MAX_BYTES / sizeof(T)];
  HWY_ALIGN T results[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(x, d, arguments);
  hn::Store(hn::IfThenElseZero(rare, Constant<V>(1)), d, chosen);
  hn::Store(result, d, results);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    if (chosen[i] != T{0}) results[i] = function(arguments[i]);
  }
  return hn::Load(d, results);
}

// Applies `function` to both halves of x widened to float64 and narrows the result. Where float32
// arithmetic would need double words this is quicker and more accurate.
template <class V, class F>
HWY_INLINE V InDouble(V x, F function) {
  const hn::DFromV<V> d;
  const hn::Half<decltype(d)> dh;
  const hn::RepartitionToWide<decltype(d)> dw;
  const auto low = function(hn::PromoteTo(dw, hn::LowerHalf(dh, x)));
  const auto high = function(hn::PromoteTo(dw, hn::UpperHalf(dh, x)));
  return hn::Combine(d, hn::DemoteTo(dh, high), hn::DemoteTo(dh, low));
}

template <class V, class F>
HWY_INLINE V InDouble(V x, V y, F function) {
  const hn::DFromV<V> d;
  const hn::Half<decltype(d)> dh;
  const hn::RepartitionToWide<decltype(d)> dw;
  const auto low =
      function(hn::PromoteTo(dw, hn::LowerHalf(dh, x)), hn::PromoteTo(dw, hn::LowerHalf(dh, y)));
  const auto high =
      function(hn::PromoteTo(dw, hn::UpperHalf(dh, x)), hn::PromoteTo(dw, hn::UpperHalf(dh, y)));
  return hn::Combine(d, hn::DemoteTo(dh, high), hn::DemoteTo(dh, low));
}

}  // namespace math
}  // namespace hologram::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
