// SPDX-License-Identifier: MIT
// What the kernels of rows do not compute: integer powers and division, complex arithmetic.
#pragma once

#include <span>

#include "hologram/functions.h"

namespace hologram::array {

// out = op(operands[0], operands[1]) in an integer dtype or bool, wrapping. By NumPy's rules pow
// refuses a negative exponent (its value has to be looked at), by PyTorch's it gives 0, 1 or -1.
void integer_elementwise(IntegerOp op, std::span<const Operand> operands, Dtype compute,
                         const Tensor& out, Rules rules);

// Rows of complex numbers that are the rows of their parts, which are recorded and fuse.
constexpr bool works_on_parts(OpId op) {
  return op == OpId::add || op == OpId::sub || op == OpId::neg;
}

// kTypeMismatch for rows that order or split numbers.
void complex_elementwise(OpId op, std::span<const Operand> operands, Dtype compute,
                         const Tensor& out);

}  // namespace hologram::array
