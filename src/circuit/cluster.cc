// SPDX-License-Identifier: MIT
// See cluster.h.
#include "src/circuit/cluster.h"

#include <algorithm>
#include <climits>

namespace hologram::circuit {
namespace {

// The bytes of the wider of what a node computes with and leaves.
int64_t width(const Node& node) {
  int64_t widest = std::max<int64_t>(node.out.size(), static_cast<int64_t>(itemsize(node.compute)));
  for (int k = 0; k < node.arity; ++k) {
    if (!node.in[k].is_number) widest = std::max(widest, node.in[k].region.size());
  }
  return widest;
}

// Whether the device runs it itself, if it is elementwise.
bool is_native(const Node& node, const PlanLimits& limits) {
  if (limits.native == nullptr || node.call >= 0) return true;
  const NativeOps& native = *limits.native;
  if (node.is_op() && !native.has(node.op(), node.compute)) return false;
  if (node.code == kCodeReduction && (native.folds >> node.attr & 1) == 0) return false;
  if (node.code == kCodeRow && !native.row_functions) return false;
  if (!native.has(node.compute) || !native.has(node.out.dtype)) return false;
  return std::all_of(node.in, node.in + node.arity,
                     [&](const Input& in) { return in.is_number || native.has(in.region.dtype); });
}

// Cuts the loops so that every operand of the node steps evenly. rank: of a node whose elements
// are rows of the cluster.
bool add_maps(Cluster& c, const Node& n, Rank rank) {
  const bool rows = rank == Rank::kRow && n.code != kCodeReduction;
  for (int k = 0; k < n.arity; ++k) {
    const Input& in = n.in[k];
    if (in.is_number || in.rank == Rank::kOne) continue;
    if (!(rows ? c.domain.add_rows(in.region.map) : c.domain.add(in.region.map))) return false;
  }
  return rank == Rank::kRow ? c.domain.add_rows(n.out.map) : c.domain.add(n.out.map);
}

// Whether the cluster is one node of a kind that the device keeps to a kernel of its own.
bool stays_alone(const Graph& graph, const PlanLimits& limits, const Cluster& c) {
  if (c.size != 1) return false;
  const Node& only = graph.nodes[static_cast<size_t>(c.nodes[0])];
  if (only.code == kCodeReduction) return !limits.fuse_reductions;
  return only.code == kCodeRow && !limits.fuse_row_functions;
}

}  // namespace

Cluster single_cluster(const Graph& graph, int index, const PlanLimits& limits) {
  const Node& n = graph.nodes[static_cast<size_t>(index)];
  Cluster single;
  single.domain = Domain(n.n);
  single.nearest_dependent = INT_MAX;
  single.widest = width(n);
  single.native = is_native(n, limits);
  single.nodes.push_back(index);
  single.size = 1;
  single.has_row_values = own_rank(n) == Rank::kRow;
  if (n.call >= 0) {
    const GraphCall& call = graph.calls[static_cast<size_t>(n.call)];
    single.call = index;
    single.cols = call.cols;
    single.group = call.group;
    return single;
  }
  if (n.row > 0) {
    single.whole_rows = true;
    single.domain.set_row(n.row);
  }
  add_maps(single, n, own_rank(n));
  return single;
}

bool join_loops(const Graph& graph, const PlanLimits& limits, const Cluster& to, const Cluster& c,
                Cluster& sum) {
  ++graph.visits;
  if (to.size + c.size > limits.max_instrs) return false;
  if (to.call >= 0 && c.call >= 0) return false;
  if (to.native != c.native) return false;
  const bool is_row_work = to.whole_rows || c.whole_rows;
  if (is_row_work && (to.call >= 0 || c.call >= 0) && !limits.fuse_rows_of_calls) return false;
  if (stays_alone(graph, limits, to) || stays_alone(graph, limits, c)) return false;
  sum.call = std::max(to.call, c.call);
  sum.cols = std::max(to.cols, c.cols);
  sum.group = std::max(to.group, c.group);
  sum.level = to.level;
  sum.nearest_dependent = to.nearest_dependent;
  sum.whole_rows = is_row_work;
  sum.native = to.native;
  sum.widest = std::max(to.widest, c.widest);
  sum.size = to.size + c.size;
  sum.has_row_values = to.has_row_values || c.has_row_values;
  const Size a = to.domain.numel(), b = c.domain.numel();
  const Size row = std::max(to.domain.row(), c.domain.row());
  if (a == b) {
    sum.domain = to.domain;
    if (!sum.domain.merge(c.domain)) return false;
  } else if (sum.whole_rows && row > 1) {
    // One side is made of rows, the other has an element for each of them.
    const Cluster& rows = a > b ? to : c;
    const Cluster& each = a > b ? c : to;
    if (!rows.whole_rows || each.whole_rows || rows.domain.row() != row ||
        rows.domain.numel() != each.domain.numel() * row || each.has_row_values) {
      return false;
    }
    sum.domain = rows.domain;
    sum.has_row_values = true;
  } else {
    return false;
  }
  return !sum.whole_rows ||
         sum.domain.row() <= limits.longest_row(sum.native) / std::max<int64_t>(4, sum.widest);
}

bool add_rows(const Graph& graph, const Cluster& part, Cluster& sum) {
  graph.visits += static_cast<int64_t>(part.nodes.size());
  return std::all_of(part.nodes.begin(), part.nodes.end(), [&](int member) {
    return add_maps(sum, graph.nodes[static_cast<size_t>(member)], Rank::kRow);
  });
}

bool fits_call(const Graph& graph, const Cluster& c) {
  return c.call < 0 || (c.domain.numel() == graph.nodes[static_cast<size_t>(c.call)].n &&
                        c.cols != 0 && c.domain.has_rows_of(c.cols, c.group));
}

std::vector<int> clusters_by_node(const Graph& graph, const std::vector<Cluster>& clusters) {
  std::vector<int> of(graph.nodes.size(), -1);
  for (size_t c = 0; c < clusters.size(); ++c) {
    for (const int member : clusters[c].nodes) {
      of[static_cast<size_t>(member)] = static_cast<int>(c);
    }
  }
  return of;
}

}  // namespace hologram::circuit
