// SPDX-License-Identifier: MIT
// Kernels with reductions, functions of rows, and values of rows beside elementwise instructions.
//
// A row has some partial results, whose number follows from its length alone (lanes_of()). With n
// of them, each takes every n-th element, and they are merged in a fixed order. So the bits of a
// reduction depend on its row, not on what is fused with it, nor on where its elements lie.
//
// A group of work items computes some rows. How it is laid out over them does not change a bit
// (row_walks.h): an item has one partial result of its row; or, where the elements of a row lie
// apart and rows lie beside each other, some of them, so that a group has many such rows.
//
// A row is walked once for all reductions that need no other's result, then once more for those
// that need these, and last for what is stored. Where an item has few elements, what later walks
// begin with stays in its registers; the text then knows how many there are at most, as a power of
// two. Else each walk reads and computes what it needs anew. Nothing is stored before the last
// walk, so both are the same.
//
// A row of more than kLongRow elements is cut into pieces, whose number follows from its length
// alone, too. Each walk is a launch then, in which a group has a piece of its rows; what a piece
// gave lies in memory, from where every group of the next launch merges the pieces of its rows.
// Values of rows are stored by a last launch, when nothing reads elements any more.
#pragma once

#include <vector>

#include "src/gpu/kernel_text.h"

namespace hologram::gpu {

// How many partial results a row of that many elements has: 1, 8, 64 or 256.
int lanes_of(int64_t elements);

inline constexpr int64_t kLongRow = 8192;
// In how many pieces a row is cut; 1 up to kLongRow.
int64_t pieces_of(int64_t elements);

// What kernel_texts() gives for a kernel of whole rows that the device has.
std::vector<KernelText> rows_texts(const circuit::Kernel& kernel, const Traits& traits);

}  // namespace hologram::gpu
