// SPDX-License-Identifier: MIT
// The dtypes that operands agree on.
#pragma once

#include <span>
#include <string_view>

#include "hologram/functions.h"

namespace hologram::array {

Dtype promote_by(Rules rules, Dtype a, Dtype b);
// Of tensors among themselves, then of the numbers beside them.
Dtype common_dtype(std::span<const Operand> operands, Rules rules);
// The common dtype, or for comparisons a wider one that holds a number which it does not hold.
// For other ops NumPy refuses such numbers and PyTorch wraps them.
Dtype room_for_numbers(OpId op, Dtype common, std::span<const Operand> operands, Rules rules);
std::string_view op_name(OpId op);

}  // namespace hologram::array
