// SPDX-License-Identifier: MIT
// Calls a function of PyTorch's on CPU tensors. Uses Python's C API, which is quick per argument.
#include "dispatch/functional.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "device/python_types.h"
#include "device/tensor.h"
#include "dispatch/cpu_tensor_bridge.h"

namespace hologram_torch {
namespace {

struct Seen {
  const at::Tensor* ours = nullptr;
  const at::Tensor* cpu = nullptr;
  bool foreign = false;  // something neither we nor the CPU can judge
};

void look_at(PyObject* argument, Seen& seen) {
  if (!THPVariable_Check(argument)) return;
  const at::Tensor& t = THPVariable_Unpack(argument);
  if (C10_UNLIKELY(has_own_functions(Py_TYPE(argument)))) {
    seen.foreign = true;
  } else if (is_ours(t)) {
    seen.ours = &t;
  } else if (!t.is_cpu() || t.layout() != c10::kStrided) {
    seen.foreign = true;
  } else if (t.dim() > 0 || seen.cpu == nullptr) {
    seen.cpu = &t;
  }
}

const char* name_of(PyObject* function) {
  PyObject* name = PyObject_GetAttrString(function, "__name__");
  const char* text = name != nullptr ? PyUnicode_AsUTF8(name) : nullptr;
  if (text == nullptr) PyErr_Clear();
  Py_XDECREF(name);  // its owner keeps it
  return text != nullptr ? text : "this function";
}

// Sets Python's error unless `executor` is an open hologram.Executor.
bool is_open_executor(PyObject* executor, PyObject* function) {
  static PyObject* type = nullptr;
  if (C10_UNLIKELY(type == nullptr)) {
    PyObject* module = PyImport_ImportModule("hologram");
    if (module == nullptr) return false;
    type = PyObject_GetAttrString(module, "Executor");  // for good
    Py_DECREF(module);
    if (type == nullptr) return false;
  }
  if (C10_UNLIKELY(reinterpret_cast<PyObject*>(Py_TYPE(executor)) != type)) {
    PyErr_Format(PyExc_TypeError,
                 "hologram_torch.functional.%s: the first argument must be a hologram.Executor, "
                 "not %s; make one with hologram_torch.Executor()%s",
                 name_of(function), Py_TYPE(executor)->tp_name,
                 THPVariable_Check(executor) ? " and pass it before the tensors" : "");
    return false;
  }
  static PyObject* const closed_name = PyUnicode_InternFromString("closed");
  PyObject* closed = PyObject_GetAttr(executor, closed_name);
  if (closed == nullptr) return false;
  const bool open = closed == Py_False;
  Py_DECREF(closed);
  if (!open) {
    PyErr_Format(PyExc_RuntimeError,
                 "hologram_torch.functional.%s: the Executor is closed; make a new one, or call "
                 "inside its `with` block",
                 name_of(function));
  }
  return open;
}

PyObject* call(PyObject* function, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  const Py_ssize_t named = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
  Seen seen;
  for (Py_ssize_t i = 0; i < count + named; ++i) look_at(args[i], seen);
  const size_t positional = static_cast<size_t>(count);
  if (seen.ours != nullptr || seen.cpu == nullptr || seen.foreign) {
    // A single number may lie on the CPU.
    if (seen.ours != nullptr && seen.cpu != nullptr && seen.cpu->dim() > 0) {
      TORCH_CHECK(
          false, "Expected all tensors to be on the same device, but found at least two devices, ",
          seen.ours->device(), " and ", seen.cpu->device(), "! (when calling ", name_of(function),
          ") Move one of them: x.to('hologram') takes a tensor to the device, x.cpu() "
          "brings it back.");
    }
    return PyObject_Vectorcall(function, args, positional, names);
  }
  const CrossingGuard crossing;
  return PyObject_Vectorcall(function, args, positional, names);
}

PyObject* run(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  HANDLE_TH_ERRORS
  if (count < 1) {
    PyErr_SetString(PyExc_TypeError, "_run expects a function first");
    return nullptr;
  }
  return call(args[0], args + 1, count - 1, names);
  END_HANDLE_TH_ERRORS
}

PyObject* run_with(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  HANDLE_TH_ERRORS
  if (count < 2) {
    PyErr_SetString(PyExc_TypeError, "_run_with expects an executor and a function first");
    return nullptr;
  }
  if (!is_open_executor(args[0], args[1])) return nullptr;
  return call(args[1], args + 2, count - 2, names);
  END_HANDLE_TH_ERRORS
}

template <PyObject* (*kFunction)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)>
PyMethodDef method(const char* name, const char* doc) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kFunction)),
          METH_FASTCALL | METH_KEYWORDS, doc};
}

}  // namespace

PyMethodDef kFunctionalMethods[] = {
    method<&run>("_run", "_run(function, *args, **kwargs): call it on the device's kernels."),
    method<&run_with>(
        "_run_with",
        "_run_with(executor, function, *args, **kwargs): the same, where the executor "
        "is open."),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hologram_torch
