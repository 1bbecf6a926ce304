// SPDX-License-Identifier: MIT
// Elementwise kernels whose items compute blocks of elements, so that memory is read and written 16
// bytes at a time also where operands step in different ways.
#pragma once

#include <optional>

#include "src/gpu/kernel_text.h"

namespace hologram::gpu {

// A block has some elements of the last dimension, 16 bytes of the widest operand but four at
// least. Where operands lie along another dimension (a transposed one), it has four of that, too:
// those operands are read along their own. Of an operand that is the same along a dimension an item
// reads it once.
//
// Nothing where rows are short, where a value of all is stored, where an instruction reads what
// another stored by another way, or where a block would take more registers than there are.
std::optional<KernelText> block_text(const circuit::Kernel& kernel, const Traits& traits);

}  // namespace hologram::gpu
