// SPDX-License-Identifier: MIT
// SIMD logarithms: Log, Log2, Log10, Log1p.

// Included once per target (see math-inl.h).
#if defined(HOLOGRAM_SRC_CPU_MATH_LOG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_SRC_CPU_MATH_LOG_INL_H_
#undef HOLOGRAM_SRC_CPU_MATH_LOG_INL_H_
#else
#define HOLOGRAM_SRC_CPU_MATH_LOG_INL_H_
#endif

#include "src/cpu/simd/math-core-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram::HWY_NAMESPACE {

namespace math {

template <class T>
struct LogConstants;

template <>
struct LogConstants<float> {
  // log(1 + f) = f - f^2 / 2 + f^3 p(f).
  static constexpr float kTail[] = {0x1.555546p-2f,  -0x1.ffffeep-3f, 0x1.99a55ep-3f,
                                    -0x1.5562f6p-3f, 0x1.2330c8p-3f,  -0x1.fb3e24p-4f,
                                    0x1.e66b1p-4f,   -0x1.e313b2p-4f, 0x1.1b36ecp-4f};
  // Truncated, not rounded: with both parts positive an infinite exponent stays infinite.
  static constexpr float kLn2High = 0x1.62e4p-1f;
  static constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  static constexpr float kLog2EHigh = 0x1.715476p+0f;
  static constexpr float kLog2ELow = 0x1.4ae0cp-26f;
  static constexpr float kLog10EHigh = 0x1.bcb7b2p-2f;
  static constexpr float kLog10ELow = -0x1.5b235ep-27f;
  static constexpr float kLog10Of2High = 0x1.344p-2f;
  static constexpr float kLog10Of2Low = 0x1.3509f8p-18f;
};

template <>
struct LogConstants<double> {
  // 2 atanh(s) = 2 s + s^3 p(s^2) with s = f / (2 + f).
  static constexpr double kTail[] = {
      0x1.5555555555593p-1, 0x1.999999997f96fp-2, 0x1.2492494236b53p-2, 0x1.c71c51cac4867p-3,
      0x1.74664cd950095p-3, 0x1.39a0393163636p-3, 0x1.2f15817d5b56cp-3};
  static constexpr double kLn2High = 0x1.62e42fefa38p-1;
  static constexpr double kLn2Low = 0x1.ef35793c7673p-45;
  static constexpr double kLog2EHigh = 0x1.71547652b82fep+0;
  static constexpr double kLog2ELow = 0x1.777d0ffda0d24p-56;
  static constexpr double kLog10EHigh = 0x1.bcb7b1526e50ep-2;
  static constexpr double kLog10ELow = 0x1.95355baaafad3p-57;
  static constexpr double kLog10Of2High = 0x1.34413509f78p-2;
  static constexpr double kLog10Of2Low = 0x1.fef311f12b358p-46;
};

// log(1 + f) - f for f in [sqrt(1/2) - 1, sqrt(2) - 1].
template <class V>
HWY_INLINE V LogTail(V f) {
  using C = LogConstants<LaneOf<V>>;
  if constexpr (sizeof(LaneOf<V>) == 4) {
    const V z = hn::Mul(f, f);
    const V cubic = hn::Mul(hn::Mul(f, z), Polynomial(f, C::kTail));
    return hn::NegMulAdd(z, Constant<V>(0.5f), cubic);
  } else {
    // With h = f^2 / 2: f - 2 s = s f = f^2 / 2 - s h, so log(1 + f) = f - h + s (h + s^2 p).
    const V s = hn::Div(f, hn::Add(f, Constant<V>(2)));
    const V z = hn::Mul(s, s);
    const V h = hn::Mul(hn::Mul(f, f), Constant<V>(0.5));
    const V inner = hn::MulAdd(z, Polynomial(z, C::kTail), h);
    return hn::NegMulAdd(hn::Mul(f, f), Constant<V>(0.5), hn::Mul(s, inner));
  }
}

// exponent * ln(2) + log(1 + fraction).
template <class V>
HWY_INLINE V LogOf(Decomposed<V> x) {
  using C = LogConstants<LaneOf<V>>;
  const V low = hn::MulAdd(x.exponent, Constant<V>(C::kLn2Low), LogTail(x.fraction));
  return hn::MulAdd(x.exponent, Constant<V>(C::kLn2High), hn::Add(x.fraction, low));
}

// log(1 + fraction) as a pair, for the bases that need its product with a constant.
template <class V>
HWY_INLINE Pair<V> LogPairOf(V fraction) {
  return FastTwoSum(fraction, LogTail(fraction));
}

// Sets what Decompose left undefined: log(0) = -inf, log(inf) = inf, NaN otherwise.
template <class V>
HWY_INLINE V FixLog(V x, V result) {
#if HOLOGRAM_HAVE_AVX512_MATH
  (void)x;
  return result;
#else
  const V zero = hn::Zero(hn::DFromV<V>());
  // The sum makes a NaN quiet.
  result = hn::IfThenElse(hn::Lt(x, Infinity<V>()), result, hn::Add(x, x));
  result = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(Infinity<V>()), result);
  return hn::IfThenElse(hn::Lt(x, zero), QuietNaN<V>(), result);
#endif
}

// log(1 + x) for finite x > -1.
template <class V>
HWY_INLINE V Log1pFinite(V x) {
  const V one = Constant<V>(1);
  // The exponent comes from the rounded 1 + x, the fraction (1 + x) 2^-e - 1 from x itself.
  const V e = Decompose(hn::Add(x, one)).exponent;
  const V minus_e = hn::Neg(e);
  const V fraction = hn::Add(ScaleByPow2(x, minus_e), hn::Sub(ScaleByPow2(one, minus_e), one));
  return LogOf(Decomposed<V>{fraction, e});
}

}  // namespace math

// The natural logarithm.
template <class V>
HWY_INLINE V Log(V x) {
  return math::FixLog(x, math::LogOf(math::Decompose(x)));
}

// The binary logarithm, exact for powers of two.
template <class V>
HWY_INLINE V Log2(V x) {
  using C = math::LogConstants<math::LaneOf<V>>;
  const auto parts = math::Decompose(x);
  const auto log = math::LogPairOf(parts.fraction);
  const V high = math::Constant<V>(C::kLog2EHigh);
  const V low = hn::MulAdd(log.high, math::Constant<V>(C::kLog2ELow), hn::Mul(log.low, high));
  return math::FixLog(x, hn::Add(hn::MulAdd(log.high, high, parts.exponent), low));
}

// The decimal logarithm.
template <class V>
HWY_INLINE V Log10(V x) {
  using C = math::LogConstants<math::LaneOf<V>>;
  const auto parts = math::Decompose(x);
  const auto log = math::LogPairOf(parts.fraction);
  const V high = math::Constant<V>(C::kLog10EHigh);
  V low = hn::MulAdd(log.high, math::Constant<V>(C::kLog10ELow), hn::Mul(log.low, high));
  low = hn::MulAdd(parts.exponent, math::Constant<V>(C::kLog10Of2Low), low);
  const V sum = hn::MulAdd(log.high, high, low);
  return math::FixLog(x, hn::MulAdd(parts.exponent, math::Constant<V>(C::kLog10Of2High), sum));
}

// log(1 + x), without cancellation near 0.
template <class V>
HWY_INLINE V Log1p(V x) {
  using namespace math;
  const V minus_one = Constant<V>(-1);
  const V result = hn::CopySign(Log1pFinite(x), x);
  const V special = hn::IfThenElse(hn::Lt(x, minus_one), QuietNaN<V>(),
                                   hn::IfThenElse(hn::Eq(x, minus_one), hn::Neg(Infinity<V>()), x));
  return hn::IfThenElse(hn::And(hn::Gt(x, minus_one), hn::Lt(x, Infinity<V>())), result, special);
}

}  // namespace hologram::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
