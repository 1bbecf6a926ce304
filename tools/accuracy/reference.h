// SPDX-License-Identifier: MIT
// The scalar oracle of every floating-point row of the op table, from the C library in wider types.
#pragma once

#include "hologram/op_ids.h"

namespace hologram::ref {

// True where evaluate() knows the row: every row that computes in float32 and float64.
bool has_reference(OpId op);

// The value of row `op` at its operands x, y, z, w: the oracle of float32 kernels in double, of
// float64 kernels in long double. Predicates give 0 or 1. Written from the mathematical definition,
// never from the row's body. NaN where has_reference() is false.
double evaluate(OpId op, const double* operands);
long double evaluate(OpId op, const long double* operands);

}  // namespace hologram::ref
