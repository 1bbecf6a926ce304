// SPDX-License-Identifier: MIT
// Kernels with reductions, functions of rows, and values of rows beside elementwise instructions.
//
// A group of work items computes some rows. How many items share a row follows from its length
// alone (lanes_of()). With n items, each takes every n-th element, and their partial results are
// merged in a fixed order. So the bits of a reduction depend on its row, not on what is fused with
// it.
//
// A row is walked once for all reductions that need no other's result, then once more for those
// that need these, and last for what is stored. Each walk reads and computes what it needs anew:
// nothing of a row's length is kept.
//
// A row of more than kLongRow elements is cut into pieces, whose number follows from its length
// alone, too. Each walk is a launch then, in which a group has a piece; what a piece gave lies in
// memory, from where every group of the next launch merges the pieces of its row. Values of rows
// are stored by a last launch, when nothing reads elements any more.
#pragma once

#include <vector>

#include "src/gpu/kernel_text.h"

namespace hologram::gpu {

// How many items share a row of that many elements: 1, 8, 64 or 256.
int lanes_of(int64_t elements);

inline constexpr int64_t kLongRow = 8192;
// In how many pieces a row is cut; 1 up to kLongRow.
int64_t pieces_of(int64_t elements);

// What kernel_texts() gives for a kernel of whole rows that the device has.
std::vector<KernelText> rows_texts(const circuit::Kernel& kernel, const Traits& traits);

}  // namespace hologram::gpu
