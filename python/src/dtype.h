// SPDX-License-Identifier: MIT
// Element types as Python names and reports them.
#pragma once

#include <nanobind/nanobind.h>

#include "hologram/dtype.h"

namespace hologram::python {

// From a NumPy dtype or scalar type, a name, float / int / bool / complex, a torch.dtype or a
// hologram dtype. TypeError, naming what was given, for anything else.
Dtype parse_dtype(nanobind::handle object);
// With None standing for `otherwise`.
Dtype parse_dtype(nanobind::handle object, Dtype otherwise);

// NumPy's dtype; bfloat16 is ml_dtypes' where that can be imported, else hologram.bfloat16.
// Without NumPy hologram's own.
nanobind::object report_dtype(Dtype dtype);

// Format of an element in the buffer protocol; null for bfloat16, which has none.
const char* buffer_format(Dtype dtype);
// From a format and the bytes of an element; false for formats that are no dtype here.
bool parse_buffer_format(const char* format, Py_ssize_t itemsize, Dtype& dtype);

}  // namespace hologram::python
