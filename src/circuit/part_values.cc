// SPDX-License-Identifier: MIT
// Computes values of which only parts are read where these are read: after `f = a * b`, the
// difference `f[1:] - f[:-1]` is that of two products, and f is never in memory.
//
// A stencil reads its operand in several places at once, so that what computes the operand cannot
// be in its kernel. For a few cheap ops it costs less to compute them in each of the places.
#include <algorithm>
#include <vector>

#include "hologram/op.h"
#include "src/circuit/graph.h"

namespace hologram::circuit {
namespace {

// A value is computed in at most this many places, by at most this many ops in all of them
// together. So many ops in registers take about as long as storing one result and loading it again.
constexpr size_t kMostPlaces = 8;
constexpr int kMostOps = 24;
// A division or a square root counts as this many ops.
constexpr int kOpsOfDivision = 6;
// How often the nodes are looked at, at most, until no more of them drop out.
constexpr int kMostRounds = 8;

class PartValues {
 public:
  PartValues(Graph& graph, Size least_bytes) : graph_(graph), least_bytes_(least_bytes) {}

  void run() {
    if (!has_large_values()) return;
    look_at_slots();
    bool any = false;
    for (int i = 0; i < count(); ++i) {
      value(i).is_chosen = is_candidate(i);
      any = any || value(i).is_chosen;
    }
    if (any && settle()) replace();
  }

 private:
  static constexpr int kNone = -1;

  struct Use {
    int node, k;
  };
  struct Slot {
    int writes = 0;          // by how many nodes
    int last_write = kNone;  // of these
    bool in_calls = false;
    std::vector<Use> uses;  // its reads by nodes that are no calls
  };
  // A part of a value: its elements from `first` on, at the steps of `map`.
  struct Place {
    Size first;
    Map map;
    uint32_t slot = 0;  // of what computes it
  };
  struct Value {
    bool is_chosen = false;
    int ops = 1;  // that compute it, from what is in memory
    std::vector<Place> places;
  };

  int count() const { return static_cast<int>(values_.size()); }
  Node& node(int i) { return graph_.nodes[static_cast<size_t>(i)]; }
  Value& value(int i) { return values_[static_cast<size_t>(i)]; }
  bool is_seen(uint32_t slot) const { return (graph_.states[slot] & kSlotLive) != 0; }
  static bool is_elementwise(const Node& n) {
    return n.is_op() ? !op_info(n.op()).is_heavy() : n.code == kCodeConvert;
  }

  // Bytes of an element, of flags those of what is compared.
  static int64_t size_of(const Node& n) {
    return std::max(n.out.size(), static_cast<int64_t>(itemsize(n.compute)));
  }
  static int ops_of(const Node& n) {
    const auto code = static_cast<OpId>(n.code);
    const bool divides = code == OpId::div || code == OpId::reciprocal || code == OpId::addcdiv ||
                         code == OpId::sqrt;
    return n.is_op() && divides ? kOpsOfDivision : 1;
  }

  // Most circuits have none: they cost no more than this.
  bool has_large_values() {
    return std::any_of(graph_.nodes.begin(), graph_.nodes.end(),
                       [&](const Node& n) { return n.call < 0 && is_large(n); });
  }
  bool is_large(const Node& n) const { return n.n * size_of(n) >= least_bytes_; }

  void look_at_slots() {
    slots_.resize(graph_.states.size());
    values_.resize(graph_.nodes.size());
    for (int i = 0; i < count(); ++i) {
      graph_.for_writes(node(i), [&](const Region& region, bool) {
        ++slots_[region.slot].writes;
        slots_[region.slot].last_write = i;
      });
      graph_.for_reads(node(i), [&](const Region& region, int k) {
        if (node(i).call < 0) slots_[region.slot].uses.push_back({i, k});
      });
      if (node(i).call < 0) continue;
      for (const CallUse& use : graph_.calls[static_cast<size_t>(node(i).call)].uses) {
        if (use.slot.present) slots_[use.slot.slot].in_calls = true;
      }
    }
  }

  // The node that computes what a slot holds all the time in which it is read; kNone: none, or it
  // is not one that may be left out.
  int chosen_writer(uint32_t slot) {
    const Slot& s = slots_[slot];
    return s.writes == 1 && value(s.last_write).is_chosen ? s.last_write : kNone;
  }

  // Whether node i is a cheap op on dense operands, single elements and numbers, and its result is
  // dense and not seen outside of the circuit.
  bool is_candidate(int i) {
    const Node& n = node(i);
    const Slot& to = slots_[n.out.slot];
    if (n.call >= 0 || !is_elementwise(n) || to.writes != 1 || to.in_calls || to.uses.empty() ||
        is_seen(n.out.slot) || !n.out.map.is_flat() || !is_large(n)) {
      return false;
    }
    int ops = ops_of(n);
    for (int k = 0; k < n.arity; ++k) {
      const Input& in = n.in[k];
      if (in.is_number || is_one(in, i)) continue;
      if (in.rank != Rank::kFull || !in.region.map.is_flat() || in.region.map.numel() != n.n) {
        return false;
      }
      const int from = chosen_writer(in.region.slot);
      if (from != kNone ? !is_part(in.region, from) : !is_kept(in.region.slot, i)) return false;
      if (from != kNone) ops += value(from).ops;
    }
    value(i).ops = ops;
    return ops <= kMostOps;
  }

  // Whether memory is in place when node i comes, and stays so.
  bool is_kept(uint32_t slot, int i) const {
    const Slot& s = slots_[slot];
    return s.last_write < i && (s.writes != 1 || is_seen(slot));
  }

  // One element for all of node i's, in memory.
  bool is_one(const Input& in, int i) const {
    return in.rank == Rank::kOne && is_kept(in.region.slot, i);
  }

  // Elements of node i's result.
  bool is_part(const Region& region, int i) {
    const Region& out = node(i).out;
    return region.dtype == out.dtype && out.begin() <= region.begin() &&
           region.end() <= out.end() && (region.offset - out.offset) % out.size() == 0;
  }

  // Drops the values that have to be in memory, and those computed of them, until all that are
  // chosen may be left out. False where none is left.
  bool settle() {
    for (int round = 0; round < kMostRounds; ++round) {
      bool changed = false, any = false;
      for (Value& v : values_) v.places.clear();
      for (int i = count(); i-- > 0;) {
        if (!value(i).is_chosen) continue;
        value(i).is_chosen = may_be_left_out(i);
        (value(i).is_chosen ? any : changed) = true;
      }
      graph_.visits += count();
      if (!changed) return any;
    }
    return false;
  }

  bool may_be_left_out(int i) {
    const Node& n = node(i);
    size_t parts = 0;
    for (const Use& use : slots_[n.out.slot].uses) {
      const Node& reader = node(use.node);
      const Input& in = reader.in[use.k];
      if (use.node <= i || !is_part(in.region, i)) return false;
      if (value(use.node).is_chosen) continue;
      const bool is_whole = in.region.map == n.out.map;
      if (is_whole || in.rank != Rank::kFull || !(reader.is_op() || reader.code == kCodeConvert)) {
        return false;
      }
      const size_t before = value(i).places.size();
      find_place(i, (in.region.offset - n.out.offset) / n.out.size(), in.region.map);
      // What is left of a copy, such as a border, is little.
      if (value(i).places.size() > before && !(in.region.map.numel() * 8 < n.n)) ++parts;
    }
    const int ops = value(i).ops * static_cast<int>(parts);
    if (ops > kMostOps || value(i).places.size() > kMostPlaces) return false;
    // The same places of what it is computed from.
    for (int k = 0; k < n.arity; ++k) {
      if (n.in[k].is_number || is_one(n.in[k], i)) continue;
      const Region& region = n.in[k].region;
      const int from = chosen_writer(region.slot);
      if (from == kNone) {
        if (!is_kept(region.slot, i)) return false;
        continue;
      }
      const Size shift = (region.offset - node(from).out.offset) / region.size();
      for (const Place& place : value(i).places) find_place(from, place.first + shift, place.map);
    }
    return true;
  }

  // The place of value i, which is added if it is new. Once there are too many, the last one.
  Place& find_place(int i, Size first, const Map& map) {
    std::vector<Place>& places = value(i).places;
    for (Place& place : places) {
      if (place.first == first && place.map == map) return place;
    }
    return places.size() > kMostPlaces ? places.back() : places.emplace_back(Place{first, map});
  }

  // Leaves out the chosen nodes. Before each reader of a place comes what computes that place,
  // unless an earlier reader has it already.
  void replace() {
    std::vector<Node> nodes;
    nodes.reserve(graph_.nodes.size());
    for (int i = 0; i < count(); ++i) {
      if (value(i).is_chosen) {
        graph_.left_out += bytes_alone(graph_, node(i));
        continue;
      }
      Node reader = node(i);
      for (int k = 0; k < reader.arity; ++k) {
        if (reader.in[k].is_number) continue;
        Region& region = reader.in[k].region;
        const int from = chosen_writer(region.slot);
        if (from == kNone) continue;
        const Size first = (region.offset - node(from).out.offset) / region.size();
        region = computed(from, first, Map(region.map), nodes);
      }
      nodes.push_back(reader);
    }
    graph_.nodes = std::move(nodes);
  }

  // The value that holds these elements of node i's result. Its nodes are added if they are not
  // there yet.
  Region computed(int i, Size first, const Map& map, std::vector<Node>& nodes) {
    Place& place = find_place(i, first, map);
    Region out{place.slot, 0, node(i).out.dtype, Map::flat(map.numel()), {}};
    if (place.slot != 0) return out;
    out.slot = place.slot = graph_.add_value();
    Node part = node(i);
    part.n = part.out_n = map.numel();
    part.out = out;
    for (int k = 0; k < part.arity; ++k) {
      Input& in = part.in[k];
      if (in.rank == Rank::kOne) in.times = part.n;
      if (in.is_number || in.rank == Rank::kOne) continue;
      Region& region = in.region;
      const int from = chosen_writer(region.slot);
      if (from == kNone) {
        region.offset += first * region.size();
        region.map = map;
      } else {
        const Size shift = (region.offset - node(from).out.offset) / region.size();
        region = computed(from, first + shift, map, nodes);
      }
    }
    nodes.push_back(part);
    return out;
  }

  Graph& graph_;
  const Size least_bytes_;
  std::vector<Slot> slots_;
  std::vector<Value> values_;
};

}  // namespace

void compute_parts(Graph& graph, int64_t least_bytes) { PartValues(graph, least_bytes).run(); }

}  // namespace hologram::circuit
