// SPDX-License-Identifier: MIT
// fuse(): which nodes of a graph share a kernel.
#pragma once

#include <vector>

#include "src/circuit/cluster.h"

namespace hologram::circuit {

// Clusters in ascending levels, in the order in which they run. Marks as stored what a node reads
// of another cluster.
std::vector<Cluster> fuse(Graph& graph, const PlanOptions& options);

// What only a later cluster reads is computed there, if that reads no more memory for it. Later
// clusters read the copy of a value where only the copy is in memory.
void settle_late_values(Graph& graph, const PlanLimits& limits, std::vector<Cluster>& clusters);

}  // namespace hologram::circuit
