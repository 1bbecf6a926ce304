// SPDX-License-Identifier: MIT
// LoopGraph: what a generated loop computes for one vector of elements, in machine-like operations
// that come from the bodies of the op table. make_loop_graph() makes it of a segment,
// make_schedule() and Emitter read it.
#pragma once

#include <cstdint>
#include <vector>

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"
#include "src/cpu/jit/jit.h"

namespace hologram::cpu::jit {

enum class Op : uint8_t {
  kLoad,    // of the input array `index`
  kNumber,  // the number `index`, repeated
  kConst,   // `bits`, repeated
  kCall,    // row `index` of the op table, by its kernel
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFma,   // in0 * in1 + in2, rounded once
  kFnma,  // in2 - in0 * in1, rounded once
  kFms,   // in0 * in1 - in2, rounded once
  kSqrt,
  kRound,  // `index`: the instruction's rounding mode
  kMax,    // floats: in1 where either is NaN or both are zeros, as the instruction has it
  kMin,
  kMaxOrNan,  // floats: in0 where in0 is NaN, else as kMax
  kMinOrNan,
  kAbs,      // integers
  kCompare,  // `index`: Compare, of operands of dtype `from`; the result is a mask
  kSelect,   // in0 ? in1 : in2, or zero where there is no in2
  kAnd,      // of bits or of masks
  kOr,
  kXor,
  kAndNot,  // ~in0 & in1
  kNot,
  // AVX-512 only: in0 * 2^in1, or 0 where a mask in2 is not set; the parts of a float; NaN where
  // in0 is -inf, else in1 (in2: table).
  kScale,
  kMantissa,
  kExponent,
  kFix,
  kShiftLeft,   // by `index`, zeros in
  kShiftRight,  // by `index`, zeros in
  kConvert,     // from `from`; the half types and 32-bit integers exchange bits
};

enum Compare : uint16_t { kEqual, kLess, kLessEqual, kUnequal, kNotLessEqual, kUnordered };

// One value. Its dtype is how a lane is stored: kBool is a mask, and operations on bits take any
// dtype of the right size.
struct LoopNode {
  Op op{};
  Dtype dtype = Dtype::kFloat32;
  Dtype from = Dtype::kFloat32;
  uint16_t index = 0;
  uint8_t arity = 0;
  int16_t in[4] = {-1, -1, -1, -1};
  uint64_t bits = 0;

  bool operator==(const LoopNode&) const = default;
  bool is_mask() const { return dtype == Dtype::kBool; }
};

struct LoopGraph;

// A value while a body of the op table is written down.
struct Symbol {
  LoopGraph* graph = nullptr;
  int id = -1;
};

struct LoopGraph {
  explicit LoopGraph(Isa instruction_set) : isa(instruction_set) {}

  Isa isa;
  std::vector<LoopNode> nodes;
  // LoopNode ids of the segment's outputs, and of what is added up along each row.
  std::vector<int> outputs;
  std::vector<int> folds;
  int inputs = 0, numbers = 0;  // of the segment
  bool by_rows = false;
  uint64_t streams = 0;  // outputs that go past the caches
  int fetched = -1;      // the input of which later rows are fetched
  // Set where a body used a word that exists as Highway code only.
  bool opaque = false;

  // Gives the node that is equal to this one where there is one.
  Symbol add(LoopNode node);
  // Takes back all nodes from this one on.
  void truncate(size_t count);
  Symbol make(Op op, Dtype dtype, std::initializer_list<Symbol> in, uint16_t index = 0);
  Symbol constant(Dtype dtype, uint64_t bits);
  Symbol constant_of(Dtype dtype, double value);
  const LoopNode& at(Symbol s) const { return nodes[static_cast<size_t>(s.id)]; }

 private:
  void index_nodes();

  std::vector<int16_t> index_;  // hash table of nodes, -1 where empty
};

// Whether the instruction set has exactly what convert() does.
bool can_convert(Isa isa, Dtype from, Dtype to);
Symbol convert(Symbol x, Dtype to);

// The row's body, written down for operands x[0..arity). Sets graph->opaque where it cannot.
Symbol write_row(OpId op, const Symbol* x, int arity);

// Null operations and dtypes that a step may have aside: builds the whole segment. False where it
// is malformed or a step is not taken.
bool make_loop_graph(const Segment& segment, LoopGraph& graph);

}  // namespace hologram::cpu::jit
