// SPDX-License-Identifier: MIT
// SIMD division with whole quotients: Fmod, Remainder and FloorDivide, with PyTorch's special
// values.

// Included once per target (see math-inl.h).
#if defined(HOLOGRAM_SRC_CPU_MATH_DIVISION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_SRC_CPU_MATH_DIVISION_INL_H_
#undef HOLOGRAM_SRC_CPU_MATH_DIVISION_INL_H_
#else
#define HOLOGRAM_SRC_CPU_MATH_DIVISION_INL_H_
#endif

#include "src/cpu/simd/math-core-inl.h"
#ifndef HOLOGRAM_SYMBOLIC_MATH  // generated loops call the kernels of rows with these functions
HWY_BEFORE_NAMESPACE();
namespace hologram::HWY_NAMESPACE {

namespace math {

// std::fmod in the lanes chosen by `rare`, `result` in the others.
template <class V>
HWY_NOINLINE V FmodOfLanes(MaskOf<V> rare, V x, V y, V result) {
  const hn::DFromV<V> d;
  using T = LaneOf<V>;
  HWY_ALIGN T dividends[HWY_MAX_BYTES / sizeof(T)];
  HWY_ALIGN T divisors[HWY_MAX_BYTES / sizeof(T)];
  HWY_ALIGN T chosen[HWY_MAX_BYTES / sizeof(T)];
  HWY_ALIGN T results[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(x, d, dividends);
  hn::Store(y, d, divisors);
  hn::Store(hn::IfThenElseZero(rare, Constant<V>(1)), d, chosen);
  hn::Store(result, d, results);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    if (chosen[i] != T{0}) results[i] = std::fmod(dividends[i], divisors[i]);
  }
  return hn::Load(d, results);
}

// Where the truncated quotient is not the floor: a modulo that is not zero, of the other sign than
// y.
template <class V>
HWY_INLINE MaskOf<V> IsBelow(V modulo, V y) {
  const V zero = hn::Zero(hn::DFromV<V>());
  return hn::And(hn::Not(hn::Eq(modulo, zero)), hn::Xor(hn::Lt(y, zero), hn::Lt(modulo, zero)));
}

}  // namespace math

// x - y * trunc(x / y), exactly; the sign of x, also of 0. As C's fmod.
template <class V>
HWY_INLINE V Fmod(V x, V y) {
  const hn::DFromV<V> d;
  const V a = hn::Abs(x), b = hn::Abs(y);
#if HWY_NATIVE_FMA
  const V quotient = hn::Div(a, b);
  // Below 2^23 (2^52) the rounded quotient exceeds the true one by less than 1, so its integer part
  // is right or 1 too large, and the product leaves exactly what is left.
  const V modulo = hn::NegMulAdd(hn::Trunc(quotient), b, a);
  V result = hn::IfThenElse(hn::Lt(modulo, hn::Zero(d)), hn::Add(modulo, b), modulo);
  result = hn::IfThenElse(hn::Lt(a, b), a, result);  // also where b is infinite
  result = hn::CopySign(result, x);
  const auto usual = hn::Lt(quotient, math::Constant<V>(math::Layout<math::LaneOf<V>>::kPow2Of23));
#else
  V result = x;
  const auto usual = hn::Lt(a, b);
#endif
  // Large quotients, division by zero, infinite x, NaN.
  if (HWY_LIKELY(hn::AllTrue(d, usual))) return result;
  return math::FmodOfLanes<V>(hn::Not(usual), x, y, result);
}

// x - y * floor(x / y), rounded once: the sign of y, but 0 has that of x. NaN for infinite x and
// for y = 0.
template <class V>
HWY_INLINE V Remainder(V x, V y) {
  const V modulo = Fmod(x, y);
  return hn::IfThenElse(math::IsBelow(modulo, y), hn::Add(modulo, y), modulo);
}

// The largest integer not above x / y; x / y itself for y = 0.
template <class V>
HWY_INLINE V FloorDivide(V x, V y) {
  using namespace math;
  const V zero = hn::Zero(hn::DFromV<V>()), one = Constant<V>(1);
  const V ratio = hn::Div(x, y);
  const V modulo = Fmod(x, y);
  const V whole = hn::Div(hn::Sub(x, modulo), y);  // an integer, but for its rounding
  const V below = hn::IfThenElse(IsBelow(modulo, y), hn::Sub(whole, one), whole);
  const V floor = hn::Floor(below);
  const auto rounded_down = hn::Gt(hn::Sub(below, floor), Constant<V>(0.5));
  const V result = hn::IfThenElse(rounded_down, hn::Add(floor, one), floor);
  const V signed_zero = hn::IfThenElse(hn::Eq(below, zero), hn::CopySign(zero, ratio), result);
  return hn::IfThenElse(hn::Eq(y, zero), ratio, signed_zero);
}

}  // namespace hologram::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
