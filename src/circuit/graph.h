// SPDX-License-Identifier: MIT
// Graph: a circuit in SSA, with who reads whose result and what has to end up in memory.
// make_graph() makes it of a tape, simplify() and find_live() change it, fuse() and make_plan()
// read it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hologram/call.h"
#include "src/circuit/cells.h"
#include "src/circuit/plan.h"
#include "src/circuit/strided_map.h"
#include "src/circuit/tape.h"

namespace hologram::circuit {

// A piece of a buffer as an operand walks it.
struct Region {
  uint32_t slot = 0;
  Size offset = 0;  // bytes
  Dtype dtype = Dtype::kFloat32;
  Map map;
  Cells cells;  // of the graph, from begin() to end()

  // Bytes reached, relative to the buffer.
  Size begin() const { return offset + map.lowest() * size(); }
  Size end() const { return offset + (map.highest() + 1) * size(); }
  int64_t size() const { return static_cast<int64_t>(itemsize(dtype)); }
  bool overlaps(const Region& other) const {
    return slot == other.slot && begin() < other.end() && other.begin() < end();
  }
  // The same bytes for the same element.
  bool same_places(const Region& other) const {
    return slot == other.slot && offset == other.offset && size() == other.size() &&
           map == other.map;
  }
  bool operator==(const Region&) const = default;
};

struct Input {
  bool is_number = false;
  // A number.
  Dtype dtype = Dtype::kFloat32;
  NumberClass number = NumberClass::kOther;
  uint32_t immediate = 0;
  // Memory. Where it holds the whole result of one node, `node` is that one, and the result is read
  // element by element (kFull), along rows (kRow: each `times` times) or everywhere (kOne).
  Region region;
  Rank rank = Rank::kFull;
  Size times = 1;
  int node = -1;
  // Where node is -1: the newest node that has written there, of which the input sees a part; -1:
  // none has.
  int newest = -1;
};

// An operand of a call: a run of bytes.
struct CallUse {
  CallSlot slot;
  Region region;  // as bytes one after another
  Size recorded;  // bytes of it on the tape

  bool reads() const { return slot.present && slot.reads; }
  bool writes() const { return slot.present && slot.writes; }
};

// What a node that is a call does.
struct GraphCall {
  std::span<const uint64_t> attributes;  // of the circuit's words
  uint32_t first_number = 0;
  std::vector<CallUse> uses;
  // The result that nodes may read element by element: it is the use result.operand, and Node::out
  // as well. Without columns there is none, and all operands are memory.
  CallResult result;
  Size cols = 0, group = 0;  // of the result
  // The newest node that has written where the operand lies that may be narrower; -1: none has, or
  // there is no such operand. is_narrowed: see narrow_operands().
  CallNarrowing narrowing;
  int writer = -1;
  bool is_narrowed = false;
};

struct Node {
  uint16_t code = 0;
  uint16_t attr = 0;
  Dtype compute = Dtype::kFloat32;
  double parameter = 0;
  int arity = 0;
  Input in[kMaxArity];
  Size n = 0;    // elements walked: of the inputs of a fold, else of the output
  Size row = 0;  // folds and row functions: elements of a row
  Region out;
  Size out_n = 0;
  int record = -1;  // of the tape
  // Of kCodeCall: which of Graph::calls. It has no inputs of the kind above, and an output only
  // where the call has a result.
  int call = -1;

  bool clobbered = false;  // some later node writes into out
  bool stored = false;     // the result has to be in memory
  bool live = false;

  bool is_op() const { return code < kCodeConvert; }
  OpId op() const { return static_cast<OpId>(code); }
};

// A region as memory that is written, by its places.
struct Places {
  uint32_t slot = 0;
  Size offset = 0;
  int64_t size = 0;
  Map map;

  explicit Places(const Region& region)
      : slot(region.slot), offset(region.offset), size(region.size()), map(region.map) {}
  bool operator==(const Places&) const = default;
  struct Hash {
    size_t operator()(const Places& places) const;
  };
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<GraphCall> calls;
  std::vector<uint8_t> states;
  int records = 0;             // on the tape
  Size left_out = 0;           // bytes that trimmed copies no longer read and write
  size_t tree_nodes = 0;       // of a CellTree over all slots
  Greatest newest{0};          // the node that is the last to write each cell
  mutable int64_t visits = 0;  // what planning has looked at, however often

  // A slot for a value that must not be in memory: no buffer of the circuit belongs to it.
  uint32_t add_value() {
    states.push_back(0);
    return static_cast<uint32_t>(states.size() - 1);
  }

  // Whether the memory that an input reads is the same all through the circuit.
  bool never_written(const Region& region) const {
    return newest.most(region.cells) == Greatest::kNone;
  }
  bool has_output(const Node& node) const {
    return node.call < 0 || calls[static_cast<size_t>(node.call)].result.cols != 0;
  }
  // Calls f(region, whole) for the memory that a node writes. whole: it leaves nothing of what was
  // there.
  template <class F>
  void for_writes(const Node& node, F&& f) const {
    if (node.call < 0) return f(node.out, true);
    for (const CallUse& use : calls[static_cast<size_t>(node.call)].uses) {
      if (use.writes()) f(use.region, use.slot.covers);
    }
  }
  // Calls f(region, input) for the memory that a node may read; of a call, input is the use.
  template <class F>
  void for_reads(const Node& node, F&& f) const {
    for (int k = 0; k < node.arity; ++k) {
      if (!node.in[k].is_number) f(node.in[k].region, k);
    }
    if (node.call < 0) return;
    const std::vector<CallUse>& uses = calls[static_cast<size_t>(node.call)].uses;
    for (size_t k = 0; k < uses.size(); ++k) {
      if (uses[k].reads()) f(uses[k].region, static_cast<int>(k));
    }
  }
};

// A node for each record of a tape. Where the plan fuses, copies are trimmed and values computed in
// parts (see below).
Graph make_graph(std::span<const uint64_t> words, std::span<const uint8_t> states,
                 const PlanOptions& options);
// Before nodes are linked: leaves out of copies of at least that many bytes what is written again
// before anyone reads it. What is left of a copy is a node for each rectangle.
void trim_copies(Graph& graph, int64_t least_bytes);
// Before nodes are linked: computes values of at least that many bytes where parts of them are
// read, if these are few and the ops cheap. They get slots of add_value().
void compute_parts(Graph& graph, int64_t least_bytes);
// What a node reads and writes where it shares no kernel.
Size bytes_alone(const Graph& graph, const Node& node);
// Lets calls read what was converted for them before it is, where their kinds take it: the bits are
// the same, and a conversion that is read nowhere else is left out.
void narrow_operands(Graph& graph);
// Applies the laws (see rewrite_rules.def) and joins common subexpressions; memory ends up the
// same.
void simplify(Graph& graph, const PlanOptions& options);
// Sets Node::live and Node::stored: what is seen outside, and what that needs.
void find_live(Graph& graph);

}  // namespace hologram::circuit
