// SPDX-License-Identifier: MIT
// The vocabulary for Symbols, and the rows written in it.
#include "src/cpu/jit/primitives.h"

#include <bit>
#include <cmath>

namespace hologram::cpu::jit {
namespace {

Dtype dtype_of(Symbol x) { return x.graph->at(x).dtype; }
bool is_float(Symbol x) { return is_floating(dtype_of(x)); }
bool is_mask(Symbol x) { return dtype_of(x) == Dtype::kBool; }

Symbol same(Op op, Symbol x, Symbol y) { return x.graph->make(op, dtype_of(x), {x, y}); }

bool is_zero(Symbol x) {
  const Node& node = x.graph->at(x);
  return node.op == Op::kConst && node.bits == 0;
}

Symbol compare(Compare how, Symbol x, Symbol y) {
  Node node{.op = Op::kCompare, .dtype = Dtype::kBool, .from = dtype_of(x), .index = how};
  node.arity = 2;
  node.in[0] = static_cast<int16_t>(x.id);
  node.in[1] = static_cast<int16_t>(y.id);
  return x.graph->add(node);
}

Symbol invert(Symbol mask) {
  const Node node = mask.graph->at(mask);
  if (node.op == Op::kNot) return {mask.graph, node.in[0]};
  if (node.op == Op::kCompare && (node.index == kEqual || node.index == kUnequal)) {
    return compare(node.index == kEqual ? kUnequal : kEqual, {mask.graph, node.in[0]},
                   {mask.graph, node.in[1]});
  }
  return mask.graph->make(Op::kNot, Dtype::kBool, {mask});
}

// The mask m where x is m ? 1 : 0, as a bool that was converted is.
Symbol mask_of_number(Symbol x) {
  const Node node = x.graph->at(x);
  const bool converted = node.op == Op::kSelect && node.arity == 2 && node.in[1] == C(x, 1.0).id;
  return converted ? Symbol{x.graph, node.in[0]} : Symbol{};
}

double constant_value(const Node& node) {
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
  const Node other = x.graph->at(y);
  if (other.op == Op::kConst && !std::isnan(constant_value(other))) {
    if (constant_value(other) != 0) return same(op, y, x);
    if (op == Op::kMax && other.bits == 0) return Select(compare(kNotLessEqual, x, y), x, y);
  }
  return same(or_nan, x, y);
}

Symbol rounded(Symbol x, uint16_t mode) {
  return x.graph->make(Op::kRound, dtype_of(x), {x}, mode);
}

}  // namespace

Symbol C(Symbol x, double value) { return x.graph->constant_of(dtype_of(x), value); }

Symbol Add(Symbol x, Symbol y) { return same(Op::kAdd, x, y); }
Symbol Sub(Symbol x, Symbol y) { return same(Op::kSub, x, y); }
Symbol Mul(Symbol x, Symbol y) { return same(Op::kMul, x, y); }
Symbol Div(Symbol x, Symbol y) { return same(Op::kDiv, x, y); }
Symbol Square(Symbol x) { return Mul(x, x); }
Symbol Sqrt(Symbol x) { return x.graph->make(Op::kSqrt, dtype_of(x), {x}); }
Symbol Round(Symbol x) { return rounded(x, 8); }
Symbol Floor(Symbol x) { return rounded(x, 9); }
Symbol Ceil(Symbol x) { return rounded(x, 10); }
Symbol Trunc(Symbol x) { return rounded(x, 11); }

Symbol MulAdd(Symbol x, Symbol y, Symbol z) {
  if (!is_float(x)) return Add(Mul(x, y), z);
  return x.graph->make(Op::kFma, dtype_of(x), {x, y, z});
}

Symbol Abs(Symbol x) {
  const bool wide = dtype_of(x) == Dtype::kInt64 || dtype_of(x) == Dtype::kFloat64;
  if (is_float(x)) {
    return same(Op::kAnd, x, x.graph->constant(dtype_of(x), wide ? ~0ull >> 1 : 0x7fffffff));
  }
  if (wide && x.graph->isa != Isa::kAvx512) return Select(Lt(x, C(x, 0.0)), Neg(x), x);
  return x.graph->make(Op::kAbs, dtype_of(x), {x});
}

Symbol Neg(Symbol x) {
  if (!is_float(x)) return Sub(C(x, 0.0), x);
  const uint64_t sign = dtype_of(x) == Dtype::kFloat64 ? 1ull << 63 : 1ull << 31;
  return same(Op::kXor, x, x.graph->constant(dtype_of(x), sign));
}

Symbol Sign(Symbol x) {
  const Symbol zero = C(x, 0.0), one = C(x, 1.0);
  return Sub(Select(Lt(zero, x), one, zero), Select(Lt(x, zero), one, zero));
}

Symbol Maximum(Symbol x, Symbol y) { return extreme(Op::kMax, Op::kMaxOrNan, x, y); }
Symbol Minimum(Symbol x, Symbol y) { return extreme(Op::kMin, Op::kMinOrNan, x, y); }

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

Symbol MaskAnd(Symbol x, Symbol y) { return same(Op::kAnd, x, y); }
Symbol MaskOr(Symbol x, Symbol y) { return same(Op::kOr, x, y); }
Symbol MaskXor(Symbol x, Symbol y) { return same(Op::kXor, x, y); }
Symbol BitAnd(Symbol x, Symbol y) { return same(Op::kAnd, x, y); }
Symbol BitOr(Symbol x, Symbol y) { return same(Op::kOr, x, y); }
Symbol BitXor(Symbol x, Symbol y) { return same(Op::kXor, x, y); }

Symbol BitNot(Symbol x) {
  if (is_mask(x)) return invert(x);
  return same(Op::kXor, x, x.graph->constant(dtype_of(x), ~0ull));
}

Symbol Select(Symbol mask, Symbol yes, Symbol no) {
  if (is_mask(yes)) return MaskOr(MaskAnd(mask, yes), same(Op::kAndNot, mask, no));
  const Node node = mask.graph->at(mask);
  if (node.op == Op::kNot) return Select({mask.graph, node.in[0]}, no, yes);
  if (is_zero(no)) return yes.graph->make(Op::kSelect, dtype_of(yes), {mask, yes});
  return yes.graph->make(Op::kSelect, dtype_of(yes), {mask, yes, no});
}

Symbol Lerp(Symbol x, Symbol y, Symbol weight) {
  const Symbol span = Sub(y, x);
  const Symbol rest = Sub(C(x, 1.0), weight);
  return Select(Lt(Abs(weight), C(x, 0.5)), MulAdd(weight, span, x),
                x.graph->make(Op::kFnma, dtype_of(x), {span, rest, y}));
}

Symbol write_math(MathWord word, std::initializer_list<Symbol> operands) {
  int ids[4] = {};
  int count = 0;
  for (Symbol s : operands) ids[count++] = s.id;
  const Symbol x = *operands.begin();
  Graph& graph = *x.graph;
  const bool is_double = dtype_of(x) == Dtype::kFloat64;
  const auto write = graph.isa == Isa::kAvx512 ? write_math_avx512 : write_math_avx2;
  return {&graph, write(graph, word, ids, is_double)};
}

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

}  // namespace hologram::cpu::jit
