// SPDX-License-Identifier: MIT
// Kernels of complex numbers: vectors of real and of imaginary parts, by NumPy's formulas. Products
// and sums are explicit and rounded apart, so that every instruction set gives the same bits.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/elementwise/elementwise_complex.cc"
// clang-format off
#include "src/cpu/simd/targets.h"
#include "src/cpu/simd/kernel-inl.h"
#include "src/cpu/simd/math-exp-inl.h"
#include "src/cpu/simd/math-trig-inl.h"
// clang-format on

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using math::Constant;

template <class V>
struct Complex {
  V re;
  V im;
};

// --- Formulas ------------------------------------------------------------------------------------

template <class V>
HWY_INLINE Complex<V> Product(Complex<V> x, Complex<V> y) {
  return {hn::Sub(hn::Mul(x.re, y.re), hn::Mul(x.im, y.im)),
          hn::Add(hn::Mul(x.re, y.im), hn::Mul(x.im, y.re))};
}

template <class V>
HWY_INLINE auto IsZero(Complex<V> x) {
  const V zero = hn::Zero(hn::DFromV<V>());
  return hn::And(hn::Eq(x.re, zero), hn::Eq(x.im, zero));
}

// Smith's: the smaller part of the divisor is divided by the larger one, so that squares do not
// overflow.
template <class V>
HWY_INLINE Complex<V> Quotient(Complex<V> x, Complex<V> y) {
  const hn::DFromV<V> d;
  const V y_re = hn::Abs(y.re), y_im = hn::Abs(y.im);
  const auto is_real = hn::Ge(y_re, y_im);
  const V large = hn::IfThenElse(is_real, y.re, y.im);
  const V small = hn::IfThenElse(is_real, y.im, y.re);
  const V ratio = hn::Div(small, large);
  const V scale = hn::Div(Constant<V>(1), hn::Add(large, hn::Mul(small, ratio)));
  const V with_re = hn::Mul(x.re, ratio), with_im = hn::Mul(x.im, ratio);
  const V re =
      hn::Add(hn::IfThenElse(is_real, x.re, with_re), hn::IfThenElse(is_real, with_im, x.im));
  const V im =
      hn::Sub(hn::IfThenElse(is_real, x.im, with_im), hn::IfThenElse(is_real, with_re, x.re));
  const Complex<V> quotient = {hn::Mul(re, scale), hn::Mul(im, scale)};
  const auto is_zero = IsZero(y);
  if (HWY_LIKELY(hn::AllFalse(d, is_zero))) return quotient;
  return {hn::IfThenElse(is_zero, hn::Div(x.re, y_re), quotient.re),
          hn::IfThenElse(is_zero, hn::Div(x.im, y_re), quotient.im)};
}

template <class T>
struct AbsoluteConstants;
// Numbers beyond the limits are scaled before they are squared. Powers of two, so exact.
template <>
struct AbsoluteConstants<float> {
  static constexpr float kLarge = 0x1p60f, kSmall = 0x1p-40f, kShrink = 0x1p-66f, kGrow = 0x1p100f;
};
template <>
struct AbsoluteConstants<double> {
  static constexpr double kLarge = 0x1p500, kSmall = 0x1p-500, kShrink = 0x1p-600, kGrow = 0x1p600;
};

template <class V>
HWY_INLINE V RootOfSquares(V x, V y) {
  return hn::Sqrt(hn::Add(hn::Mul(x, x), hn::Mul(y, y)));
}

template <class V>
HWY_INLINE V Absolute(Complex<V> x) {
  using C = AbsoluteConstants<math::LaneOf<V>>;
  const hn::DFromV<V> d;
  const V re = hn::Abs(x.re), im = hn::Abs(x.im);
  const V largest = hn::Max(re, im);
  const auto is_plain =
      hn::And(hn::Le(largest, Constant<V>(C::kLarge)), hn::Ge(largest, Constant<V>(C::kSmall)));
  const V plain = RootOfSquares(re, im);
  if (HWY_LIKELY(hn::AllTrue(d, is_plain))) return plain;
  const auto is_large = hn::Gt(largest, Constant<V>(C::kLarge));
  const V factor = hn::IfThenElse(is_large, Constant<V>(C::kShrink), Constant<V>(C::kGrow));
  const V back = hn::IfThenElse(is_large, Constant<V>(1 / C::kShrink), Constant<V>(1 / C::kGrow));
  const V scaled = hn::Mul(RootOfSquares(hn::Mul(re, factor), hn::Mul(im, factor)), back);
  const V infinity = Constant<V>(std::numeric_limits<math::LaneOf<V>>::infinity());
  const auto is_infinite = hn::Or(hn::Eq(re, infinity), hn::Eq(im, infinity));
  return hn::IfThenElse(is_infinite, infinity, hn::IfThenElse(is_plain, plain, scaled));
}

template <class T>
struct ExpLimits;
// Above kLarge the exponent is more than two factors hold; kStep is taken off it then. From kMost
// on every product with a part that is not 0 is infinite.
template <>
struct ExpLimits<float> {
  static constexpr float kLarge = 174.0f, kMost = 243.0f, kStep = 100.0f, kPower = 0x1p100f;
};
template <>
struct ExpLimits<double> {
  static constexpr double kLarge = 1416.0, kMost = 2106.0, kStep = 1000.0, kPower = 0x1p1000;
};

// mantissa * part * 2^exponent, rounded into the denormals or to infinity once.
template <class V>
HWY_INLINE V ScaledPart(math::Scaled<V> s, V part, hn::Mask<hn::DFromV<V>> is_large) {
  using Limits = ExpLimits<math::LaneOf<V>>;
  const V product = hn::Mul(s.mantissa, part);
  const V larger = hn::Mul(product, Constant<V>(Limits::kPower));
  const V less = hn::Sub(s.exponent, Constant<V>(Limits::kStep));
  return math::Unscale(math::Scaled<V>{hn::IfThenElse(is_large, larger, product),
                                       hn::IfThenElse(is_large, less, s.exponent)});
}

// e^re (cos im + i sin im), for infinities and NaN as C has it.
template <class V>
HWY_INLINE Complex<V> Exponential(Complex<V> x) {
  using C = math::ExpConstants<math::LaneOf<V>>;
  using Limits = ExpLimits<math::LaneOf<V>>;
  const hn::DFromV<V> d;
  const V clamped = math::Clamp(x.re, C::kUnderflow, Limits::kMost);
  const math::Scaled<V> s = math::ExpScaled(clamped);
  const auto is_large = hn::Gt(clamped, Constant<V>(Limits::kLarge));
  const V re = ScaledPart(s, Cos(x.im), is_large), im = ScaledPart(s, Sin(x.im), is_large);
  const V zero = hn::Zero(d), infinity = hn::Inf(d);
  // The result is real where the exponent is, however large it becomes.
  Complex<V> result = {re, hn::IfThenElse(hn::Eq(x.im, zero), x.im, im)};
  const auto is_usual = hn::And(hn::Lt(hn::Abs(x.re), infinity), hn::Lt(hn::Abs(x.im), infinity));
  if (HWY_LIKELY(hn::AllTrue(d, is_usual))) return result;
  const auto no_angle = hn::Not(hn::Lt(hn::Abs(x.im), infinity));
  const auto is_none = hn::And(hn::Eq(x.re, hn::Neg(infinity)), no_angle);
  const auto is_endless = hn::And(hn::Eq(x.re, infinity), no_angle);
  const V nan = hn::NaN(d);
  result.re = hn::IfThenElse(hn::And(hn::IsNaN(x.re), hn::Eq(x.im, zero)), nan, result.re);
  result.re = hn::IfThenElse(is_none, zero, hn::IfThenElse(is_endless, infinity, result.re));
  result.im = hn::IfThenElse(is_none, zero, hn::IfThenElse(is_endless, nan, result.im));
  return result;
}

template <class V>
HWY_INLINE Complex<V> One() {
  return {Constant<V>(1), hn::Zero(hn::DFromV<V>())};
}

// x to the whole number n, -100 < n < 100 and not 0, by products in NumPy's order.
template <class V>
HWY_INLINE Complex<V> WholePower(Complex<V> x, int n) {
  const int count = std::abs(n);
  Complex<V> result = x;
  if (count == 2) {
    result = Product(x, x);
  } else if (count == 3) {
    result = Product(x, Product(x, x));
  } else if (count > 3) {
    result = One<V>();
    Complex<V> square = x;
    for (int rest = count;; square = Product(square, square)) {
      if ((rest & 1) != 0) result = Product(result, square);
      if ((rest >>= 1) == 0) break;
    }
  }
  if (n < 0) result = Quotient(One<V>(), result);
  const auto is_zero = IsZero(x);
  const hn::DFromV<V> d;
  const V of_zero = n > 0 ? hn::Zero(d) : hn::NaN(d);
  return {hn::IfThenElse(is_zero, of_zero, result.re), hn::IfThenElse(is_zero, of_zero, result.im)};
}

#define HOLOGRAM_COMPLEX_BODY(name, ...)                                     \
  struct name##Body {                                                        \
    template <class V>                                                       \
    HWY_INLINE auto operator()([[maybe_unused]] const Complex<V>& x,         \
                               [[maybe_unused]] const Complex<V>& y) const { \
      __VA_ARGS__                                                            \
    }                                                                        \
  };
HOLOGRAM_COMPLEX_BODY(Neg, return Complex<V>{hn::Neg(x.re), hn::Neg(x.im)};)
HOLOGRAM_COMPLEX_BODY(Add, return Complex<V>{hn::Add(x.re, y.re), hn::Add(x.im, y.im)};)
HOLOGRAM_COMPLEX_BODY(Sub, return Complex<V>{hn::Sub(x.re, y.re), hn::Sub(x.im, y.im)};)
HOLOGRAM_COMPLEX_BODY(Mul, return Product(x, y);)
HOLOGRAM_COMPLEX_BODY(Square, return Product(x, x);)
HOLOGRAM_COMPLEX_BODY(Div, return Quotient(x, y);)
HOLOGRAM_COMPLEX_BODY(Exp, return Exponential(x);)
HOLOGRAM_COMPLEX_BODY(Abs, return Absolute(x);)
HOLOGRAM_COMPLEX_BODY(Eq, return hn::And(hn::Eq(x.re, y.re), hn::Eq(x.im, y.im));)
HOLOGRAM_COMPLEX_BODY(Ne, return hn::Not(hn::And(hn::Eq(x.re, y.re), hn::Eq(x.im, y.im)));)
HOLOGRAM_COMPLEX_BODY(IsNan, return hn::Or(hn::IsNaN(x.re), hn::IsNaN(x.im));)
HOLOGRAM_COMPLEX_BODY(LogicalNot, return IsZero(x);)
HOLOGRAM_COMPLEX_BODY(LogicalAnd, return hn::Not(hn::Or(IsZero(x), IsZero(y)));)
HOLOGRAM_COMPLEX_BODY(LogicalOr, return hn::Not(hn::And(IsZero(x), IsZero(y)));)
HOLOGRAM_COMPLEX_BODY(LogicalXor, return hn::Xor(IsZero(x), IsZero(y));)
// NumPy's way, in which 1 / 0 is NaN.
HOLOGRAM_COMPLEX_BODY(Reciprocal, {
  const auto is_real = hn::Le(hn::Abs(x.im), hn::Abs(x.re));
  const V large = hn::IfThenElse(is_real, x.re, x.im);
  const V small = hn::IfThenElse(is_real, x.im, x.re);
  const V ratio = hn::Div(small, large);
  const V divisor = hn::Add(large, hn::Mul(small, ratio));
  const V one = Constant<V>(1);
  return Complex<V>{hn::Div(hn::IfThenElse(is_real, one, ratio), divisor),
                    hn::Div(hn::Neg(hn::IfThenElse(is_real, ratio, one)), divisor)};
})
#undef HOLOGRAM_COMPLEX_BODY

// --- Loops ---------------------------------------------------------------------------------------

enum class Gives { kComplex, kReal, kBool };

// The parts of one vector's worth of numbers after another. In the order of memory, or, where the
// result is stored by the inverse, in one that takes an instruction less.
template <bool kInOrder, class D, class T>
HWY_INLINE Complex<hn::Vec<D>> LoadParts(D d, const T* p) {
  hn::Vec<D> re, im;
  if constexpr (kInOrder) {
    hn::LoadInterleaved2(d, p, re, im);
  } else {
    const auto lower = hn::LoadU(d, p), upper = hn::LoadU(d, p + hn::Lanes(d));
    if constexpr (sizeof(T) == 8) {
      re = hn::InterleaveLower(d, lower, upper);
      im = hn::InterleaveUpper(d, lower, upper);
    } else {
      re = hn::OddEven(hn::DupEven(upper), lower);
      im = hn::OddEven(upper, hn::DupOdd(lower));
    }
  }
  return {re, im};
}

template <class D, class T>
HWY_INLINE void StoreParts(D d, const Complex<hn::Vec<D>>& x, T* p) {
  if constexpr (sizeof(T) == 8) {
    hn::StoreU(hn::InterleaveLower(d, x.re, x.im), d, p);
    hn::StoreU(hn::InterleaveUpper(d, x.re, x.im), d, p + hn::Lanes(d));
  } else {
    hn::StoreU(hn::OddEven(hn::DupEven(x.im), x.re), d, p);
    hn::StoreU(hn::OddEven(x.im, hn::DupOdd(x.re)), d, p + hn::Lanes(d));
  }
}

// Operand k is one number where bit k of kMask is set. What is left after whole vectors is one
// more, filled up with zeros, so that an element's value never depends on its position.
template <class T, int kArity, unsigned kMask, Gives kGives, class Body>
HWY_INLINE void Loop(const void* const* in, void* out, int64_t n, const Body& body) {
  if (n <= 0) return;
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  constexpr bool kInOrder = kGives != Gives::kComplex;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* p0 = static_cast<const T*>(in[0]);
  const T* p1 = kArity > 1 ? static_cast<const T*>(in[1]) : p0;
  const Complex<V> s0 = {hn::Set(d, p0[0]), hn::Set(d, p0[1])};
  const Complex<V> s1 = {hn::Set(d, p1[0]), hn::Set(d, p1[1])};
  const auto load = [&](const T* x, const T* y, auto&& store) HWY_ATTR {
    const Complex<V> a = (kMask & 1) != 0 ? s0 : LoadParts<kInOrder>(d, x);
    const Complex<V> b = kArity < 2 ? a : (kMask & 2) != 0 ? s1 : LoadParts<kInOrder>(d, y);
    store(body(a, b));
  };
  const auto store_to = [&](void* to) HWY_ATTR {
    return [&, to](auto result) HWY_ATTR {
      if constexpr (kGives == Gives::kBool) {
        StoreMaskBytes(d, result, static_cast<uint8_t*>(to));
      } else if constexpr (kGives == Gives::kReal) {
        hn::StoreU(result, d, static_cast<T*>(to));
      } else {
        StoreParts(d, result, static_cast<T*>(to));
      }
    };
  };
  constexpr int64_t kBytes = kGives == Gives::kBool   ? 1
                             : kGives == Gives::kReal ? static_cast<int64_t>(sizeof(T))
                                                      : 2 * static_cast<int64_t>(sizeof(T));
  auto* to = static_cast<char*>(out);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) load(p0 + 2 * i, p1 + 2 * i, store_to(to + i * kBytes));
  if (i == n) return;
  constexpr size_t kPair = 2 * sizeof(T);
  constexpr size_t kMost = 2 * hn::MaxLanes(Tag<T>());
  HWY_ALIGN T x[kMost] = {};
  HWY_ALIGN T y[kMost] = {};
  HWY_ALIGN T result[kMost];
  const auto rest = static_cast<size_t>(n - i);
  if ((kMask & 1) == 0) std::memcpy(x, p0 + 2 * i, rest * kPair);
  if (kArity > 1 && (kMask & 2) == 0) std::memcpy(y, p1 + 2 * i, rest * kPair);
  load(x, y, store_to(result));
  std::memcpy(to + i * kBytes, result, rest * static_cast<size_t>(kBytes));
}

template <class Body, class T, int kArity, unsigned kMask, Gives kGives>
void ComplexKernel(const void* const* in, void* out, int64_t n) {
  Loop<T, kArity, kMask, kGives>(in, out, n, Body());
}

// Powers are products where the exponent is a small whole number, else the C library's.
template <class T>
bool IsWhole(const T* exponent, int& n) {
  if (exponent[1] != 0 || !(std::fabs(exponent[0]) < 100)) return false;
  n = static_cast<int>(exponent[0]);
  return n != 0 && static_cast<T>(n) == exponent[0];
}

template <class T>
void PowerOfOne(const T* x, const T* y, T* out) {
  int n = 0;
  if (IsWhole(y, n)) {
    const hn::CappedTag<T, 1> d;
    const auto power =
        WholePower(Complex<hn::Vec<decltype(d)>>{hn::Set(d, x[0]), hn::Set(d, x[1])}, n);
    out[0] = hn::GetLane(power.re);
    out[1] = hn::GetLane(power.im);
    return;
  }
  const std::complex<double> base(x[0], x[1]), exponent(y[0], y[1]);
  std::complex<double> power;
  if (exponent == 0.0) {
    power = 1.0;
  } else if (base == 0.0) {
    power = exponent.real() > 0 ? 0.0 : std::complex<double>(NAN, NAN);
  } else {
    power = std::pow(base, exponent);
  }
  out[0] = static_cast<T>(power.real());
  out[1] = static_cast<T>(power.imag());
}

template <class T, unsigned kMask>
void PowerKernel(const void* const* in, void* out, int64_t n) {
  if (n <= 0) return;
  const T* x = static_cast<const T*>(in[0]);
  const T* y = static_cast<const T*>(in[1]);
  if (int whole = 0; (kMask & 2) != 0 && IsWhole(y, whole)) {
    return Loop<T, 1, 0, Gives::kComplex>(
        in, out, n, [whole](const auto& a, const auto&) HWY_ATTR { return WholePower(a, whole); });
  }
  T* to = static_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) {
    T result[2];
    PowerOfOne((kMask & 1) != 0 ? x : x + 2 * i, (kMask & 2) != 0 ? y : y + 2 * i, result);
    to[2 * i] = result[0];
    to[2 * i + 1] = result[1];
  }
}

template <class T>
auto& FormsOf(cpu::KernelTable& table, OpId op) {
  constexpr Dtype kDtype = sizeof(T) == 4 ? Dtype::kComplex64 : Dtype::kComplex128;
  return table.kernels[static_cast<int>(op)][static_cast<int>(kDtype)];
}

template <class T, class Body, int kArity, Gives kGives = Gives::kComplex>
void AddForms(cpu::KernelTable& table, OpId op) {
  auto& forms = FormsOf<T>(table, op);
  forms[0] = &ComplexKernel<Body, T, kArity, 0, kGives>;
  if constexpr (kArity == 2) {
    forms[1] = &ComplexKernel<Body, T, 2, 1, kGives>;
    forms[2] = &ComplexKernel<Body, T, 2, 2, kGives>;
  }
}

template <class T>
void AddOf(cpu::KernelTable& table) {
  AddForms<T, NegBody, 1>(table, OpId::neg);
  AddForms<T, SquareBody, 1>(table, OpId::square);
  AddForms<T, ReciprocalBody, 1>(table, OpId::reciprocal);
  AddForms<T, ExpBody, 1>(table, OpId::exp);
  AddForms<T, AbsBody, 1, Gives::kReal>(table, OpId::abs);
  AddForms<T, IsNanBody, 1, Gives::kBool>(table, OpId::isnan);
  AddForms<T, LogicalNotBody, 1, Gives::kBool>(table, OpId::logical_not);
  AddForms<T, AddBody, 2>(table, OpId::add);
  AddForms<T, SubBody, 2>(table, OpId::sub);
  AddForms<T, MulBody, 2>(table, OpId::mul);
  AddForms<T, DivBody, 2>(table, OpId::div);
  AddForms<T, EqBody, 2, Gives::kBool>(table, OpId::eq);
  AddForms<T, NeBody, 2, Gives::kBool>(table, OpId::ne);
  AddForms<T, LogicalAndBody, 2, Gives::kBool>(table, OpId::logical_and);
  AddForms<T, LogicalOrBody, 2, Gives::kBool>(table, OpId::logical_or);
  AddForms<T, LogicalXorBody, 2, Gives::kBool>(table, OpId::logical_xor);
  auto& powers = FormsOf<T>(table, OpId::pow);
  powers[0] = &PowerKernel<T, 0>;
  powers[1] = &PowerKernel<T, 1>;
  powers[2] = &PowerKernel<T, 2>;
}

}  // namespace

void AddComplexKernels(cpu::KernelTable& table) {
  AddOf<float>(table);
  AddOf<double>(table);
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {
namespace {

using Number = std::complex<double>;

// Computed in double, rounded once.
template <class T, Number (*kFunction)(const Number&)>
void each_number(const void* const* in, void* out, int64_t n) {
  const auto* x = static_cast<const std::complex<T>*>(in[0]);
  auto* to = static_cast<std::complex<T>*>(out);
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<std::complex<T>>(kFunction(Number(x[i])));
}

Number sigmoid_of(const Number& x) { return 1.0 / (1.0 + std::exp(-x)); }

template <Number (*kFunction)(const Number&)>
void add_each(KernelTable& table, OpId op) {
  auto& rows = table.kernels[static_cast<int>(op)];
  rows[static_cast<int>(Dtype::kComplex64)][0] = &each_number<float, kFunction>;
  rows[static_cast<int>(Dtype::kComplex128)][0] = &each_number<double, kFunction>;
}

}  // namespace

void add_complex_kernels(Isa isa, KernelTable& table) {
  HOLOGRAM_FOR_ISA(isa, AddComplexKernels)(table);
  add_each<&std::sqrt<double>>(table, OpId::sqrt);
  add_each<&std::log<double>>(table, OpId::log);
  add_each<&std::sin<double>>(table, OpId::sin);
  add_each<&std::cos<double>>(table, OpId::cos);
  add_each<&std::tan<double>>(table, OpId::tan);
  add_each<&std::tanh<double>>(table, OpId::tanh);
  add_each<&sigmoid_of>(table, OpId::sigmoid);
}

}  // namespace hologram::cpu
#endif
