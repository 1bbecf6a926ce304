// SPDX-License-Identifier: MIT
// Runs plans on the CPU: the tile machine of fused kernels.
#pragma once

#include "src/circuit/plan.h"
#include "src/cpu/program/program.h"

namespace hologram::cpu {

// Runs every kernel of the plan in order, on up to max_threads threads (0: num_threads()). Slots
// the plan names in `attach` and `passing`, and those it loads, must be bound. The same bits for
// any number of threads, and those of the ops run one by one through elementwise(), convert(),
// reduce() and softmax().
void run_plan(circuit::Plan& plan, const circuit::Bindings& bindings, int max_threads = 0);

// Runs one step on a block of rows x cols, whose operands are where `at` says.
void run_step(const Program& program, const Step& step, char* const* at, int64_t rows,
              int64_t cols);

// Blocks [begin, end), one at least, of a program whose prologue has run, on this thread. Changes
// the addresses.
void run_blocks(const Program& program, int64_t begin, int64_t end, char** at);

}  // namespace hologram::cpu
