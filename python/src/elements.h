// SPDX-License-Identifier: MIT
// Operations on scalars whose values are known: on the values, without tensors.
#pragma once

#include <Python.h>

#include "hologram/op.h"

namespace hologram::python {

// These return what the operation on tensors gives, bit for bit, for operands of which one at least
// is a Scalar and the other one may be a number of Python's or NumPy's; `b` is null for an op of
// one operand. Null, with no error set, where an operand is something else or not known, or where
// dtypes differ: the caller then runs the operation on tensors.
PyObject* compute_elements(OpId op, PyObject* a, PyObject* b);
PyObject* compute_elements(IntegerOp op, PyObject* a, PyObject* b);
// The same for **.
PyObject* compute_power_of_elements(PyObject* a, PyObject* b);

}  // namespace hologram::python
