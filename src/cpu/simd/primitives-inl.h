// SPDX-License-Identifier: MIT
// The words that bodies of the op table are written in, for Highway vectors and for single
// integers. Vectors find Add, Sub, Mul, Div, MulAdd, Sqrt, Abs, Neg, Floor, Ceil, Trunc, Round, Eq,
// Lt, Le in Highway by argument-dependent lookup; Exp and the other functions are in
// math-inl.h; the rest is here.

#if defined(HOLOGRAM_CPU_PRIMITIVES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_PRIMITIVES_INL_H_
#undef HOLOGRAM_CPU_PRIMITIVES_INL_H_
#else
#define HOLOGRAM_CPU_PRIMITIVES_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- float32 and float64 vectors ----

template <class V>
HWY_INLINE V C(V, double value) {
  const hn::DFromV<V> d;
  return hn::Set(d, static_cast<hn::TFromV<V>>(value));
}

// x86 max and min return the second operand when either is NaN or both are zeros; PyTorch wants any
// NaN to win.
template <class V>
HWY_INLINE V Maximum(V x, V y) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Max(x, y));
}
template <class V>
HWY_INLINE V Minimum(V x, V y) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Min(x, y));
}
template <class V>
HWY_INLINE V Square(V x) {
  return hn::Mul(x, x);
}
template <class M, class V>
HWY_INLINE V Select(M mask, V yes, V no) {
  return hn::IfThenElse(mask, yes, no);
}
template <class M>
HWY_INLINE M MaskAnd(M a, M b) {
  return hn::And(a, b);
}
template <class M>
HWY_INLINE M MaskOr(M a, M b) {
  return hn::Or(a, b);
}
template <class M>
HWY_INLINE M MaskXor(M a, M b) {
  return hn::Xor(a, b);
}
template <class V>
HWY_INLINE V Sign(V x) {
  const V zero = C(x, 0.0);
  return hn::Sub(hn::IfThenElse(hn::Lt(zero, x), C(x, 1.0), zero),
                 hn::IfThenElse(hn::Lt(x, zero), C(x, 1.0), zero));
}
// True where either is NaN. Highway 1.0's Ne is an ordered comparison on AVX2 and AVX-512: false
// there.
template <class V>
HWY_INLINE auto Unequal(V x, V y) {
  return hn::Not(hn::Eq(x, y));
}
// From the end that is nearer, so that weight 1 gives y exactly.
template <class V>
HWY_INLINE V Lerp(V x, V y, V weight) {
  const V span = hn::Sub(y, x);
  return hn::IfThenElse(hn::Lt(hn::Abs(weight), C(x, 0.5)), hn::MulAdd(weight, span, x),
                        hn::NegMulAdd(span, hn::Sub(C(x, 1.0), weight), y));
}

// ---- integers and bool, one at a time: the compiler vectorises the loops ----

struct Bool {};  // element tag of the dtype bool

template <class T>
struct Int {
  using Stored = T;
  T v;
};
template <>
struct Int<Bool> {
  using Stored = uint8_t;
  uint8_t v;
};

template <class T>
HWY_INLINE Int<T> C(Int<T>, double value) {
  return {static_cast<typename Int<T>::Stored>(value)};
}

// Unsigned arithmetic wraps where signed overflow would be undefined.
#define HOLOGRAM_INT_BINARY(Name, op)                                                           \
  template <class T>                                                                            \
  HWY_INLINE Int<T> Name(Int<T> x, Int<T> y) {                                                  \
    using U = std::make_unsigned_t<T>;                                                          \
    return {static_cast<T>(static_cast<U>(static_cast<uint64_t>(static_cast<U>(x.v))            \
                                              op static_cast<uint64_t>(static_cast<U>(y.v))))}; \
  }
HOLOGRAM_INT_BINARY(Add, +)
HOLOGRAM_INT_BINARY(Sub, -)
HOLOGRAM_INT_BINARY(Mul, *)
#undef HOLOGRAM_INT_BINARY

#define HOLOGRAM_INT_COMPARE(Name, op)       \
  template <class T>                         \
  HWY_INLINE bool Name(Int<T> x, Int<T> y) { \
    return x.v op y.v;                       \
  }
HOLOGRAM_INT_COMPARE(Eq, ==)
HOLOGRAM_INT_COMPARE(Unequal, !=)
HOLOGRAM_INT_COMPARE(Lt, <)
HOLOGRAM_INT_COMPARE(Le, <=)
#undef HOLOGRAM_INT_COMPARE

#define HOLOGRAM_INT_BITS(Name, op)                            \
  template <class T>                                           \
  HWY_INLINE Int<T> Name(Int<T> x, Int<T> y) {                 \
    return {static_cast<typename Int<T>::Stored>(x.v op y.v)}; \
  }
HOLOGRAM_INT_BITS(BitAnd, &)
HOLOGRAM_INT_BITS(BitOr, |)
HOLOGRAM_INT_BITS(BitXor, ^)
#undef HOLOGRAM_INT_BITS

HWY_INLINE bool MaskAnd(bool a, bool b) { return a & b; }
HWY_INLINE bool MaskOr(bool a, bool b) { return a | b; }
HWY_INLINE bool MaskXor(bool a, bool b) { return a ^ b; }

template <class T>
HWY_INLINE Int<T> BitNot(Int<T> x) {
  return {static_cast<T>(~x.v)};
}
HWY_INLINE Int<Bool> BitNot(Int<Bool> x) { return {static_cast<uint8_t>(x.v ^ 1)}; }

template <class T>
HWY_INLINE Int<T> Neg(Int<T> x) {
  return Sub(Int<T>{0}, x);
}
template <class T>
HWY_INLINE Int<T> Abs(Int<T> x) {
  if constexpr (std::is_signed_v<T>) return x.v < 0 ? Neg(x) : x;
  return x;
}
template <class T>
HWY_INLINE Int<T> Square(Int<T> x) {
  return Mul(x, x);
}
template <class T>
HWY_INLINE Int<T> MulAdd(Int<T> x, Int<T> y, Int<T> z) {
  return Add(Mul(x, y), z);
}
template <class T>
HWY_INLINE Int<T> Maximum(Int<T> x, Int<T> y) {
  return {x.v > y.v ? x.v : y.v};
}
template <class T>
HWY_INLINE Int<T> Minimum(Int<T> x, Int<T> y) {
  return {x.v < y.v ? x.v : y.v};
}
template <class T>
HWY_INLINE Int<T> Select(bool mask, Int<T> yes, Int<T> no) {
  return {mask ? yes.v : no.v};
}
template <class T>
HWY_INLINE Int<T> Sign(Int<T> x) {
  return {static_cast<T>((x.v > 0) - (x.v < 0))};
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_PRIMITIVES_INL_H_
