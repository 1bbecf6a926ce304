// SPDX-License-Identifier: MIT
// fuse(): which nodes of a graph share a kernel.
#pragma once

#include <vector>

#include "src/circuit/cluster.h"

namespace hologram::circuit {

// Clusters in ascending levels, in the order in which they run. Marks as stored what a node reads
// of another cluster.
std::vector<Cluster> fuse(Graph& graph, const PlanOptions& options);

}  // namespace hologram::circuit
