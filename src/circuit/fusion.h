// SPDX-License-Identifier: MIT
// Which nodes share a kernel, and in which order the kernels run.
#pragma once

#include <vector>

#include "src/circuit/graph.h"

namespace hologram::circuit {

// Nodes that run as one kernel, in the order of the circuit. A call is alone.
struct Cluster {
  std::vector<int> nodes;
  std::vector<Rank> ranks;  // of the nodes' results
  Domain domain;
  bool whole_rows = false;
  int level = 0;  // clusters of one level do not depend on each other

  // Planning only.
  int64_t widest = 1;         // bytes of the largest element of a full value
  int nearest_dependent = 0;  // lowest level of a cluster that has to come after this one
};

// Clusters in ascending levels. Marks as stored what a node reads of another cluster.
std::vector<Cluster> fuse(Graph& graph, const PlanOptions& options);

}  // namespace hologram::circuit
