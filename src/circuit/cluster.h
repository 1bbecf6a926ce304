// SPDX-License-Identifier: MIT
// Cluster: nodes of a graph that share a kernel, and whether the loops of several agree. fuse()
// makes them (see fusion.h); make_plan() makes a kernel of each.
#pragma once

#include <vector>

#include "src/circuit/graph.h"
#include "src/circuit/iteration_domain.h"

namespace hologram::circuit {

// Nodes that run as one kernel, in the order of the circuit. At most one is a call, and then the
// others read its result, or nothing that the call has to do with.
struct Cluster {
  std::vector<int> nodes;
  std::vector<Rank> ranks;  // of the nodes' results; planning sets them last
  Domain domain;
  bool whole_rows = false;
  bool native = true;  // see PlanLimits::native
  int call = -1;       // the node that is one
  Size cols = 0;       // of its result; 0: it has none
  Size group = 0;      // of its rows
  int level = 0;       // clusters of one level do not depend on each other

  // Planning only.
  int size = 0;                 // how many nodes
  bool has_row_values = false;  // whether a node's rank is kRow
  int64_t widest = 1;           // bytes of the largest element of a full value
  int nearest_dependent = 0;    // lowest level of a cluster that has to come after this one
  std::vector<int> exposed;     // nodes whose result a later one writes over, or reads in part
};

// A cluster of one node.
Cluster single_cluster(const Graph& graph, int index, const PlanLimits& limits);
// Of such a node's result.
inline Rank own_rank(const Node& node) {
  return node.code == kCodeReduction ? Rank::kRow : Rank::kFull;
}

// Both in one, all but the nodes; false where their loops do not agree, or the device has no such
// kernel. The one with rows, or the larger one, sets the loops.
bool join_loops(const Graph& graph, const PlanLimits& limits, const Cluster& to, const Cluster& c,
                Cluster& sum);
// Cuts the loops for nodes of a part whose elements are rows of the sum; false where they do not
// agree.
bool add_rows(const Graph& graph, const Cluster& part, Cluster& sum);
// By node: which of the clusters it is in, or -1.
std::vector<int> clusters_by_node(const Graph& graph, const std::vector<Cluster>& clusters);
// Whether the loops are those of its call's result, if it has a call.
bool fits_call(const Graph& graph, const Cluster& c);

}  // namespace hologram::circuit
