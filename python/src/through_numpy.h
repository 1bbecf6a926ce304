// SPDX-License-Identifier: MIT
// What complex numbers do not have here, and NumPy has: its function on the same memory.
#pragma once

#include "hologram/op.h"
#include "objects.h"

namespace hologram::python {

// The name of NumPy's function for a row that complex numbers lack; null where NumPy has none.
const char* complex_in_numpy(OpId op);
// That function on the operands; `out` is null, None or a Tensor.
nb::object call_numpy(const char* name, PyObject* const* operands, int count, PyObject* out);

}  // namespace hologram::python
