// SPDX-License-Identifier: MIT
// What capturing a graph means for random numbers; graph.cc registers graphs with PyTorch.
#pragma once

#include "device/generator.h"

namespace hologram_torch {

// While a graph is captured: (seed, offset) that stand for what each replay draws from the
// generator. False at other times. The caller holds the generator's mutex_.
bool draws_in_graph(PhiloxGenerator& generator, uint64_t count,
                    PhiloxGenerator::Reserved& reserved);

}  // namespace hologram_torch
