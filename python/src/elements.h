// SPDX-License-Identifier: MIT
// Operations on scalars whose values are known: on the values, without tensors.
#pragma once

#include <Python.h>

#include "hologram/op.h"

namespace hologram::python {

// What an operation on tensors would give for numbers, of which one at least is a Scalar, the other
// one of Python's or NumPy's numbers; `b` is null for an op of one operand. Null, with no error
// set, where an operand is something else or not known, or where dtypes differ: then the op on
// tensors says what there is to say. The bits are those that it would give.
PyObject* compute_elements(OpId op, PyObject* a, PyObject* b);
PyObject* compute_elements(IntegerOp op, PyObject* a, PyObject* b);
// The same for **.
PyObject* compute_power_of_elements(PyObject* a, PyObject* b);

}  // namespace hologram::python
