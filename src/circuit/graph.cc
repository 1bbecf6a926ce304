// SPDX-License-Identifier: MIT
// Makes the SSA form of the records of a tape.
#include "src/circuit/graph.h"

#include <cstdint>
#include <unordered_map>

#include "src/circuit/call_kinds.h"
#include "src/circuit/lanes.h"

namespace hologram::circuit {
namespace {

Region region_of(const Record& record, int k, int ndim) {
  const TapeOperand& operand = record.operands[k];
  Region region{operand.slot, size_of_tape(operand.offset), operand.dtype, {}, {}};
  if (operand.kind == OperandKind::kMemory) {
    region.map = Map::from_dims(ndim, record.shape, record.strides[k]);
  }
  return region;
}

// The bytes that a call touches: a flat run of single bytes, which no other operand equals.
Region region_of(const CallSlot& operand) {
  return {operand.slot,
          size_of_tape(operand.offset),
          Dtype::kUInt8,
          Map::flat(size_of_tape(operand.bytes)),
          {}};
}

class Builder {
 public:
  Builder(Graph& graph, const PlanLimits& limits) : graph_(graph), limits_(limits) {}

  void add(const Record& record) {
    Node& node = graph_.nodes.emplace_back();
    node.record = static_cast<int>(graph_.nodes.size()) - 1;
    node.code = record.code;
    node.attr = record.attr;
    node.compute = record.compute;
    node.parameter = record.parameter;
    node.arity = record.arity;
    const Size last = size_of_tape(record.shape[record.ndim - 1]);
    Size rows = 1;
    for (int d = 0; d < record.ndim - 1; ++d) rows *= size_of_tape(record.shape[d]);
    node.n = rows * last;
    node.row = record.code >= kCodeReduction ? last : 0;
    const bool fold = record.code == kCodeReduction;
    node.out_n = fold ? rows : node.n;
    node.out = region_of(record, 0, fold ? record.ndim - 1 : record.ndim);
    for (int k = 0; k < node.arity; ++k) {
      const TapeOperand& operand = record.operands[k + 1];
      Input& input = node.in[k];
      if (operand.kind == OperandKind::kImmediate) {
        input.is_number = true;
        input.dtype = operand.dtype;
        input.number = operand.number;
        input.immediate = operand.immediate;
        continue;
      }
      input.region = region_of(record, k + 1, record.ndim);
      input.dtype = operand.dtype;
      input.rank = operand.kind == OperandKind::kOne ? Rank::kOne : Rank::kFull;
      if (input.rank == Rank::kOne) input.times = node.n;
    }
  }

  void add_call(const Record& record) {
    Node& node = graph_.nodes.emplace_back();
    node.record = static_cast<int>(graph_.nodes.size()) - 1;
    node.code = record.code;
    node.attr = record.attr;
    node.call = static_cast<int>(graph_.calls.size());
    GraphCall& call = graph_.calls.emplace_back();
    call.attributes = record.call.attributes;
    call.first_number = record.call.first_number;
    for (size_t k = 0; k < record.call.operands(); ++k) {
      const CallSlot operand = record.call.operand(k);
      call.uses.push_back({operand, region_of(operand), size_of_tape(operand.bytes)});
    }
    find_result(node, call);
    const CallKind* kind = find_kernel(node.attr);
    narrows_.push_back(kind != nullptr && kind->narrowing != nullptr &&
                       kind->narrowing(call.attributes.data(), call.narrowing));
  }

  // Once all nodes are there: who reads whose result.
  void link() {
    cut_slots();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& node = graph_.nodes[i];
      for (int k = 0; k < node.arity; ++k) {
        if (!node.in[k].is_number) find_writer(node, node.in[k]);
      }
      if (node.call >= 0 && narrows_[static_cast<size_t>(node.call)]) {
        GraphCall& call = graph_.calls[static_cast<size_t>(node.call)];
        const CallUse& use = call.uses[static_cast<size_t>(call.narrowing.operand)];
        if (use.reads() && !use.writes()) call.writer = graph_.newest.most(use.region.cells);
      }
      graph_.for_writes(node, [&](const Region& region, bool) {
        graph_.newest.raise(region.cells, static_cast<int>(i));
      });
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& node = graph_.nodes[i];
      node.clobbered =
          graph_.has_output(node) && graph_.newest.most(node.out.cells) > static_cast<int>(i);
    }
    graph_.visits += static_cast<int64_t>(graph_.nodes.size());
  }

 private:
  // Whether an operand is a result that nodes may read element by element.
  void find_result(Node& node, GraphCall& call) const {
    CallResult result;
    const uint64_t* attributes = call.attributes.data();
    if (limits_.call_result != nullptr) {
      if (!limits_.call_result(node.attr, attributes, result)) return;
    } else {
      const CallKind* kind = find_kernel(node.attr);
      if (kind == nullptr || kind->result == nullptr || !kind->result(attributes, result)) return;
    }
    if (limits_.native != nullptr && !limits_.native->has(result.dtype)) return;
    const Size rows = size_of_tape(result.rows), cols = size_of_tape(result.cols);
    if (rows < 2 || cols < 2) return;
    const auto operand = static_cast<size_t>(result.operand);
    if (operand >= call.uses.size() || !call.uses[operand].writes()) return;
    const CallSlot& slot = call.uses[operand].slot;
    if (!slot.covers ||
        size_of_tape(slot.bytes) != rows * cols * static_cast<int64_t>(itemsize(result.dtype))) {
      return;
    }
    // Who reads the result may write in its place while the call still reads other operands.
    for (size_t k = 0; k < call.uses.size(); ++k) {
      const CallUse& use = call.uses[k];
      if (k != operand && use.slot.present && use.region.overlaps(call.uses[operand].region))
        return;
    }
    call.result = result;
    call.cols = cols;
    call.group = result.group == 0 ? rows : size_of_tape(result.group);
    node.n = node.out_n = rows * cols;
    node.compute = result.dtype;
    node.out = {slot.slot, size_of_tape(slot.offset), result.dtype, Map::flat(node.n), {}};
  }

  // Calls f(region) for all memory that comes up.
  template <class F>
  void for_regions(F&& f) {
    for (Node& node : graph_.nodes) {
      if (graph_.has_output(node)) f(node.out);
      for (int k = 0; k < node.arity; ++k) {
        if (!node.in[k].is_number) f(node.in[k].region);
      }
    }
    for (GraphCall& call : graph_.calls) {
      for (CallUse& use : call.uses) {
        if (use.slot.present) f(use.region);
      }
    }
  }

  void cut_slots() {
    Lanes lanes(graph_.states.size());
    for_regions([&](Region& region) { lanes.add(region); });
    lanes.finish();
    for_regions([&](Region& region) { region.cells = lanes.find(region); });
    graph_.tree_nodes = lanes.nodes();
    graph_.visits += static_cast<int64_t>(graph_.tree_nodes);
    graph_.newest = Greatest(graph_.tree_nodes);
  }

  // The node whose result the input reads, or the newest of those it reads parts of.
  void find_writer(const Node& node, Input& input) {
    const int newest = graph_.newest.most(input.region.cells);
    if (newest == Greatest::kNone) return;
    const Node& writer = graph_.nodes[static_cast<size_t>(newest)];
    (graph_.has_output(writer) && reads_whole(node, input, writer) ? input.node : input.newest) =
        newest;
  }

  static bool reads_whole(const Node& node, Input& input, const Node& writer) {
    const Region& in = input.region;
    const Region& out = writer.out;
    if (in.slot != out.slot || in.dtype != out.dtype || in.offset != out.offset) return false;
    if (input.rank == Rank::kOne) {
      input.times = node.n;
      return writer.out_n == 1;
    }
    if (node.n == writer.out_n && in.map == out.map) return true;
    if (node.n % writer.out_n != 0) return false;
    const Size times = node.n / writer.out_n;
    if (!in.map.repeats(out.map, times)) return false;
    input.times = times;
    input.rank = writer.out_n == 1 ? Rank::kOne : Rank::kRow;
    return true;
  }

  Graph& graph_;
  const PlanLimits& limits_;
  std::vector<bool> narrows_;  // for each call
};

// Goes through the nodes from the last to the first with the memory that later ones, or the
// outside, want to see.
class Liveness {
 public:
  explicit Liveness(Graph& graph) : graph_(graph), wanted_(graph.tree_nodes) {}

  void run() {
    want_what_is_seen();
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      Node& node = graph_.nodes[i];
      moment_ += 2;
      graph_.for_writes(node, [&](const Region& region, bool) { look(node, region); });
      if (!node.live) continue;
      graph_.for_writes(node, [&](const Region& region, bool whole) {
        if (whole) cover(region);
      });
      if (node.call >= 0 && graph_.has_output(node)) {  // what it adds to is in memory
        const GraphCall& call = graph_.calls[static_cast<size_t>(node.call)];
        node.stored |= call.uses[static_cast<size_t>(call.result.operand)].reads();
      }
      graph_.for_reads(node, [&](const Region& region, int k) {
        const int from = node.call < 0 ? node.in[k].node : -1;
        if (from >= 0) {
          graph_.nodes[static_cast<size_t>(from)].live = true;
        } else {
          wanted_.set(region.cells, moment_ + 1);  // before the node itself writes
        }
      });
    }
    graph_.visits += wanted_.visits() + static_cast<int64_t>(graph_.nodes.size());
  }

 private:
  void want_what_is_seen() {
    std::vector<bool> done(graph_.tree_nodes, false);  // by the first node of a tree
    for (const Node& node : graph_.nodes) {
      graph_.for_writes(node, [&](const Region& region, bool) {
        if (region.cells.empty() || (graph_.states[region.slot] & kSlotLive) == 0) return;
        for_trees(region.cells, [&](Cells all) {
          if (done[all.tree]) return;
          done[all.tree] = true;
          all.begin = 0, all.end = all.count;
          wanted_.set(all, moment_);
        });
      });
    }
  }

  void look(Node& node, const Region& region) {
    int since = 0;
    if (!region.map.is_flat()) {
      const auto covered = covered_.find(Places(region));
      if (covered != covered_.end()) since = covered->second;
    }
    if (wanted_.most(region.cells) <= since) return;
    node.live = true;
    node.stored |= graph_.has_output(node) && region.cells == node.out.cells;
  }

  // No later node sees what is there before this one.
  void cover(const Region& region) {
    if (region.map.is_flat()) {
      wanted_.set(region.cells, 0);
    } else {
      covered_.insert_or_assign(Places(region), moment_);
    }
  }

  Graph& graph_;
  Latest wanted_;  // at which moment; the later, the earlier in the circuit
  // When memory with gaps was last written as a whole.
  std::unordered_map<Places, int, Places::Hash> covered_;
  int moment_ = 1;
};

}  // namespace

size_t Places::Hash::operator()(const Places& places) const {
  uint64_t words[3 + 2 * (kTapeDims + 1)] = {places.slot,
                                             static_cast<uint64_t>(places.offset.value()),
                                             static_cast<uint64_t>(places.size)};
  size_t count = 3;
  for (int i = 0; i < places.map.count; ++i) {
    const Map::Part& part = places.map.parts[static_cast<size_t>(i)];
    words[count++] = static_cast<uint64_t>(part.size.value());
    words[count++] = static_cast<uint64_t>(part.stride.value());
  }
  return hash_words({words, count});
}

Graph make_graph(std::span<const uint64_t> words, std::span<const uint8_t> states,
                 const PlanOptions& options) {
  Graph graph;
  graph.states.assign(states.begin(), states.end());
  // A record is five words or more, but for a call without operands.
  graph.nodes.reserve(words.size() / 5 + 1);
  Builder builder(graph, options.limits);
  Tape::decode(words, [&](const Record& record, int) {
    record.code == kCodeCall ? builder.add_call(record) : builder.add(record);
  });
  graph.records = static_cast<int>(graph.nodes.size());
  if (options.fuse) {
    trim_copies(graph, options.limits.least_trimmed_copy);
    if (options.limits.least_in_parts != INT64_MAX) {
      compute_parts(graph, options.limits.least_in_parts);
    }
  }
  builder.link();
  return graph;
}

Size bytes_alone(const Graph& graph, const Node& node) {
  if (node.call >= 0) {
    Size bytes = 0;
    for (const CallUse& use : graph.calls[static_cast<size_t>(node.call)].uses) {
      if (!use.slot.present) continue;
      bytes += use.recorded * (int{use.slot.reads} + int{use.slot.writes});
    }
    return bytes;
  }
  Size bytes = node.out_n * node.out.size();
  for (int k = 0; k < node.arity; ++k) {
    if (!node.in[k].is_number) bytes += node.in[k].region.map.distinct() * node.in[k].region.size();
  }
  return bytes;
}

void narrow_operands(Graph& graph) {
  const auto kind_of = [](const CallNarrowing& narrowing, Dtype from) {
    switch (from) {
      case Dtype::kInt8:
        return narrowing.of_int8;
      case Dtype::kFloat16:
        return narrowing.of_float16;
      case Dtype::kBFloat16:
        return narrowing.of_bfloat16;
      default:
        return -1;
    }
  };
  for (Node& node : graph.nodes) {
    if (node.call < 0) continue;
    GraphCall& call = graph.calls[static_cast<size_t>(node.call)];
    if (call.writer < 0) continue;
    const Node& writer = graph.nodes[static_cast<size_t>(call.writer)];
    CallUse& use = call.uses[static_cast<size_t>(call.narrowing.operand)];
    if (writer.code != kCodeConvert || writer.in[0].is_number || writer.in[0].rank != Rank::kFull ||
        writer.out.dtype != call.narrowing.dtype) {
      continue;
    }
    const Region &from = writer.in[0].region, &to = writer.out;
    const int kind = kind_of(call.narrowing, from.dtype);
    // All of what the call reads, and of memory that stays as it is.
    if (kind < 0 || !from.map.is_flat() || !to.map.is_flat() || to.begin() != use.region.begin() ||
        to.end() != use.region.end() || to.slot != use.region.slot || !graph.never_written(from)) {
      continue;
    }
    const Size bytes = writer.n * from.size();
    use.region = {from.slot, from.offset, Dtype::kUInt8, Map::flat(bytes), from.cells};
    use.slot.slot = from.slot;
    use.slot.offset = from.offset.value();
    use.slot.bytes = bytes.value();
    node.attr = static_cast<uint16_t>(kind);
    call.is_narrowed = true;
  }
}

void find_live(Graph& graph) { Liveness(graph).run(); }

}  // namespace hologram::circuit
