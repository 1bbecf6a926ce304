// SPDX-License-Identifier: MIT
// The whole of a jit_math_*.cc: compiles math-inl.h with vectors that are nodes of a graph, so that
// its functions write down what they would compute. The source defines before including this:
//   HOLOGRAM_SYMBOLIC_MATH       the name that stands for Highway's namespace
//   HOLOGRAM_SYMBOLIC_TARGET     the Highway target whose code is written down
//   HOLOGRAM_SYMBOLIC_BYTES      its vectors' size
//   HOLOGRAM_SYMBOLIC_FUNCTION   the function to define, see jit/math.h
// No include guard: it is a source, not a header.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/cpu/jit/math.h"

// Everything below sees the words here where it asks for Highway's.
#undef HWY_NAMESPACE
#define HWY_NAMESPACE HOLOGRAM_SYMBOLIC_MATH
#undef HWY_TARGET
#define HWY_TARGET HOLOGRAM_SYMBOLIC_TARGET
#undef HWY_NATIVE_FMA
#define HWY_NATIVE_FMA 1
#undef HWY_BEFORE_NAMESPACE
#define HWY_BEFORE_NAMESPACE() static_assert(true)
#undef HWY_AFTER_NAMESPACE
#define HWY_AFTER_NAMESPACE() static_assert(true)
#undef HWY_INLINE
#define HWY_INLINE inline

namespace hwy::HWY_NAMESPACE {

using hologram::Dtype;
using hologram::cpu::jit::Compare;
using hologram::cpu::jit::LoopGraph;
using hologram::cpu::jit::LoopNode;
using hologram::cpu::jit::Op;
using hologram::cpu::jit::Symbol;

// The graph that is being written; Set has no operand to know it from.
inline thread_local LoopGraph* t_graph = nullptr;

// As large as the vector it stands for, for code that asks.
template <class T>
struct alignas(HOLOGRAM_SYMBOLIC_BYTES) Vec {
  using Lane = T;
  int id = -1;
};
template <class T>
struct Mask {
  int id = -1;
};
template <class T>
struct Tag {
  using Lane = T;
};

template <class V>
using DFromV = Tag<typename V::Lane>;
template <class D>
using TFromD = typename D::Lane;
template <class D>
using MFromD = Mask<TFromD<D>>;
template <class D>
using RebindToSigned = Tag<std::conditional_t<sizeof(TFromD<D>) == 4, int32_t, int64_t>>;
template <class D>
using RebindToUnsigned = Tag<std::conditional_t<sizeof(TFromD<D>) == 4, uint32_t, uint64_t>>;

template <class T>
constexpr Dtype dtype_of() {
  if (std::is_floating_point_v<T>) return sizeof(T) == 4 ? Dtype::kFloat32 : Dtype::kFloat64;
  return sizeof(T) == 4 ? Dtype::kInt32 : Dtype::kInt64;
}

template <class T, class... In>
Vec<T> make(Op op, uint16_t index, In... in) {
  return {t_graph->make(op, dtype_of<T>(), {Symbol{t_graph, in.id}...}, index).id};
}
template <class T, class... In>
Mask<T> make_mask(Op op, In... in) {
  return {t_graph->make(op, Dtype::kBool, {Symbol{t_graph, in.id}...}).id};
}
template <class T>
Mask<T> compare(Compare how, Vec<T> a, Vec<T> b) {
  const Symbol x{t_graph, a.id}, y{t_graph, b.id};
  return {t_graph->make(Op::kCompare, Dtype::kBool, {x, y}, how, dtype_of<T>()).id};
}

template <class T, class Value>
Vec<T> Set(Tag<T>, Value value) {
  const T lane = static_cast<T>(value);
  if constexpr (sizeof(T) == 4) {
    return {t_graph->constant(dtype_of<T>(), std::bit_cast<uint32_t>(lane)).id};
  } else {
    return {t_graph->constant(dtype_of<T>(), std::bit_cast<uint64_t>(lane)).id};
  }
}
template <class T>
Vec<T> Zero(Tag<T> d) {
  return Set(d, 0);
}
template <class T>
Vec<T> SignBit(Tag<T>) {
  return {t_graph->constant(dtype_of<T>(), uint64_t{1} << (8 * sizeof(T) - 1)).id};
}
template <class T, class From>
Vec<T> BitCast(Tag<T>, Vec<From> v) {
  return {v.id};
}

#define HOLOGRAM_SYMBOLIC_BINARY(Name, op) \
  template <class T>                       \
  Vec<T> Name(Vec<T> a, Vec<T> b) {        \
    return make<T>(op, 0, a, b);           \
  }
HOLOGRAM_SYMBOLIC_BINARY(Add, Op::kAdd)
HOLOGRAM_SYMBOLIC_BINARY(Sub, Op::kSub)
HOLOGRAM_SYMBOLIC_BINARY(Mul, Op::kMul)
HOLOGRAM_SYMBOLIC_BINARY(Div, Op::kDiv)
HOLOGRAM_SYMBOLIC_BINARY(Max, Op::kMax)
HOLOGRAM_SYMBOLIC_BINARY(Min, Op::kMin)
HOLOGRAM_SYMBOLIC_BINARY(And, Op::kAnd)
HOLOGRAM_SYMBOLIC_BINARY(Or, Op::kOr)
HOLOGRAM_SYMBOLIC_BINARY(Xor, Op::kXor)
HOLOGRAM_SYMBOLIC_BINARY(ScaleF, Op::kScale)
#undef HOLOGRAM_SYMBOLIC_BINARY

#define HOLOGRAM_SYMBOLIC_MASKS(Name, op) \
  template <class T>                      \
  Mask<T> Name(Mask<T> a, Mask<T> b) {    \
    return make_mask<T>(op, a, b);        \
  }
HOLOGRAM_SYMBOLIC_MASKS(And, Op::kAnd)
HOLOGRAM_SYMBOLIC_MASKS(Or, Op::kOr)
HOLOGRAM_SYMBOLIC_MASKS(Xor, Op::kXor)
HOLOGRAM_SYMBOLIC_MASKS(AndNot, Op::kAndNot)
#undef HOLOGRAM_SYMBOLIC_MASKS
template <class T>
Mask<T> Not(Mask<T> a) {
  return make_mask<T>(Op::kNot, a);
}

#define HOLOGRAM_SYMBOLIC_COMPARE(Name, how, first, second) \
  template <class T>                                        \
  Mask<T> Name(Vec<T> a, Vec<T> b) {                        \
    return compare(how, first, second);                     \
  }
HOLOGRAM_SYMBOLIC_COMPARE(Eq, hologram::cpu::jit::kEqual, a, b)
HOLOGRAM_SYMBOLIC_COMPARE(Lt, hologram::cpu::jit::kLess, a, b)
HOLOGRAM_SYMBOLIC_COMPARE(Gt, hologram::cpu::jit::kLess, b, a)
HOLOGRAM_SYMBOLIC_COMPARE(Le, hologram::cpu::jit::kLessEqual, a, b)
#undef HOLOGRAM_SYMBOLIC_COMPARE
template <class T>
Mask<T> IsNaN(Vec<T> v) {
  return compare(hologram::cpu::jit::kUnordered, v, v);
}

template <class T>
Vec<T> MulAdd(Vec<T> a, Vec<T> b, Vec<T> c) {
  return make<T>(Op::kFma, 0, a, b, c);
}
template <class T>
Vec<T> NegMulAdd(Vec<T> a, Vec<T> b, Vec<T> c) {
  return make<T>(Op::kFnma, 0, a, b, c);
}
template <class T>
Vec<T> MulSub(Vec<T> a, Vec<T> b, Vec<T> c) {
  return make<T>(Op::kFms, 0, a, b, c);
}
template <class T>
Vec<T> Sqrt(Vec<T> v) {
  return make<T>(Op::kSqrt, 0, v);
}
template <class T>
Vec<T> Round(Vec<T> v) {
  return make<T>(Op::kRound, 8, v);
}
template <class T>
Vec<T> Neg(Vec<T> v) {
  return Xor(v, SignBit(Tag<T>()));
}
template <class T>
Vec<T> Abs(Vec<T> v) {
  return And(v, {t_graph->constant(dtype_of<T>(), ~uint64_t{0} >> (65 - 8 * sizeof(T))).id});
}
template <class T>
Vec<T> CopySign(Vec<T> magnitude, Vec<T> sign) {
  return Or(Abs(magnitude), And(sign, SignBit(Tag<T>())));
}
template <class T>
Vec<T> IfThenElse(Mask<T> mask, Vec<T> yes, Vec<T> no) {
  return make<T>(Op::kSelect, 0, mask, yes, no);
}
template <class T>
Vec<T> IfThenElseZero(Mask<T> mask, Vec<T> yes) {
  return make<T>(Op::kSelect, 0, mask, yes);
}
template <int kBits, class T>
Vec<T> ShiftLeft(Vec<T> v) {
  return make<T>(Op::kShiftLeft, kBits, v);
}
template <int kBits, class T>
Vec<T> ShiftRight(Vec<T> v) {
  static_assert(std::is_unsigned_v<T>);
  return make<T>(Op::kShiftRight, kBits, v);
}

// What AVX-512 has instructions for.
template <class T>
Vec<T> GetMant(Vec<T> v) {
  return make<T>(Op::kMantissa, 0, v);
}
template <class T>
Vec<T> GetExp(Vec<T> v) {
  return make<T>(Op::kExponent, 0, v);
}
template <class T>
Vec<T> ScaleFAbove(Vec<T> x, Vec<T> n, Vec<T> least) {
  return make<T>(Op::kScale, 0, x, n, compare(hologram::cpu::jit::kNotLessEqual, n, least));
}
template <class T>
Vec<T> FixMinusInfinity(Vec<T> x, Vec<T> result) {
  const Vec<T> table{t_graph->constant(dtype_of<T>(), 0x30000).id};
  return make<T>(Op::kFix, 0, x, result, table);
}

// Words of functions that are not straight-line: their row is called instead.
template <class D>
using Half = D;
template <class D>
using RepartitionToWide = Tag<double>;
template <class D>
struct LanesOf;
template <class D, class V>
V LowerHalf(D, V v) {
  t_graph->opaque = true;
  return v;
}
template <class D, class V>
V UpperHalf(D, V v) {
  return v;
}
template <class V>
Vec<double> PromoteTo(Tag<double>, V v) {
  return {v.id};
}
template <class V>
Vec<float> DemoteTo(Tag<float>, V v) {
  return {v.id};
}
template <class D, class V>
V Combine(D, V, V low) {
  return low;
}
template <class M, class V>
V IfNegativeThenElse(M, V, V);
template <class D, class M>
bool AllTrue(D, M);
template <class V, class D, class T>
void Store(V, D, T*);
template <class D, class T>
Vec<TFromD<D>> Load(D, const T*);
template <class D>
size_t Lanes(D);

}  // namespace hwy::HWY_NAMESPACE

#include "src/cpu/simd/math-inl.h"

namespace hologram::HWY_NAMESPACE {
namespace {

template <class T>
int write(cpu::jit::MathWord word, const int* in) {
  using V = hwy::HWY_NAMESPACE::Vec<T>;
  const auto apply = [&](auto function, auto arity) {
    if constexpr (arity() == 1) return function(V{in[0]}).id;
    if constexpr (arity() == 2) return function(V{in[0]}, V{in[1]}).id;
    if constexpr (arity() == 3) return function(V{in[0]}, V{in[1]}, V{in[2]}).id;
  };
  switch (word) {
#define HOLOGRAM_WORD(Name, arity)                                   \
  case cpu::jit::MathWord::k##Name:                                  \
    return apply([](auto... operands) { return Name(operands...); }, \
                 std::integral_constant<int, arity>());
    HOLOGRAM_JIT_MATH_WORDS(HOLOGRAM_WORD)
#undef HOLOGRAM_WORD
    case cpu::jit::MathWord::kCount:
      break;
  }
  return -1;
}

}  // namespace
}  // namespace hologram::HWY_NAMESPACE

namespace hologram::cpu::jit {

int HOLOGRAM_SYMBOLIC_FUNCTION(LoopGraph& graph, MathWord word, const int* operands,
                               bool is_double) {
  hwy::HWY_NAMESPACE::t_graph = &graph;
  return is_double ? HWY_NAMESPACE::write<double>(word, operands)
                   : HWY_NAMESPACE::write<float>(word, operands);
}

}  // namespace hologram::cpu::jit
