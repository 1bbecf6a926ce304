// SPDX-License-Identifier: MIT
// Cluster: nodes of a graph that share a kernel. fuse() makes them, in the order in which they run;
// make_plan() makes a kernel of each.
#pragma once

#include <vector>

#include "src/circuit/graph.h"
#include "src/circuit/iteration_domain.h"

namespace hologram::circuit {

// Nodes that run as one kernel, in the order of the circuit. At most one is a call, and then the
// others read its result, or nothing that the call has to do with.
struct Cluster {
  std::vector<int> nodes;
  std::vector<Rank> ranks;  // of the nodes' results
  Domain domain;
  bool whole_rows = false;
  bool native = true;  // see PlanLimits::native
  int call = -1;       // the node that is one
  Size cols = 0;       // of its result; 0: it has none
  Size group = 0;      // of its rows
  int level = 0;       // clusters of one level do not depend on each other

  // Planning only.
  int64_t widest = 1;         // bytes of the largest element of a full value
  int nearest_dependent = 0;  // lowest level of a cluster that has to come after this one
};

// Clusters in ascending levels. Marks as stored what a node reads of another cluster.
std::vector<Cluster> fuse(Graph& graph, const PlanOptions& options);

}  // namespace hologram::circuit
