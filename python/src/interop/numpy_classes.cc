// SPDX-License-Identifier: MIT
// Notes NumPy's classes, and reads its scalars without a call of Python.
#include "interop/numpy_classes.h"

#include <array>
#include <cstring>
#include <string_view>

#include "dtype.h"

namespace hologram::python {

namespace nb = nanobind;

namespace {

struct NumpyClass {
  PyTypeObject* type;
  Dtype dtype;
};
// They are few and live as long as the process.
constinit std::array<NumpyClass, 16> numpy_classes{};
constinit size_t numpy_class_count = 0;
// numpy.generic, which lives as long.
PyObject* generic_type = nullptr;

const char* value_of(PyObject* scalar) {
  return reinterpret_cast<const char*>(scalar) + sizeof(PyObject);
}

// Notes the class of a scalar whose value lies behind Python's header, as its bytes show; no other.
void note_scalar(nb::handle scalar) {
  const Dtype dtype = parse_dtype(scalar.attr("dtype"));
  const auto bytes = nb::cast<nb::bytes>(scalar.attr("tobytes")());
  PyTypeObject* const type = Py_TYPE(scalar.ptr());
  const size_t size = itemsize(dtype);
  if (numpy_class_count == numpy_classes.size() || bytes.size() != size ||
      static_cast<size_t>(type->tp_basicsize) < sizeof(PyObject) + size ||
      std::memcmp(value_of(scalar.ptr()), bytes.c_str(), size) != 0) {
    return;
  }
  Py_INCREF(type);
  numpy_classes[numpy_class_count++] = {type, dtype};
}

void note_types(nb::handle ndarray, nb::handle generic, const nb::list& scalars) {
  ndarray_type = reinterpret_cast<PyTypeObject*>(ndarray.inc_ref().ptr());
  generic_type = generic.inc_ref().ptr();
  for (nb::handle scalar : scalars) note_scalar(scalar);
}

}  // namespace

PyTypeObject* ndarray_type = nullptr;

void meet_numpy(PyObject* object) {
  if (!std::string_view(Py_TYPE(object)->tp_name).starts_with("numpy.")) return;
  nb::module_::import_("hologram._ufuncs");
}

std::optional<NumpyScalar> numpy_scalar(PyObject* object) {
  for (size_t k = 0; k < numpy_class_count; ++k) {
    if (numpy_classes[k].type != Py_TYPE(object)) continue;
    return NumpyScalar{numpy_classes[k].dtype, value_of(object)};
  }
  return std::nullopt;
}

bool is_numpys(PyObject* object) {
  return is_ndarray(object) || numpy_scalar(object).has_value() ||
         (generic_type != nullptr && PyObject_IsInstance(object, generic_type) == 1);
}

void register_numpy_classes(nb::module_& m) {
  m.def("_note_types", &note_types, nb::arg("ndarray"), nb::arg("generic"), nb::arg("scalars"),
        "Say which classes NumPy's arrays and scalars have; `scalars` has one of each class.");
}

}  // namespace hologram::python
