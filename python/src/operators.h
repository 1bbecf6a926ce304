// SPDX-License-Identifier: MIT
// The operators of Python on tensors, as functions in the type's slots.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

namespace hologram::python {

void add_operator_slots(std::vector<PyType_Slot>& slots);
void add_indexing_slots(std::vector<PyType_Slot>& slots);
// __array_ufunc__, NumPy's protocol for its ufuncs.
void add_ufunc_method(nanobind::handle type);

}  // namespace hologram::python
