// SPDX-License-Identifier: MIT
// SIMD powers and roots: Pow with every special case of C99 Annex F, Sqrt, Rsqrt, Reciprocal.

// Included once per target (see math-inl.h).
#if defined(HOLOGRAM_SRC_CPU_MATH_POW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_SRC_CPU_MATH_POW_INL_H_
#undef HOLOGRAM_SRC_CPU_MATH_POW_INL_H_
#else
#define HOLOGRAM_SRC_CPU_MATH_POW_INL_H_
#endif

#include "src/cpu/simd/math-exp-inl.h"
#include "src/cpu/simd/math-log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram::HWY_NAMESPACE {

namespace math {

// For float32 powers, computed in float64 to about 2^-36: log(1 + f) and exp(r).
struct WideConstants {
  static constexpr double kLogTail[] = {
      0x1.5555555e08c96p-2, -0x1.000000d2fe938p-2, 0x1.99998e470d75bp-3, -0x1.555495b977ddp-3,
      0x1.24941e24c720dp-3, -0x1.001f050bbace7p-3, 0x1.c6fc86417cbe4p-4, -0x1.95074b43861cbp-4,
      0x1.712cbd4204201p-4, -0x1.7bbb9539c0cb8p-4, 0x1.79c708a04dfd3p-4, -0x1.965c1ecdec762p-5};
  static constexpr double kExpTail[] = {0x1.0000003a6f2b3p-1,  0x1.55555441a795ap-3,
                                        0x1.55548d132be67p-5,  0x1.111272120af92p-7,
                                        0x1.6d8daee7cff89p-10, 0x1.9f07faea6909cp-13};
};

// For float64 powers: 2 atanh(s) = 2 s + s^3 (2/3 + s^2 p(s^2)).
struct PowConstants {
  static constexpr double kTail[] = {
      0x1.999999999999ap-2, 0x1.2492492491fa6p-2, 0x1.c71c71c857b1fp-3, 0x1.745d165c8366bp-3,
      0x1.3b1400df83024p-3, 0x1.11042cbb04941p-3, 0x1.e36d4c59583cep-4, 0x1.ba43d787e5e34p-4};
  static constexpr double kTwoThirdsHigh = 0x1.5555555555555p-1,
                          kTwoThirdsLow = 0x1.5555555555555p-55;
};

// x^y for positive finite x and finite y, before its narrowing to float32.
template <class V>
HWY_INLINE V PowWide(V x, V y) {
  using C = ExpConstants<double>;
  const Decomposed<V> parts = Decompose(x);
  const V f = parts.fraction;
  const V z = hn::Mul(f, f);
  const V cubic = hn::Mul(hn::Mul(f, z), Polynomial(f, WideConstants::kLogTail));
  const V log = hn::MulAdd(parts.exponent, Constant<V>(C::kLn2),
                           hn::Add(f, hn::NegMulAdd(z, Constant<V>(0.5), cubic)));
  const V product = Clamp(hn::Mul(log, y), -110.0, 110.0);
  const V n = hn::Round(hn::Mul(product, Constant<V>(C::kLog2E)));
  const V r = hn::NegMulAdd(n, Constant<V>(C::kLn2), product);
  const V q = Polynomial(r, WideConstants::kExpTail);
  const V power = hn::Add(hn::MulAdd(q, hn::Mul(r, r), r), Constant<V>(1));
#if HOLOGRAM_HAVE_AVX512_MATH
  return ScaleF(power, n);
#else
  return hn::Mul(power, PowerOfTwo(n));
#endif
}

// log(x) for positive finite x as a pair, to about 2^-64.
template <class V>
HWY_INLINE Pair<V> LogPrecise(V x) {
  using L = LogConstants<double>;
  const Decomposed<V> parts = Decompose(x);
  const V f = parts.fraction;
  // s = f / (2 + f): the denominator is a pair, the remainder of the division gives the low part.
  const Pair<V> below = FastTwoSum(Constant<V>(2), f);
  const V inverse = hn::Div(Constant<V>(1), below.high);
  const V s = hn::Mul(f, inverse);
  const Pair<V> back = TwoProduct(s, below.high);
  V remainder = hn::Sub(hn::Sub(f, back.high), back.low);
  remainder = hn::NegMulAdd(s, below.low, remainder);
  const V s_low = hn::Mul(remainder, inverse);
  const Pair<V> square = TwoProduct(s, s);
  const V square_low = hn::MulAdd(hn::Add(s, s), s_low, square.low);
  // t = 2/3 + z p(z); then 2 s + s z t.
  const V small = hn::Mul(square.high, Polynomial(square.high, PowConstants::kTail));
  Pair<V> t = FastTwoSum(Constant<V>(PowConstants::kTwoThirdsHigh), small);
  t.low = hn::Add(t.low, Constant<V>(PowConstants::kTwoThirdsLow));
  const Pair<V> zt = TwoProduct(square.high, t.high);
  const V zt_low = hn::MulAdd(square.high, t.low, hn::MulAdd(square_low, t.high, zt.low));
  const Pair<V> szt = TwoProduct(s, zt.high);
  const V szt_low = hn::MulAdd(s, zt_low, hn::MulAdd(s_low, zt.high, szt.low));
  const Pair<V> log = FastTwoSum(hn::Add(s, s), szt.high);
  const V log_low = hn::Add(log.low, hn::Add(szt_low, hn::Add(s_low, s_low)));
  // exponent * ln(2): the product with the high part is exact.
  const V base = hn::Mul(parts.exponent, Constant<V>(L::kLn2High));
  const Pair<V> base_low = TwoProduct(parts.exponent, Constant<V>(L::kLn2Low));
  const Pair<V> sum = TwoSum(base, log.high);
  const Pair<V> next = TwoSum(base_low.high, sum.low);
  return FastTwoSum(sum.high,
                    hn::Add(next.high, hn::Add(next.low, hn::Add(log_low, base_low.low))));
}

// x^y for positive finite x.
template <class V>
HWY_INLINE V PowPositive(V x, V y) {
  using C = ExpConstants<double>;
  const Pair<V> log = LogPrecise(x);
  // Beyond 2^66 only the sign of y matters; this keeps products finite.
  y = Clamp(y, -0x1p66, 0x1p66);
  const Pair<V> product = TwoProduct(log.high, y);
  const V low = hn::MulAdd(log.low, y, product.low);
  const auto in_range = hn::Lt(hn::Abs(product.high), Constant<V>(800));
  return Unscale(ExpScaled(Pair<V>{Clamp(product.high, C::kUnderflow, C::kOverflow),
                                   hn::IfThenElseZero(in_range, low)}));
}

// Everything C99 asks of pow beyond x^y of a positive finite x, given `power` = |x|^y.
template <class V>
HWY_INLINE V PowSpecial(V x, V y, V power) {
  const V zero = hn::Zero(hn::DFromV<V>());
  const V one = Constant<V>(1);
  const V inf = Infinity<V>();
  const V magnitude = hn::Abs(x);
  const auto is_zero = hn::Eq(magnitude, zero);
  const auto is_inf = hn::Eq(magnitude, inf);
  const auto y_negative = hn::Lt(y, zero);
  power = hn::IfThenElse(hn::Or(is_zero, is_inf),
                         hn::IfThenElseZero(hn::Xor(is_inf, y_negative), inf), power);
  const auto y_integer = hn::Eq(hn::Round(y), y);
  const V half = hn::Mul(y, Constant<V>(0.5));
  const auto y_odd = hn::AndNot(hn::Eq(hn::Round(half), half), y_integer);
  power = hn::Or(power, hn::And(hn::IfThenElseZero(y_odd, x), hn::SignBit(hn::DFromV<V>())));
  const auto negative = hn::And(hn::Lt(x, zero), hn::Gt(x, hn::Neg(inf)));
  power = hn::IfThenElse(hn::AndNot(y_integer, negative), QuietNaN<V>(), power);
  const auto unordered = hn::Or(hn::IsNaN(x), hn::IsNaN(y));
  power = hn::IfThenElse(unordered, hn::Add(x, y), power);
  return hn::IfThenElse(hn::Or(hn::Eq(y, zero), hn::Eq(x, one)), one, power);
}

}  // namespace math

// x to the power y.
template <class V>
HWY_INLINE V Pow(V x, V y) {
  using namespace math;
  V power;
  const V magnitude = hn::Abs(x);
  if constexpr (sizeof(LaneOf<V>) == 4) {
    // A finite stand-in for an infinite exponent keeps (+-1)^inf at 1.
    power = InDouble(magnitude, Clamp(y, -0x1p100f, 0x1p100f),
                     [](auto a, auto b) HWY_ATTR { return PowWide(a, b); });
  } else {
    power = PowPositive(magnitude, y);
  }
  return PowSpecial(x, y, power);
}

using hn::Sqrt;

// 1 / sqrt(x).
template <class V>
HWY_INLINE V Rsqrt(V x) {
  return hn::Div(math::Constant<V>(1), hn::Sqrt(x));
}

// 1 / x, correctly rounded.
template <class V>
HWY_INLINE V Reciprocal(V x) {
  return hn::Div(math::Constant<V>(1), x);
}

}  // namespace hologram::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
