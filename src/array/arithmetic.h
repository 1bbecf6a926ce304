// SPDX-License-Identifier: MIT
// What the op table has no rows for: powers of integers and the arithmetic of complex numbers.
#pragma once

#include <span>

#include "hologram/functions.h"

namespace hologram::array {

// out, of an integer dtype, = operands[0] to the operands[1], wrapping. By NumPy's rules a negative
// exponent is refused (its value has to be looked at), by PyTorch's it gives 0, 1 or -1.
void integer_power(std::span<const Operand> operands, Dtype compute, const Tensor& out,
                   Rules rules);

// Computed in complex128, rounded once. kTypeMismatch for rows that order or split numbers.
void complex_elementwise(OpId op, std::span<const Operand> operands, Dtype compute,
                         const Tensor& out);

}  // namespace hologram::array
