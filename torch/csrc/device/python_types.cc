// SPDX-License-Identifier: MIT
#include "device/python_types.h"

#include <c10/macros/Macros.h>
#include <torch/csrc/autograd/python_variable.h>

namespace hologram_torch {

bool has_own_functions(PyTypeObject* type) {
  auto* const object = reinterpret_cast<PyObject*>(type);
  if (C10_LIKELY(object == THPVariableClass || object == ParameterClass)) return false;
  static PyObject* const disabled = PyObject_GetAttrString(
      PyImport_ImportModule("torch._C"), "_disabled_torch_function_impl");  // for good
  PyObject* function = PyObject_GetAttrString(object, "__torch_function__");
  const bool overridden = function != disabled;
  if (function == nullptr) PyErr_Clear();
  Py_XDECREF(function);
  return overridden;
}

}  // namespace hologram_torch
