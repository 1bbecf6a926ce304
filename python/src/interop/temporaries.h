// SPDX-License-Identifier: MIT
// Temporary arrays: arguments to which only the call refers.
#pragma once

#include <Python.h>

namespace hologram::python {

// True where `object` is an array that the caller will not see again: an argument of a function
// that was called with METH_FASTCALL and that many arguments, made by the expression in its place,
// with memory of its own. False where that is not certain, and for small arrays. With the GIL.
bool is_temporary_array(PyObject* object, Py_ssize_t arguments);

}  // namespace hologram::python
