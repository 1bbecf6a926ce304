// SPDX-License-Identifier: MIT
// The classes of NumPy's arrays and scalars, which are known once an object of NumPy's was met.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "hologram/dtype.h"

namespace hologram::python {

// numpy.ndarray, once an object of NumPy's was met.
extern PyTypeObject* ndarray_type;
// Notes NumPy's classes where this is an object of one of them.
void meet_numpy(PyObject* object);

// True for arrays of NumPy's own class, not of subclasses.
inline bool is_ndarray(PyObject* object) {
  if (ndarray_type == nullptr) [[unlikely]]
    meet_numpy(object);
  return Py_TYPE(object) == ndarray_type;
}

// The value of one of NumPy's scalars; none where its class was not noted.
struct NumpyScalar {
  Dtype dtype;
  const char* value;
};
std::optional<NumpyScalar> numpy_scalar(PyObject* object);

// True for arrays of NumPy's own class and for all of its scalars.
bool is_numpys(PyObject* object);

void register_numpy_classes(nanobind::module_& m);

}  // namespace hologram::python
