// SPDX-License-Identifier: MIT
// Operators of integers that no row of the op table computes, with NumPy's rules.
#pragma once

#include "hologram/functions.h"

namespace hologram::python {

// Operands broadcast and are promoted as NumPy does; bool counts as int8. TypeError for floats and
// complex numbers; see IntegerOp.
template <IntegerOp op>
Tensor numpy_arithmetic(const Tensor& x, const Tensor& y) {
  return integer_arithmetic(op, x, y, Rules::numpy);
}
// ValueError for a negative exponent.
inline constexpr auto& integer_power = numpy_arithmetic<IntegerOp::pow>;
inline constexpr auto& left_shift = numpy_arithmetic<IntegerOp::left_shift>;
inline constexpr auto& right_shift = numpy_arithmetic<IntegerOp::right_shift>;

}  // namespace hologram::python
