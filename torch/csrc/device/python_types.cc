// SPDX-License-Identifier: MIT
#include "device/python_types.h"

#include <c10/macros/Macros.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include <atomic>

namespace hologram_torch {
namespace {

// A class that is looked up once. An import lets other threads run, so that no lock may be held
// around it, nor a static variable be initialized by it. The reference is kept for good.
struct PythonClass {
  const char* module;
  const char* name;
  std::atomic<PyTypeObject*> found{nullptr};

  PyTypeObject* get() {
    PyTypeObject* type = found.load(std::memory_order_acquire);
    if (C10_LIKELY(type != nullptr)) return type;
    type = reinterpret_cast<PyTypeObject*>(
        pybind11::object(pybind11::module_::import(module).attr(name)).release().ptr());
    found.store(type, std::memory_order_release);
    return type;
  }
};

PythonClass g_fake_tensor{"torch._subclasses.fake_tensor", "FakeTensor"};
PythonClass g_functional_tensor{"torch._subclasses.functional_tensor", "FunctionalTensor"};

}  // namespace

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

bool is_traced(const at::Tensor& t) {
  const pybind11::gil_scoped_acquire gil;
  const auto object = pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(t));
  PyTypeObject* const type = Py_TYPE(object.ptr());
  return PyType_IsSubtype(type, g_fake_tensor.get()) != 0 ||
         PyType_IsSubtype(type, g_functional_tensor.get()) != 0;
}

}  // namespace hologram_torch
