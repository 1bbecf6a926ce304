// SPDX-License-Identifier: MIT
// The module hologram._hologram: what Python sees of libhologram.
#include <nanobind/nanobind.h>

#include <exception>
#include <string_view>

#include "hologram/cpu_info.h"
#include "hologram/error.h"
#include "hologram/parallel.h"
#include "hologram/version.h"

namespace nb = nanobind;
using hologram::Error;
using hologram::ErrorKind;

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

nb::str isa_text(hologram::Isa isa) {
  const std::string_view name = hologram::isa_name(isa);
  return nb::str(name.data(), name.size());
}

nb::dict cpu_info() {
  nb::list available;
  for (int i = 0; i < hologram::kIsaCount; ++i) {
    const auto isa = static_cast<hologram::Isa>(i);
    if (hologram::isa_available(isa)) {
      available.append(isa_text(isa));
    }
  }
  nb::dict info;
  info["isa"] = isa_text(hologram::current_isa());
  info["available_isas"] = available;
  info["threads"] = hologram::num_threads();
  return info;
}

}  // namespace

NB_MODULE(_hologram, m) {
  m.doc() = "The compiled part of hologram.";
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      PyErr_SetString(python_exception(error.kind()), error.what());
    }
  });

  m.def("version", &hologram::version, "Return the version of the library that is loaded.");
  m.def("cpu_info", &cpu_info, nb::sig("def cpu_info() -> dict[str, object]"),
        "Return the instruction set that kernels run on (`isa`), those that this machine can run\n"
        "(`available_isas`), and how many threads an operation may use (`threads`).");
}
