// SPDX-License-Identifier: MIT
// LoopGraph: what a generated loop computes for one vector of elements, in machine-like operations
// that come from the bodies of the op table. Lowering builds it instruction by instruction,
// make_schedule() and Emitter read it. Loops with equal graphs are one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"
#include "src/circuit/plan.h"
#include "src/cpu/reduce/reduce_kernels.h"

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
  uint8_t arity = 0;
  int32_t index = 0;
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

// Larger graphs have no loop.
inline constexpr size_t kMostNodes = 4096;

struct LoopGraph {
  explicit LoopGraph(Isa instruction_set) : isa(instruction_set) { nodes.reserve(64); }

  Isa isa;
  std::vector<LoopNode> nodes;
  // Nodes that go to the output arrays, and those that are added up along each row (by_rows only).
  std::vector<int> outputs;
  std::vector<int> folds;
  int inputs = 0, numbers = 0;
  // Walks rows of n elements, each with numbers of its own.
  bool by_rows = false;
  // Stores some of the elements only. AVX-512 only, not by rows.
  bool has_gaps = false;
  // With gaps: inputs and outputs, by their index, that have just those elements, side by side.
  std::vector<char> packed_inputs, packed_outputs;
  // Outputs (bit k: output k, of 4 or 8 bytes an element) whose whole vectors go past the caches:
  // their rows begin at multiples of 64 bytes.
  uint64_t streams = 0;
  // By rows: the input, or none, of which the row `rows` rows after each one is fetched into the
  // cache meanwhile.
  int fetched = -1;
  std::vector<uint16_t> codes;  // of the instructions, for profilers
  // Set where a body used a word that exists as Highway code only.
  bool opaque = false;

  // An element of the input array, or the number, of this index.
  Symbol input(int index, Dtype dtype);
  Symbol number(int index, Dtype dtype);
  // An instruction that jit_takes(), on operands of the dtype it computes in.
  Symbol compute(const circuit::Instr& instr, const Symbol* in);
  // Adds up x, float32 or float64, as the reduction's kernel does on one block. A number has no
  // rows.
  void fold(Fold fold, Symbol x);

  // Gives the node that is equal to this one where there is one.
  Symbol add(LoopNode node);
  // Takes back all nodes from this one on.
  void truncate(size_t count);
  // from: that of the operands, where it is another.
  Symbol make(Op op, Dtype dtype, std::initializer_list<Symbol> in, int index = 0,
              std::optional<Dtype> from = std::nullopt);
  Symbol constant(Dtype dtype, uint64_t bits);
  Symbol constant_of(Dtype dtype, double value);
  const LoopNode& at(Symbol s) const { return nodes[static_cast<size_t>(s.id)]; }

 private:
  void index_nodes();

  std::vector<int16_t> index_;  // hash table of nodes, -1 where empty
};

// Whether loops compute in this type. Others are only converted.
bool is_computed(Dtype d);
// Whether the instruction set has exactly what convert() does.
bool can_convert(Isa isa, Dtype from, Dtype to);
Symbol convert(Symbol x, Dtype to);

}  // namespace hologram::cpu::jit
