// SPDX-License-Identifier: MIT
// Kernels with reductions, functions of rows, and values of rows beside elementwise instructions.
//
// The work items of a group share its rows: so many to a row as follow from the row's length alone
// (lanes_of()), each taking every so manieth element in turn, and what they have comes together in
// a fixed order. So the bits of a reduction depend on its row, not on what is fused with it.
//
// A row is walked once for all reductions that need no other's result, then once more for those
// that need these, and last for what is stored. Each walk reads and computes what it needs anew:
// nothing of a row's length is kept.
#pragma once

#include "src/gpu/kernel_text.h"

namespace hologram::gpu {

// Items that share a row of so many elements: 1, 8, 64 or 256.
int lanes_of(int64_t elements);

// What kernel_text() gives for a kernel of whole rows that the device has.
KernelText rows_text(const circuit::Kernel& kernel, const Traits& traits);

}  // namespace hologram::gpu
