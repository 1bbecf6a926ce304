// SPDX-License-Identifier: MIT
// Leaves out of copies what is written again before anyone reads it: after `r = u.clone();
// r[1:-1, 1:-1] = ...` only the border of r is copied.
#include <vector>

#include "src/circuit/graph.h"

namespace hologram::circuit {
namespace {

// A run of the innermost dimension is at least that long, or what lies between the runs costs as
// much as the copy.
constexpr int64_t kLeastRun = 16;

// Of a dense array of n elements, what lies outside of a part of it: maps, and the elements where
// they begin. Empty where the part is no rectangle of runs within the array.
struct Piece {
  Size begin;
  Map map;
};
std::vector<Piece> outside_of(Size first, const Map& part, Size n) {
  if (part.count > 0 && (part.parts[0].stride != 1 || part.parts[0].size < kLeastRun)) return {};
  std::vector<Piece> pieces;
  Size span = 1;  // of the dimensions so far, from the first element to behind the last
  for (int d = 0; d < part.count; ++d) {
    const Map::Part& dim = part.parts[static_cast<size_t>(d)];
    if (d > 0) {
      if (dim.stride <= span) return {};
      Piece between{first + span, Map::flat(dim.stride - span)};
      between.map.push(dim.size - 1, dim.stride);
      for (int outer = d + 1; outer < part.count; ++outer) {
        const Map::Part& more = part.parts[static_cast<size_t>(outer)];
        between.map.push(more.size, more.stride);
      }
      pieces.push_back(between);
    }
    span += (dim.size - 1) * dim.stride;
  }
  if (first < 0 || n < first + span) return {};
  if (first > 0) pieces.push_back({0, Map::flat(first)});
  if (first + span < n) pieces.push_back({first + span, Map::flat(n - first - span)});
  return pieces;
}

class Trimmer {
 public:
  Trimmer(Graph& graph, Size least_bytes)
      : graph_(graph), least_bytes_(least_bytes), slots_(graph.states.size()) {}

  void run() {
    look_at_slots();
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) visit(i);
    if (!trimmed_.empty()) replace();
  }

 private:
  static constexpr int kNone = -1;

  struct Slot {
    bool in_memory = false;    // some node reads it with gaps, and so from memory
    int last_write = kNone;    // of all nodes
    int newest_write = kNone;  // of the nodes so far
    int copy = kNone;          // the one that made all of it, which no one has read yet
  };
  // Node `copy`, of which node `again` writes all but the pieces.
  struct Trimmed {
    int copy;
    int again;
    std::vector<Piece> left;
  };

  Node& node_at(int i) { return graph_.nodes[static_cast<size_t>(i)]; }

  void look_at_slots() {
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
      graph_.for_writes(node_at(i),
                        [&](const Region& region, bool) { slots_[region.slot].last_write = i; });
      graph_.for_reads(node_at(i), [&](const Region& region, int) {
        if (!region.map.is_flat()) slots_[region.slot].in_memory = true;
      });
    }
  }

  void visit(int i) {
    Node& node = node_at(i);
    for (int k = 0; k < node.arity; ++k) {
      if (node.in[k].is_number) continue;
      Region& region = node.in[k].region;
      if (!read_source(region)) slots_[region.slot].copy = kNone;
    }
    if (node.call >= 0) {
      for (const CallUse& use : graph_.calls[static_cast<size_t>(node.call)].uses) {
        if (use.slot.present) slots_[use.slot.slot].copy = kNone;
      }
    } else {
      Slot& to = slots_[node.out.slot];
      if (to.copy != kNone) trim(to.copy, i);
      to.copy = is_copy(node) ? i : kNone;
    }
    graph_.for_writes(node,
                      [&](const Region& region, bool) { slots_[region.slot].newest_write = i; });
  }

  // Whether a read of a part of a copy may be one of what was copied. Then it is that from now on.
  bool read_source(Region& region) {
    const int copy = slots_[region.slot].copy;
    if (copy == kNone) return true;
    const Node& node = node_at(copy);
    const Region& source = node.in[0].region;
    const bool whole = region.map.is_flat() && region.map.numel() == node.n;
    if (whole || region.dtype != node.out.dtype || region.begin() < node.out.begin() ||
        node.out.end() < region.end() || slots_[source.slot].last_write >= copy) {
      return false;
    }
    region.offset = region.offset - node.out.offset + source.offset;
    region.slot = source.slot;
    return true;
  }

  // Dense memory to dense memory as it is. What is copied is in memory in any case.
  bool is_copy(const Node& node) const {
    if (node.code != kCodeConvert || node.in[0].is_number || node.in[0].rank != Rank::kFull)
      return false;
    const Region &from = node.in[0].region, &to = node.out;
    if (from.dtype != to.dtype || from.slot == to.slot || !from.map.is_flat() ||
        !to.map.is_flat() || node.n * to.size() < least_bytes_) {
      return false;
    }
    const Slot& source = slots_[from.slot];
    return source.last_write == kNone || source.in_memory ||
           (graph_.states[from.slot] & kSlotLive) != 0;
  }

  void trim(int copy, int again) {
    const Node& node = node_at(copy);
    const Region& part = node_at(again).out;
    const int64_t size = node.out.size();
    const Size begin = part.offset - node.out.offset;
    if (part.size() != size || begin % size != 0 || part.map.count == 0 ||
        slots_[node.in[0].region.slot].newest_write > copy) {
      return;
    }
    std::vector<Piece> left = outside_of(begin / size, part.map, node.n);
    Size n = 0;
    for (const Piece& piece : left) n += piece.map.numel();
    if (left.empty() || node.n < n * 2) return;
    graph_.left_out += (node.n - n) * (2 * size);
    trimmed_.push_back({copy, again, std::move(left)});
  }

  // What is left of a copy comes after the node that writes the rest: before it, it would keep that
  // from kernels that began before the copy.
  void replace() {
    std::vector<Node> nodes;
    std::vector<bool> is_trimmed(graph_.nodes.size(), false);
    for (const Trimmed& trimmed : trimmed_) is_trimmed[static_cast<size_t>(trimmed.copy)] = true;
    auto next = trimmed_.begin();  // they are in the order of `again`
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
      if (!is_trimmed[static_cast<size_t>(i)]) nodes.push_back(node_at(i));
      if (next == trimmed_.end() || next->again != i) continue;
      for (const Piece& piece : next->left) nodes.push_back(part_of(node_at(next->copy), piece));
      ++next;
    }
    graph_.nodes = std::move(nodes);
  }

  static Node part_of(Node copy, const Piece& piece) {
    copy.n = copy.out_n = piece.map.numel();
    for (Region* region : {&copy.in[0].region, &copy.out}) {
      region->offset += piece.begin * region->size();
      region->map = piece.map;
    }
    return copy;
  }

  Graph& graph_;
  const Size least_bytes_;
  std::vector<Slot> slots_;
  std::vector<Trimmed> trimmed_;
};

}  // namespace

void trim_copies(Graph& graph, int64_t least_bytes) { Trimmer(graph, least_bytes).run(); }

}  // namespace hologram::circuit
