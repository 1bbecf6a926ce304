// SPDX-License-Identifier: MIT
// Runs plans on the CPU: the tile machine of fused kernels.
#pragma once

#include "src/circuit/plan.h"

namespace hologram::cpu {

// Runs every kernel of the plan in order, on up to max_threads threads (0: num_threads()). Slots
// the plan names in `attach`, and those it loads, must be bound. The same bits for any number of
// threads, and those of the ops run one by one through elementwise(), convert(), reduce() and
// softmax().
void run_plan(circuit::Plan& plan, const circuit::Bindings& bindings, int max_threads = 0);

}  // namespace hologram::cpu
