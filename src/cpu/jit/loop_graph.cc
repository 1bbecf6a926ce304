// SPDX-License-Identifier: MIT
// Instructions to nodes, equal nodes shared; rows of the op table as the nodes that their bodies
// stand for.
#include "src/cpu/jit/loop_graph.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>

#include "hologram/op.h"
#include "src/cpu/jit/math.h"

namespace hologram::cpu::jit {

namespace {

// ---- the words that bodies of the op table are written in: what each stands for in
// primitives-inl.h ----

Dtype dtype_of(Symbol x) { return x.graph->at(x).dtype; }
bool is_float(Symbol x) { return is_floating(dtype_of(x)); }
bool is_mask(Symbol x) { return dtype_of(x) == Dtype::kBool; }

Symbol same(Op op, Symbol x, Symbol y) { return x.graph->make(op, dtype_of(x), {x, y}); }

bool is_zero(Symbol x) {
  const LoopNode& node = x.graph->at(x);
  return node.op == Op::kConst && node.bits == 0;
}

Symbol compare(Compare how, Symbol x, Symbol y) {
  return x.graph->make(Op::kCompare, Dtype::kBool, {x, y}, how, dtype_of(x));
}

Symbol invert(Symbol mask) {
  const LoopNode node = mask.graph->at(mask);
  if (node.op == Op::kNot) return {mask.graph, node.in[0]};
  if (node.op == Op::kCompare && (node.index == kEqual || node.index == kUnequal)) {
    return compare(node.index == kEqual ? kUnequal : kEqual, {mask.graph, node.in[0]},
                   {mask.graph, node.in[1]});
  }
  return mask.graph->make(Op::kNot, Dtype::kBool, {mask});
}

// A constant of x's dtype.
Symbol C(Symbol x, double value) { return x.graph->constant_of(dtype_of(x), value); }

Symbol Add(Symbol x, Symbol y) { return same(Op::kAdd, x, y); }
Symbol Sub(Symbol x, Symbol y) { return same(Op::kSub, x, y); }
Symbol Mul(Symbol x, Symbol y) { return same(Op::kMul, x, y); }
Symbol Div(Symbol x, Symbol y) { return same(Op::kDiv, x, y); }
Symbol Square(Symbol x) { return Mul(x, x); }
Symbol Sqrt(Symbol x) { return x.graph->make(Op::kSqrt, dtype_of(x), {x}); }
Symbol MaskAnd(Symbol x, Symbol y) { return same(Op::kAnd, x, y); }
Symbol MaskOr(Symbol x, Symbol y) { return same(Op::kOr, x, y); }
Symbol MaskXor(Symbol x, Symbol y) { return same(Op::kXor, x, y); }
Symbol BitAnd(Symbol x, Symbol y) { return same(Op::kAnd, x, y); }
Symbol BitOr(Symbol x, Symbol y) { return same(Op::kOr, x, y); }
Symbol BitXor(Symbol x, Symbol y) { return same(Op::kXor, x, y); }

Symbol rounded(Symbol x, uint16_t mode) {
  return x.graph->make(Op::kRound, dtype_of(x), {x}, mode);
}
Symbol Round(Symbol x) { return rounded(x, 8); }
Symbol Floor(Symbol x) { return rounded(x, 9); }
Symbol Ceil(Symbol x) { return rounded(x, 10); }
Symbol Trunc(Symbol x) { return rounded(x, 11); }

Symbol MulAdd(Symbol x, Symbol y, Symbol z) {
  if (!is_float(x)) return Add(Mul(x, y), z);
  return x.graph->make(Op::kFma, dtype_of(x), {x, y, z});
}

// The mask m where x is m ? 1 : 0, as a bool that was converted is.
Symbol mask_of_number(Symbol x) {
  const LoopNode node = x.graph->at(x);
  const bool converted = node.op == Op::kSelect && node.arity == 2 && node.in[1] == C(x, 1.0).id;
  return converted ? Symbol{x.graph, node.in[0]} : Symbol{};
}

Symbol Unequal(Symbol x, Symbol y) {
  if (is_mask(x)) return is_zero(y) ? x : MaskXor(x, y);
  if (is_zero(y)) {
    const Symbol mask = mask_of_number(x);
    if (mask.id >= 0) return mask;
  }
  return compare(kUnequal, x, y);
}

Symbol Eq(Symbol x, Symbol y) { return invert(Unequal(x, y)); }

Symbol Lt(Symbol x, Symbol y) {
  return is_mask(x) ? same(Op::kAndNot, x, y) : compare(kLess, x, y);
}

Symbol Le(Symbol x, Symbol y) {
  return is_mask(x) ? MaskOr(invert(x), y) : compare(kLessEqual, x, y);
}

Symbol BitNot(Symbol x) {
  if (is_mask(x)) return invert(x);
  return same(Op::kXor, x, x.graph->constant(dtype_of(x), ~0ull));
}

Symbol Select(Symbol mask, Symbol yes, Symbol no) {
  if (is_mask(yes)) return MaskOr(MaskAnd(mask, yes), same(Op::kAndNot, mask, no));
  const LoopNode node = mask.graph->at(mask);
  if (node.op == Op::kNot) return Select({mask.graph, node.in[0]}, no, yes);
  if (is_zero(no)) return yes.graph->make(Op::kSelect, dtype_of(yes), {mask, yes});
  return yes.graph->make(Op::kSelect, dtype_of(yes), {mask, yes, no});
}

Symbol Neg(Symbol x) {
  if (!is_float(x)) return Sub(C(x, 0.0), x);
  const uint64_t sign = dtype_of(x) == Dtype::kFloat64 ? 1ull << 63 : 1ull << 31;
  return same(Op::kXor, x, x.graph->constant(dtype_of(x), sign));
}

Symbol Abs(Symbol x) {
  const bool wide = dtype_of(x) == Dtype::kInt64 || dtype_of(x) == Dtype::kFloat64;
  if (is_float(x)) {
    return same(Op::kAnd, x, x.graph->constant(dtype_of(x), wide ? ~0ull >> 1 : 0x7fffffff));
  }
  if (wide && x.graph->isa != Isa::kAvx512) return Select(Lt(x, C(x, 0.0)), Neg(x), x);
  return x.graph->make(Op::kAbs, dtype_of(x), {x});
}

Symbol Sign(Symbol x) {
  const Symbol zero = C(x, 0.0), one = C(x, 1.0);
  return Sub(Select(Lt(zero, x), one, zero), Select(Lt(x, zero), one, zero));
}

double constant_value(const LoopNode& node) {
  return node.dtype == Dtype::kFloat32
             ? static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(node.bits)))
             : std::bit_cast<double>(node.bits);
}

// x where it is NaN, else the larger (smaller). With a constant that is not NaN the instruction
// whose second operand is x does all of it, but for the sign of zeros.
Symbol extreme(Op op, Op or_nan, Symbol x, Symbol y) {
  if (is_mask(x)) return same(op == Op::kMax ? Op::kOr : Op::kAnd, x, y);
  if (!is_float(x)) {
    if (x.graph->isa == Isa::kAvx512 || dtype_of(x) == Dtype::kInt32) return same(op, x, y);
    return op == Op::kMax ? Select(Lt(y, x), x, y) : Select(Lt(x, y), x, y);
  }
  const LoopNode other = x.graph->at(y);
  if (other.op == Op::kConst && !std::isnan(constant_value(other))) {
    if (constant_value(other) != 0) return same(op, y, x);
    if (op == Op::kMax && other.bits == 0) return Select(compare(kNotLessEqual, x, y), x, y);
  }
  return same(or_nan, x, y);
}

Symbol Maximum(Symbol x, Symbol y) { return extreme(Op::kMax, Op::kMaxOrNan, x, y); }
Symbol Minimum(Symbol x, Symbol y) { return extreme(Op::kMin, Op::kMinOrNan, x, y); }

Symbol Lerp(Symbol x, Symbol y, Symbol weight) {
  const Symbol span = Sub(y, x);
  const Symbol rest = Sub(C(x, 1.0), weight);
  return Select(Lt(Abs(weight), C(x, 0.5)), MulAdd(weight, span, x),
                x.graph->make(Op::kFnma, dtype_of(x), {span, rest, y}));
}

// Words of math-inl.h.
Symbol write_math(MathWord word, std::initializer_list<Symbol> operands) {
  int ids[4] = {};
  int count = 0;
  for (Symbol s : operands) ids[count++] = s.id;
  const Symbol x = *operands.begin();
  LoopGraph& graph = *x.graph;
  const bool is_double = dtype_of(x) == Dtype::kFloat64;
  const auto write = graph.isa == Isa::kAvx512 ? write_math_avx512 : write_math_avx2;
  return {&graph, write(graph, word, ids, is_double)};
}

#define HOLOGRAM_WORD(Name, arity)                      \
  template <class... Rest>                              \
  Symbol Name(Symbol x, Rest... rest) {                 \
    static_assert(sizeof...(rest) == arity - 1);        \
    return write_math(MathWord::k##Name, {x, rest...}); \
  }
HOLOGRAM_JIT_MATH_WORDS(HOLOGRAM_WORD)
#undef HOLOGRAM_WORD

// Words that are not straight-line code: the row is called instead.
#define HOLOGRAM_OPAQUE(Name)      \
  template <class... Rest>         \
  Symbol Name(Symbol x, Rest...) { \
    x.graph->opaque = true;        \
    return x;                      \
  }
HOLOGRAM_OPAQUE(Sin)
HOLOGRAM_OPAQUE(Cos)
HOLOGRAM_OPAQUE(Tan)
HOLOGRAM_OPAQUE(Remainder)
HOLOGRAM_OPAQUE(FloorDivide)
HOLOGRAM_OPAQUE(Fmod)
HOLOGRAM_OPAQUE(Erfinv)
HOLOGRAM_OPAQUE(Digamma)
#undef HOLOGRAM_OPAQUE

// The row's body, written down. Sets graph->opaque where it cannot be.
Symbol write_row(OpId op, const Symbol* operands, int arity) {
  const Symbol x = operands[0];
  [[maybe_unused]] const Symbol y = operands[arity > 1 ? 1 : 0];
  [[maybe_unused]] const Symbol z = operands[arity > 2 ? 2 : 0];
  [[maybe_unused]] const Symbol w = operands[arity > 3 ? 3 : 0];
  switch (op) {
#define HOLOGRAM_OP(name, id, arity, params, dtypes, others, accuracy, traits, aten, doc, body) \
  case OpId::name:                                                                              \
    return body;
#include "hologram/elementwise.def"
  }
  x.graph->opaque = true;
  return x;
}

// ---- the graph ----

bool is_half(Dtype d) { return d == Dtype::kFloat16 || d == Dtype::kBFloat16; }

// Types that are read only to be converted.
bool is_small_integer(Dtype d) {
  return d == Dtype::kUInt8 || d == Dtype::kInt8 || d == Dtype::kInt16;
}

Symbol convert_directly(Symbol x, Dtype from, Dtype to) {
  return x.graph->make(Op::kConvert, to, {x}, 0, from);
}

// Operations that has_bfloat16_digits() looks into, one below the other.
constexpr int kDeepest = 8;

// Whether a float32 is one that bfloat16 has: the lower half of its bits is 0.
bool has_bfloat16_digits(Symbol x, int depth = 0) {
  const LoopNode& n = x.graph->at(x);
  if (depth == kDeepest) return false;
  const auto has = [&](int k) { return has_bfloat16_digits({x.graph, n.in[k]}, depth + 1); };
  switch (n.op) {
    case Op::kConst:
      return (n.bits & 0xffff) == 0;
    case Op::kShiftLeft:
      return n.index == 16 && x.graph->nodes[static_cast<size_t>(n.in[0])].from == Dtype::kBFloat16;
    case Op::kRound:  // numbers with a fraction are below 128, and integers up to 256 have 8 bits
      return has(0);
    case Op::kSelect:
      return has(1) && (n.arity < 3 || has(2));
    case Op::kMax:
    case Op::kMin:
    case Op::kMaxOrNan:
    case Op::kMinOrNan:
    case Op::kXor:
    case Op::kOr:
      return has(0) && has(1);
    case Op::kAnd:
      return has(0) || has(1);
    default:
      return false;
  }
}

// To nearest even by integer arithmetic, every NaN the same; what has the digits as it is.
Symbol to_bfloat16(Symbol x) {
  LoopGraph& g = *x.graph;
  constexpr Dtype kI = Dtype::kInt32;
  if (has_bfloat16_digits(x)) {
    return convert_directly(g.make(Op::kShiftRight, kI, {x}, 16), kI, Dtype::kBFloat16);
  }
  const Symbol odd =
      g.make(Op::kAnd, kI, {g.make(Op::kShiftRight, kI, {x}, 16), g.constant(kI, 1)});
  const Symbol up = g.make(Op::kAdd, kI, {g.make(Op::kAdd, kI, {x, g.constant(kI, 0x7fff)}), odd});
  const Symbol rounded = g.make(Op::kShiftRight, kI, {up}, 16);
  const Symbol bits = g.make(Op::kSelect, kI, {Unequal(x, x), g.constant(kI, 0x7fc0), rounded});
  return convert_directly(bits, kI, Dtype::kBFloat16);
}

static_assert(std::has_unique_object_representations_v<LoopNode>);

uint64_t hash_of(const LoopNode& node) {
  uint64_t hash = 0;
  for (const uint64_t word : std::bit_cast<std::array<uint64_t, sizeof node / 8>>(node)) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

Symbol LoopGraph::add(LoopNode node) {
  if (index_.size() < 2 * (nodes.size() + 1)) index_nodes();
  size_t slot = hash_of(node) & (index_.size() - 1);
  for (; index_[slot] >= 0; slot = (slot + 1) & (index_.size() - 1)) {
    if (nodes[static_cast<size_t>(index_[slot])] == node) return {this, index_[slot]};
  }
  index_[slot] = static_cast<int16_t>(nodes.size());
  nodes.push_back(node);
  return {this, static_cast<int>(nodes.size()) - 1};
}

void LoopGraph::index_nodes() {
  index_.assign(std::bit_ceil(4 * (nodes.size() + 32)), -1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    size_t slot = hash_of(nodes[i]) & (index_.size() - 1);
    while (index_[slot] >= 0) slot = (slot + 1) & (index_.size() - 1);
    index_[slot] = static_cast<int16_t>(i);
  }
}

void LoopGraph::truncate(size_t count) {
  nodes.resize(count);
  index_nodes();
}

Symbol LoopGraph::make(Op op, Dtype dtype, std::initializer_list<Symbol> in, int index,
                       std::optional<Dtype> from) {
  LoopNode node{.op = op, .dtype = dtype, .from = from.value_or(dtype), .index = index};
  for (Symbol s : in) node.in[node.arity++] = static_cast<int16_t>(s.id);
  return add(node);
}

Symbol LoopGraph::constant(Dtype dtype, uint64_t bits) {
  LoopNode node{.op = Op::kConst, .dtype = dtype, .from = dtype};
  node.bits = bits;
  return add(node);
}

Symbol LoopGraph::constant_of(Dtype dtype, double value) {
  switch (dtype) {
    case Dtype::kFloat32:
      return constant(dtype, std::bit_cast<uint32_t>(static_cast<float>(value)));
    case Dtype::kFloat64:
      return constant(dtype, std::bit_cast<uint64_t>(value));
    case Dtype::kInt32:
      return constant(dtype, static_cast<uint32_t>(static_cast<int32_t>(value)));
    default:
      return constant(dtype, static_cast<uint64_t>(static_cast<int64_t>(value)));
  }
}

bool is_computed(Dtype d) {
  return d == Dtype::kBool || d == Dtype::kInt32 || d == Dtype::kInt64 || d == Dtype::kFloat32 ||
         d == Dtype::kFloat64;
}

bool can_convert(Isa isa, Dtype from, Dtype to) {
  if (is_half(from)) from = Dtype::kFloat32;
  if (is_half(to)) to = Dtype::kFloat32;
  if (is_small_integer(from) && from != to) from = Dtype::kInt32;
  if (!is_computed(from) || !is_computed(to)) return false;
  if (isa == Isa::kAvx512 || from == to) return true;
  // AVX2 converts between float and int64 one element at a time.
  return !(from == Dtype::kInt64 && is_floating(to)) && !(is_floating(from) && to == Dtype::kInt64);
}

Symbol convert(Symbol x, Dtype to) {
  LoopGraph& g = *x.graph;
  const Dtype from = g.at(x).dtype;
  if (from == to) return x;
  if (from == Dtype::kFloat16) {
    return convert(convert_directly(x, from, Dtype::kFloat32), to);
  }
  if (is_small_integer(from)) {
    return convert(convert_directly(x, from, Dtype::kInt32), to);
  }
  if (from == Dtype::kBFloat16) {
    const Symbol wide = convert_directly(x, from, Dtype::kInt32);
    return convert(g.make(Op::kShiftLeft, Dtype::kFloat32, {wide}, 16), to);
  }
  if (to == Dtype::kBool) return Unequal(x, C(x, 0.0));
  if (is_half(to)) {
    const Symbol single = convert(x, Dtype::kFloat32);
    return to == Dtype::kBFloat16 ? to_bfloat16(single)
                                  : convert_directly(single, Dtype::kFloat32, to);
  }
  if (from == Dtype::kBool) {
    return g.make(Op::kSelect, to, {x, g.constant_of(to, 1)});
  }
  return convert_directly(x, from, to);
}

Symbol LoopGraph::input(int index, Dtype dtype) {
  inputs = std::max(inputs, index + 1);
  return make(Op::kLoad, dtype, {}, index);
}

Symbol LoopGraph::number(int index, Dtype dtype) {
  numbers = std::max(numbers, index + 1);
  return make(Op::kNumber, dtype, {}, index);
}

Symbol LoopGraph::compute(const circuit::Instr& instr, const Symbol* in) {
  codes.push_back(instr.code);
  if (!instr.is_op()) return convert(in[0], instr.result);
  opaque = false;
  const size_t before = nodes.size();
  const Symbol value = write_row(instr.op(), in, instr.arity);
  if (!opaque) return value;
  truncate(before);
  LoopNode call{.op = Op::kCall, .dtype = instr.result, .from = instr.compute, .index = instr.code};
  for (int k = 0; k < instr.arity; ++k) call.in[call.arity++] = static_cast<int16_t>(in[k].id);
  return add(call);
}

void LoopGraph::fold(Fold fold, Symbol x) {
  folds.push_back((fold == Fold::kSumSquare ? Square(x) : fold == Fold::kSumAbs ? Abs(x) : x).id);
}

}  // namespace hologram::cpu::jit
