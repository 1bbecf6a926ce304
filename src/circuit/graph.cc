// SPDX-License-Identifier: MIT
// From records to SSA, see graph.h.
#include "src/circuit/graph.h"

#include <algorithm>

#include "src/circuit/call_kinds.h"

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

// The bytes that a call touches: a flat run of single bytes, which no other operand equals.
Region region_of(const CallSlot& operand) {
  return {operand.slot, operand.offset, Dtype::kUInt8, Map::flat(operand.bytes)};
}

// An input of a node, or the operand of a call.
struct Reader {
  int node;
  int input;
};

// The output of a node, or an operand of a call.
struct Writer {
  int node;
  int use;  // -1: the output, of a call its result
};

// What happened to a buffer so far, as far as later nodes can see.
struct SlotHistory {
  std::vector<Writer> writers;  // newest last
  std::vector<Reader> readers;
  std::vector<Writer> all_writers;
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
    write(node, {index, -1});
  }

  void add_call(const Record& record) {
    const int index = static_cast<int>(graph_.nodes.size());
    Node& node = graph_.nodes.emplace_back();
    node.code = record.code;
    node.attr = record.attr;
    node.call = static_cast<int>(graph_.calls.size());
    Call& call = graph_.calls.emplace_back();
    call.attributes = record.call.attributes;
    call.first_number = record.call.first_number;
    for (size_t k = 0; k < record.call.operands(); ++k) {
      const CallSlot operand = record.call.operand(k);
      call.uses.push_back({operand, region_of(operand)});
    }
    // It reads what was there before any of its own writes.
    for (size_t k = 0; k < call.uses.size(); ++k) {
      const CallUse& use = call.uses[k];
      if (!use.slot.present || !use.slot.reads) continue;
      SlotHistory& slot = history(use.slot.slot);
      for (const Writer& before : slot.writers) {
        if (!written(before).overlaps(use.region)) continue;
        if (call.after.empty() || call.after.back() != before.node) {
          call.after.push_back(before.node);
          node.order.push_back({before.node, false});
        }
      }
      slot.readers.push_back({index, static_cast<int>(k)});
    }
    for (size_t k = 0; k < call.uses.size(); ++k) {
      const CallSlot& slot = call.uses[k].slot;
      if (!slot.present || !slot.writes) continue;
      const bool is_result = k == 0 && find_result(node, call);
      write(node, {index, is_result ? -1 : static_cast<int>(k)});
    }
  }

 private:
  SlotHistory& history(uint32_t slot) { return slots_[slot]; }
  Node& node_of(int index) { return graph_.nodes[static_cast<size_t>(index)]; }
  // Whether the first operand is a result that nodes may read element by element.
  static bool find_result(Node& node, Call& call) {
    const CallKind& kind = call_kind(node.attr);
    const CallSlot& slot = call.uses[0].slot;
    CallResult result;
    if (kind.result == nullptr || !slot.covers || !kind.result(call.attributes.data(), result) ||
        result.rows < 2 || result.cols < 2 ||
        slot.bytes != result.rows * result.cols * static_cast<int64_t>(itemsize(result.dtype))) {
      return false;
    }
    // Who reads the result may write in its place while the call still reads other operands.
    for (size_t k = 1; k < call.uses.size(); ++k) {
      const CallUse& use = call.uses[k];
      if (use.slot.present && use.region.overlaps(call.uses[0].region)) return false;
    }
    call.result_cols = result.cols;
    node.n = node.out_n = result.rows * result.cols;
    node.compute = result.dtype;
    node.out = {slot.slot, slot.offset, result.dtype, Map::flat(node.n)};
    return true;
  }
  CallUse& use_of(const Node& node, int use) {
    return graph_.calls[static_cast<size_t>(node.call)].uses[static_cast<size_t>(use)];
  }
  const Region& written(const Writer& writer) {
    const Node& node = node_of(writer.node);
    return writer.use < 0 ? node.out : use_of(node, writer.use).region;
  }

  // The node whose result the input reads, or all those it reads parts of.
  void find_writer(Node& node, Input& input) {
    const std::vector<Writer>& writers = history(input.region.slot).writers;
    for (size_t i = writers.size(); i-- > 0;) {
      if (!written(writers[i]).overlaps(input.region)) continue;
      const int from = writers[i].node;
      if (input.after.empty() && writers[i].use < 0 && reads_whole(node, input, node_of(from))) {
        input.node = from;
        return;
      }
      input.after.push_back(from);
      node.order.push_back({from, false});
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

  // The node writes its output, or the operand of the call that it is.
  void write(Node& node, const Writer& now) {
    const Region& out = written(now);
    const bool covers = now.use < 0 || use_of(node, now.use).slot.covers;
    const auto in_step = [&](const Region& region, int64_t n) {
      return node.call < 0 && n == node.out_n && region.same_places(out);
    };
    SlotHistory& slot = history(out.slot);
    for (const Writer& before : slot.all_writers) {
      if (written(before).overlaps(out)) node_of(before.node).clobbered = true;
    }
    std::erase_if(slot.writers, [&](const Writer& before) {
      const Region& region = written(before);
      if (before.node == now.node || !region.overlaps(out)) return false;
      Node& writer = node_of(before.node);
      node.order.push_back({before.node, before.use < 0 && in_step(region, writer.out_n)});
      if (!covers || !out.covers(region)) return false;
      (before.use < 0 ? writer.overwritten : use_of(writer, before.use).overwritten) = true;
      return true;
    });
    std::erase_if(slot.readers, [&](const Reader& reader) {
      const Node& other = node_of(reader.node);
      const Region& region =
          other.call < 0 ? other.in[reader.input].region : use_of(other, reader.input).region;
      if (!region.overlaps(out)) return false;
      const bool walks = other.call < 0 && other.in[reader.input].rank == Rank::kFull;
      if (reader.node != now.node) {
        node.order.push_back({reader.node, walks && in_step(region, other.n)});
      }
      return out.covers(region);
    });
    slot.writers.push_back(now);
    slot.all_writers.push_back(now);
  }

  Graph& graph_;
  std::vector<SlotHistory> slots_;
};

}  // namespace

Graph build_graph(std::span<const uint64_t> words, std::span<const uint8_t> states) {
  Graph graph;
  graph.states.assign(states.begin(), states.end());
  Builder builder(graph, states.size());
  Tape::decode(words, [&](const Record& record, int) {
    record.code == kCodeCall ? builder.add_call(record) : builder.add(record);
  });
  return graph;
}

bool Graph::never_written(const Region& region) const {
  return std::none_of(nodes.begin(), nodes.end(), [&](const Node& node) {
    if (node.call < 0) return node.out.overlaps(region);
    const std::vector<CallUse>& uses = calls[static_cast<size_t>(node.call)].uses;
    return std::any_of(uses.begin(), uses.end(), [&](const CallUse& use) {
      return use.slot.present && use.slot.writes && use.region.overlaps(region);
    });
  });
}

void find_live(Graph& graph) {
  const auto is_seen = [&](uint32_t slot) { return (graph.states[slot] & kSlotLive) != 0; };
  for (Node& node : graph.nodes) {
    const Call* call = node.call < 0 ? nullptr : &graph.calls[static_cast<size_t>(node.call)];
    const bool has_output = call == nullptr || call->result_cols != 0;
    node.stored = has_output && !node.overwritten && is_seen(node.out.slot);
    node.live = node.stored;
    for (size_t k = has_output ? 1 : 0; call != nullptr && k < call->uses.size(); ++k) {
      const CallUse& use = call->uses[k];
      const CallSlot& slot = use.slot;
      if (slot.present && slot.writes && !use.overwritten && is_seen(slot.slot)) node.live = true;
    }
  }
  const auto needs = [&](const std::vector<int>& after) {
    for (const int before : after) {
      Node& writer = graph.nodes[static_cast<size_t>(before)];
      writer.live = writer.stored = true;
    }
  };
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    Node& node = graph.nodes[i];
    if (!node.live) continue;
    if (node.call >= 0) {
      const Call& call = graph.calls[static_cast<size_t>(node.call)];
      needs(call.after);
      node.stored |= call.uses[0].slot.reads;  // what it adds to is in memory
    }
    for (int k = 0; k < node.arity; ++k) {
      const Input& input = node.in[k];
      if (input.is_number) continue;
      if (input.node >= 0) graph.nodes[static_cast<size_t>(input.node)].live = true;
      needs(input.after);
    }
  }
}

}  // namespace hologram::circuit
