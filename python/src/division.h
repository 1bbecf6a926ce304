// SPDX-License-Identifier: MIT
// Operators of Python with NumPy's rules for integers, under their own names.
#pragma once

#include "hologram/functions.h"

namespace hologram::python {

// Operands broadcast and are promoted as NumPy does; bool counts as int8. TypeError for complex,
// and for floats where only integers have a meaning; see IntegerOp.
template <IntegerOp op>
Tensor numpy_arithmetic(const Tensor& x, const Tensor& y) {
  return integer_arithmetic(op, x, y, Rules::numpy);
}
inline constexpr auto& floor_divide = numpy_arithmetic<IntegerOp::floor_divide>;
inline constexpr auto& remainder = numpy_arithmetic<IntegerOp::remainder>;
// ValueError for a negative exponent.
inline constexpr auto& integer_power = numpy_arithmetic<IntegerOp::pow>;
inline constexpr auto& left_shift = numpy_arithmetic<IntegerOp::left_shift>;
inline constexpr auto& right_shift = numpy_arithmetic<IntegerOp::right_shift>;

}  // namespace hologram::python
