// SPDX-License-Identifier: MIT
// From records to SSA, see graph.h.
#include "src/circuit/graph.h"

#include <algorithm>

namespace hologram::circuit {
namespace {

Region region_of(const Record& record, int k, int ndim) {
  const Operand& operand = record.operands[k];
  Region region{operand.slot, operand.offset, operand.dtype, {}};
  if (operand.kind == OperandKind::kMemory) {
    region.map = Map::from_dims(ndim, record.shape, record.strides[k]);
  }
  return region;
}

struct Reader {
  int node;
  int input;
};

// What happened to a buffer so far, as far as later nodes can see.
struct SlotHistory {
  std::vector<int> writers;  // newest last
  std::vector<Reader> readers;
  std::vector<int> all_writers;
};

class Builder {
 public:
  Builder(Graph& graph, size_t slots) : graph_(graph), slots_(slots) {}

  void add(const Record& record) {
    const int index = static_cast<int>(graph_.nodes.size());
    Node& node = graph_.nodes.emplace_back();
    node.code = record.code;
    node.attr = record.attr;
    node.compute = record.compute;
    node.parameter = record.parameter;
    node.arity = record.arity;
    node.n = record.numel();
    node.row = record.code >= kCodeFold ? record.shape[record.ndim - 1] : 0;
    const bool fold = record.code == kCodeFold;
    node.out_n = fold ? node.n / node.row : node.n;
    node.out = region_of(record, 0, fold ? record.ndim - 1 : record.ndim);
    for (int k = 0; k < node.arity; ++k) {
      const Operand& operand = record.operands[k + 1];
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
      find_writer(node, input);
      history(input.region.slot).readers.push_back({index, k});
    }
    write(node, index);
  }

 private:
  SlotHistory& history(uint32_t slot) { return slots_[slot]; }

  // The node whose result the input reads, or all those it reads parts of.
  void find_writer(Node& node, Input& input) {
    const std::vector<int>& writers = history(input.region.slot).writers;
    for (size_t i = writers.size(); i-- > 0;) {
      const Node& writer = graph_.nodes[static_cast<size_t>(writers[i])];
      if (!writer.out.overlaps(input.region)) continue;
      if (input.after.empty() && reads_whole(node, input, writer)) {
        input.node = writers[i];
        return;
      }
      input.after.push_back(writers[i]);
      node.order.push_back({writers[i], false});
    }
  }

  static bool reads_whole(const Node& node, Input& input, const Node& writer) {
    const Region& in = input.region;
    const Region& out = writer.out;
    if (in.dtype != out.dtype || in.offset != out.offset) return false;
    if (input.rank == Rank::kOne) {
      input.times = node.n;
      return writer.out_n == 1;
    }
    if (node.n == writer.out_n && in.map == out.map) return true;
    if (node.n % writer.out_n != 0) return false;
    const int64_t times = node.n / writer.out_n;
    if (!in.map.repeats(out.map, times)) return false;
    input.times = times;
    input.rank = writer.out_n == 1 ? Rank::kOne : Rank::kRow;
    return true;
  }

  void write(Node& node, int index) {
    SlotHistory& slot = history(node.out.slot);
    for (const int before : slot.all_writers) {
      Node& writer = graph_.nodes[static_cast<size_t>(before)];
      if (writer.out.overlaps(node.out)) writer.clobbered = true;
    }
    std::erase_if(slot.writers, [&](int before) {
      Node& writer = graph_.nodes[static_cast<size_t>(before)];
      if (!writer.out.overlaps(node.out)) return false;
      node.order.push_back(
          {before, writer.out.same_places(node.out) && writer.out_n == node.out_n});
      if (!node.out.covers(writer.out)) return false;
      writer.overwritten = true;
      return true;
    });
    std::erase_if(slot.readers, [&](const Reader& reader) {
      const Node& other = graph_.nodes[static_cast<size_t>(reader.node)];
      const Input& input = other.in[reader.input];
      if (!input.region.overlaps(node.out)) return false;
      if (reader.node != index) {
        node.order.push_back({reader.node, input.rank == Rank::kFull && other.n == node.out_n &&
                                               input.region.same_places(node.out)});
      }
      return node.out.covers(input.region);
    });
    slot.writers.push_back(index);
    slot.all_writers.push_back(index);
  }

  Graph& graph_;
  std::vector<SlotHistory> slots_;
};

}  // namespace

Graph build_graph(std::span<const uint64_t> words, std::span<const uint8_t> states) {
  Graph graph;
  graph.states.assign(states.begin(), states.end());
  Builder builder(graph, states.size());
  Tape::decode(words, [&](const Record& record, int) { builder.add(record); });
  return graph;
}

bool Graph::never_written(const Region& region) const {
  return std::none_of(nodes.begin(), nodes.end(),
                      [&](const Node& node) { return node.out.overlaps(region); });
}

void find_live(Graph& graph) {
  for (Node& node : graph.nodes) {
    node.stored = !node.overwritten && (graph.states[node.out.slot] & kSlotLive) != 0;
    node.live = node.stored;
  }
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (!node.live) continue;
    for (int k = 0; k < node.arity; ++k) {
      const Input& input = node.in[k];
      if (input.is_number) continue;
      if (input.node >= 0) graph.nodes[static_cast<size_t>(input.node)].live = true;
      for (const int before : input.after) {
        Node& writer = graph.nodes[static_cast<size_t>(before)];
        writer.live = writer.stored = true;
      }
    }
  }
}

}  // namespace hologram::circuit
