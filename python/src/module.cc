// SPDX-License-Identifier: MIT
// The module hologram._hologram: what Python sees of libhologram.
#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "hologram/cpu_info.h"
#include "hologram/memory.h"
#include "hologram/parallel.h"
#include "hologram/recorder.h"
#include "hologram/version.h"
#include "interop/numpy_classes.h"
#include "objects.h"
#include "reductions.h"

namespace nb = nanobind;

namespace hologram::python {

Shape parse_shape(nb::handle shape) {
  const auto size = [](PyObject* object) {
    const Py_ssize_t value = PyNumber_AsSsize_t(object, PyExc_OverflowError);
    if (value == -1 && PyErr_Occurred() != nullptr) raise_set();
    return static_cast<int64_t>(value);
  };
  if (PyIndex_Check(shape.ptr()) != 0) {
    const Py_ssize_t value = PyNumber_AsSsize_t(shape.ptr(), PyExc_OverflowError);
    if (value != -1 || PyErr_Occurred() == nullptr) return Shape{value};
    // Arrays of several elements have __index__ to say that it does not work.
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0 || PySequence_Check(shape.ptr()) == 0) {
      raise_set();
    }
    PyErr_Clear();
  }
  if (PySequence_Check(shape.ptr()) == 0 || PyUnicode_Check(shape.ptr()) ||
      PyBytes_Check(shape.ptr()) || PyByteArray_Check(shape.ptr())) {
    fail(ErrorKind::kTypeMismatch, "a shape is an int or a sequence of ints, not ",
         name_of_type(shape));
  }
  const nb::object items = nb::steal(PySequence_Fast(shape.ptr(), "a shape is a sequence of ints"));
  if (!items.is_valid()) raise_set();
  Shape result;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
    result.push_back(size(PySequence_Fast_GET_ITEM(items.ptr(), i)));
  }
  return result;
}

bool to_bool(nb::handle object) {
  const int truth = PyObject_IsTrue(object.ptr());
  if (truth < 0) raise_set();
  return truth != 0;
}

int to_int(nb::handle object) {
  const Py_ssize_t value = PyNumber_AsSsize_t(object.ptr(), PyExc_IndexError);
  if (value == -1 && PyErr_Occurred() != nullptr) raise_set();
  if (value < INT32_MIN || value > INT32_MAX) {
    fail(ErrorKind::kIndex, "dimension ", value, " is out of range");
  }
  return static_cast<int>(value);
}

double to_double(nb::handle object) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) raise_set();
  return value;
}

nb::tuple to_tuple(const Shape& values) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  if (!tuple.is_valid()) raise_set();
  for (size_t i = 0; i < values.size(); ++i) {
    PyObject* value = PyLong_FromLongLong(values[i]);
    if (value == nullptr) raise_set();
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), value);
  }
  return nb::steal<nb::tuple>(tuple.release());
}

std::string text(const Shape& values) {
  std::string result = "(";
  for (size_t i = 0; i < values.size(); ++i) {
    result += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  }
  return result + (values.size() == 1 ? ",)" : ")");
}

std::string name_of_type(nb::handle object) { return Py_TYPE(object.ptr())->tp_name; }

namespace {

nb::str isa_text(Isa isa) {
  const std::string_view name = isa_name(isa);
  return nb::str(name.data(), name.size());
}

nb::dict cpu_info() {
  nb::list available;
  for (int i = 0; i < kIsaCount; ++i) {
    const auto isa = static_cast<Isa>(i);
    if (isa_available(isa)) available.append(isa_text(isa));
  }
  nb::dict info;
  info["isa"] = isa_text(current_isa());
  info["available_isas"] = available;
  info["threads"] = num_threads();
  info["processors"] = usable_processors();
  return info;
}

void register_testing(nb::module_& m) {
  nb::module_ testing = m.def_submodule("testing", "What only tests need.");
  testing.def("fail_os_allocations", &hologram::testing::fail_os_allocations, nb::arg("nth"),
              nb::arg("count") = INT64_MAX,
              "Refuse `count` requests for memory from the nth on (1 is the next); 0 stops.");
  testing.def("empty_cache", &empty_cache, "Give cached memory back to the operating system.");
  testing.def(
      "allocated_bytes", [] { return memory_stats().allocated_bytes.current; },
      "Bytes in live buffers of the linear pool.");
  testing.def(
      "set_deferring", [](bool on) { set_deferring(on); }, nb::arg("on"),
      "Whether ops are recorded; off, they run at their calls.");
  testing.def("immediate_bytes", &immediate_bytes,
              "Bytes of the largest operand with which an op runs at its call.");
  testing.def("set_immediate_bytes", &set_immediate_bytes, nb::arg("bytes"),
              "Change that; 0: ops are recorded.");
}

}  // namespace
}  // namespace hologram::python

NB_MODULE(_hologram, m) {
  using namespace hologram::python;  // NOLINT
  m.doc() = "The compiled part of hologram.";
  // Objects that daemon threads still hold at exit are no leaks of the program.
  nb::set_leak_warnings(false);
  register_errors();
  m.def("version", &hologram::version, "Return the version of the library that is loaded.");
  m.def("cpu_info", &cpu_info, nb::sig("def cpu_info() -> dict[str, object]"),
        "Return the instruction set that kernels run on (`isa`), those that this machine can run\n"
        "(`available_isas`), and how many threads an operation may use (`threads`).");
  register_testing(m);
  register_executor(m);
  register_buffer(m);
  register_tensor(m);
  register_scalars(m);
  register_making(m);
  register_orders(m);
  register_random(m);
  register_numpy_classes(m);
  register_rows(m);
  register_array_function(m);
  register_reductions(m);
  register_losses(m);
  register_calls(m);
  register_tracing(m);
}
