// SPDX-License-Identifier: MIT
// Operators of Python that no row of the op table computes: they run at their calls.
#pragma once

#include "hologram/tensor.h"

namespace hologram::python {

// Operands broadcast and are promoted as NumPy does; bool counts as int8. Each waits for its
// operands. TypeError for complex, and for floats where only integers have a meaning.

// Towards minus infinity; integers by 0 give 0, and floats what IEEE 754 says.
Tensor floor_divide(const Tensor& x, const Tensor& y);
// With the sign of y: x == floor_divide(x, y) * y + remainder(x, y).
Tensor remainder(const Tensor& x, const Tensor& y);
// Wraps. ValueError for a negative exponent.
Tensor integer_power(const Tensor& x, const Tensor& y);
// Shifts by the width and more give 0, and -1 for negative numbers to the right.
Tensor left_shift(const Tensor& x, const Tensor& y);
Tensor right_shift(const Tensor& x, const Tensor& y);

}  // namespace hologram::python
