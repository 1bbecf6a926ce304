// SPDX-License-Identifier: MIT
// Translates C++ exceptions to Python exceptions.
#include <exception>
#include <new>

#include "hologram/error.h"
#include "objects.h"

namespace hologram::python {
namespace {

PyObject* python_exception(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return PyExc_ValueError;
    case ErrorKind::kTypeMismatch:
      return PyExc_TypeError;
    case ErrorKind::kIndex:
      return PyExc_IndexError;
    case ErrorKind::kOutOfMemory:
      return PyExc_MemoryError;
    case ErrorKind::kNotSupported:
      return PyExc_NotImplementedError;
    case ErrorKind::kState:
    case ErrorKind::kInternal:
      return PyExc_RuntimeError;
  }
  return PyExc_RuntimeError;
}

}  // namespace

void set_python_error() noexcept {
  try {
    throw;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const Error& error) {
    PyErr_SetString(python_exception(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an exception of unknown type");
  }
}

void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

void register_errors() {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      PyErr_SetString(python_exception(error.kind()), error.what());
    }
  });
}

}  // namespace hologram::python
