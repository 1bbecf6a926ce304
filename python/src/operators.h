// SPDX-License-Identifier: MIT
// The operators of Python on tensors, as functions in the type's slots.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

namespace hologram::python {

void add_operator_slots(std::vector<PyType_Slot>& slots);
void add_indexing_slots(std::vector<PyType_Slot>& slots);
// What the operators give that are no rows; their slots.
PyObject* left_shift_slot(PyObject* a, PyObject* b);
PyObject* right_shift_slot(PyObject* a, PyObject* b);
PyObject* floor_divide_slot(PyObject* a, PyObject* b);
PyObject* remainder_slot(PyObject* a, PyObject* b);
PyObject* matmul_slot(PyObject* a, PyObject* b);
// Without the shorter ways that x ** 2 and x ** 0.5 have, as NumPy's power has none.
PyObject* power_ufunc(PyObject* a, PyObject* b);
// NumPy's where of Tensors and numbers.
PyObject* where_of(PyObject* const* operands);
// __array_ufunc__ and __array_function__, NumPy's protocols for its ufuncs and other functions.
void add_ufunc_method(nanobind::handle type);
void add_function_method(nanobind::handle type);

}  // namespace hologram::python
