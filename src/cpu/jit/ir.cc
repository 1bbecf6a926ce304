// SPDX-License-Identifier: MIT
// Builds the graph of a segment: steps to nodes, equal nodes shared.
#include "src/cpu/jit/ir.h"

#include <bit>

#include "hologram/op.h"
#include "src/cpu/jit/primitives.h"

namespace hologram::cpu::jit {
namespace {

constexpr size_t kMaxNodes = 4096;

bool is_half(Dtype d) { return d == Dtype::kFloat16 || d == Dtype::kBFloat16; }

// Types that are read only to be converted.
bool is_small_integer(Dtype d) {
  return d == Dtype::kUInt8 || d == Dtype::kInt8 || d == Dtype::kInt16;
}

bool is_computed(Dtype d) {
  return d == Dtype::kBool || d == Dtype::kInt32 || d == Dtype::kInt64 || d == Dtype::kFloat32 ||
         d == Dtype::kFloat64;
}

// To nearest even by integer arithmetic, every NaN the same.
Symbol to_bfloat16(Symbol x) {
  LoopGraph& g = *x.graph;
  constexpr Dtype kI = Dtype::kInt32;
  const Symbol odd =
      g.make(Op::kAnd, kI, {g.make(Op::kShiftRight, kI, {x}, 16), g.constant(kI, 1)});
  const Symbol up = g.make(Op::kAdd, kI, {g.make(Op::kAdd, kI, {x, g.constant(kI, 0x7fff)}), odd});
  const Symbol rounded = g.make(Op::kShiftRight, kI, {up}, 16);
  const Symbol bits = g.make(Op::kSelect, kI, {Unequal(x, x), g.constant(kI, 0x7fc0), rounded});
  LoopNode narrow{.op = Op::kConvert, .dtype = Dtype::kBFloat16, .from = kI, .arity = 1};
  narrow.in[0] = static_cast<int16_t>(bits.id);
  return g.add(narrow);
}

Symbol convert_directly(Symbol x, Dtype from, Dtype to) {
  LoopNode node{.op = Op::kConvert, .dtype = to, .from = from, .arity = 1};
  node.in[0] = static_cast<int16_t>(x.id);
  return x.graph->add(node);
}

uint64_t hash_of(const LoopNode& node) {
  uint64_t hash = node.bits;
  const auto mix = [&](auto value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  };
  mix(static_cast<uint64_t>(node.op) << 32 | static_cast<uint64_t>(node.dtype) << 24 |
      static_cast<uint64_t>(node.from) << 16 | node.index);
  mix(static_cast<uint64_t>(static_cast<uint16_t>(node.in[0])) << 48 |
      static_cast<uint64_t>(static_cast<uint16_t>(node.in[1])) << 32 |
      static_cast<uint64_t>(static_cast<uint16_t>(node.in[2])) << 16 |
      static_cast<uint16_t>(node.in[3]));
  return hash;
}

bool build_step(const SegmentStep& step, const std::vector<Symbol>& numbers,
                const std::vector<Symbol>& inputs, std::vector<Symbol>& values, LoopGraph& graph) {
  Symbol in[4];
  if (step.arity < 1 || step.arity > 4) return false;
  for (int k = 0; k < step.arity; ++k) {
    const SegmentRef ref = step.in[k];
    const std::vector<Symbol>& from = ref.kind == SegmentRef::kInput    ? inputs
                                      : ref.kind == SegmentRef::kNumber ? numbers
                                                                        : values;
    if (ref.index >= from.size()) return false;
    in[k] = from[ref.index];
    if (graph.at(in[k]).dtype != step.compute) return false;
  }
  if (step.convert) {
    if (step.arity != 1 || !can_convert(graph.isa, step.compute, step.result)) return false;
    values.push_back(convert(in[0], step.result));
    return true;
  }
  if (!jit_takes(graph.isa, step)) return false;
  graph.opaque = false;
  const size_t before = graph.nodes.size();
  Symbol value = write_row(step.op, in, step.arity);
  if (graph.opaque) {
    graph.truncate(before);
    LoopNode call{.op = Op::kCall, .dtype = step.result, .from = step.compute};
    call.index = static_cast<uint16_t>(step.op);
    call.arity = step.arity;
    for (int k = 0; k < step.arity; ++k) call.in[k] = static_cast<int16_t>(in[k].id);
    value = graph.add(call);
  }
  values.push_back(value);
  return true;
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

Symbol LoopGraph::make(Op op, Dtype dtype, std::initializer_list<Symbol> in, uint16_t index) {
  LoopNode node{.op = op, .dtype = dtype, .from = dtype, .index = index};
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

bool make_loop_graph(const Segment& segment, LoopGraph& graph) {
  std::vector<Symbol> inputs, numbers, values;
  graph.inputs = static_cast<int>(segment.inputs.size());
  graph.numbers = static_cast<int>(segment.numbers.size());
  for (size_t i = 0; i < segment.inputs.size(); ++i) {
    const Dtype dtype = segment.inputs[i];
    if (!is_computed(dtype) && !is_half(dtype) && !is_small_integer(dtype)) return false;
    LoopNode node{.op = Op::kLoad, .dtype = dtype, .from = dtype};
    node.index = static_cast<uint16_t>(i);
    inputs.push_back(graph.add(node));
  }
  for (size_t i = 0; i < segment.numbers.size(); ++i) {
    const Dtype dtype = segment.numbers[i];
    if (!is_computed(dtype) && !is_half(dtype) && !is_small_integer(dtype)) return false;
    LoopNode node{.op = Op::kNumber, .dtype = dtype, .from = dtype};
    node.index = static_cast<uint16_t>(i);
    numbers.push_back(graph.add(node));
  }
  graph.outputs.assign(segment.outputs.size(), -1);
  for (const SegmentStep& step : segment.steps) {
    if (!build_step(step, numbers, inputs, values, graph)) return false;
    if (graph.nodes.size() > kMaxNodes) return false;
    if (step.output < 0) continue;
    const auto output = static_cast<size_t>(step.output);
    const Symbol value = values.back();
    if (output >= graph.outputs.size() || graph.at(value).dtype != segment.outputs[output]) {
      return false;
    }
    graph.outputs[output] = value.id;
  }
  for (int id : graph.outputs) {
    if (id < 0) return false;
  }
  for (const SegmentFold& fold : segment.folds) {
    const std::vector<Symbol>& from = fold.of.kind == SegmentRef::kInput ? inputs : values;
    if (fold.of.kind == SegmentRef::kNumber || fold.of.index >= from.size()) return false;
    const Symbol x = from[fold.of.index];
    const Dtype dtype = graph.at(x).dtype;
    if (dtype != Dtype::kFloat32 && dtype != Dtype::kFloat64) return false;
    const Symbol term = fold.fold == Fold::kSumSquare ? Square(x)
                        : fold.fold == Fold::kSumAbs  ? Abs(x)
                                                      : x;
    graph.folds.push_back(term.id);
  }
  return true;
}

}  // namespace hologram::cpu::jit
