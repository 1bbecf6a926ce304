// SPDX-License-Identifier: MIT
// From clusters of nodes to kernels of instructions.
#pragma once

#include "src/circuit/fusion.h"

namespace hologram::circuit {

Kernel make_kernel(const Graph& graph, const Cluster& cluster);

// The kernel as words in which slots, offsets and numbers are left out: equal for equal programs. A
// call is named by what its kind is called, so that the words mean the same in every process.
void append_program(const Kernel& kernel, std::vector<uint64_t>& words);

}  // namespace hologram::circuit
