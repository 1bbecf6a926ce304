// SPDX-License-Identifier: MIT
// hologram.Scalar: what computations without dimensions give, immutable and hashable as NumPy's
// scalars are.
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "convert.h"
#include "hologram/recorder.h"
#include "methods.h"
#include "objects.h"

namespace hologram::python {

std::array<PyTypeObject*, kScalarKinds> scalar_types = {};

namespace {

ScalarKind kind_of(Dtype dtype) {
  if (dtype == Dtype::kBool) return ScalarKind::kBool;
  if (is_integer(dtype)) return ScalarKind::kInteger;
  return is_floating(dtype) ? ScalarKind::kFloat : ScalarKind::kComplex;
}

// Makes the object of a scalar where it is to stay.
template <ScalarKind kind, class Value>
nb::object wrap_kind(Value&& value) {
  nb::object object =
      nb::inst_alloc(reinterpret_cast<PyObject*>(scalar_types[static_cast<size_t>(kind)]));
  auto* const scalar = new (nb::inst_ptr<void>(object)) ScalarOf<kind>(std::forward<Value>(value));
  scalar->is_scalar = true;
  nb::inst_mark_ready(object);
  return object;
}

template <class Value>
nb::object wrap_as_scalar(Dtype dtype, Value&& value) {
  switch (kind_of(dtype)) {
    case ScalarKind::kBool:
      return wrap_kind<ScalarKind::kBool>(std::forward<Value>(value));
    case ScalarKind::kInteger:
      return wrap_kind<ScalarKind::kInteger>(std::forward<Value>(value));
    case ScalarKind::kFloat:
      return wrap_kind<ScalarKind::kFloat>(std::forward<Value>(value));
    default:
      return wrap_kind<ScalarKind::kComplex>(std::forward<Value>(value));
  }
}

// --- Slots --------------------------------------------------------------------------------------

// Equal to that of Python's number of the same value, so that both are one key.
Py_hash_t hash(PyObject* self) {
  try {
    const nb::object value = item_object(self_of(self), "hash()");
    if (PyFloat_CheckExact(value.ptr()) && std::isnan(PyFloat_AS_DOUBLE(value.ptr()))) {
      // As NaN is equal to nothing, each has a hash of its own.
      const auto address = reinterpret_cast<uintptr_t>(self);
      const auto bits = static_cast<Py_hash_t>(std::rotr(address, 4));
      return bits == -1 ? -2 : bits;
    }
    return PyObject_Hash(value.ptr());
  } catch (...) {
    set_python_error();
    return -1;
  }
}

PyType_Slot* scalar_slots() {
  static PyType_Slot slots[] = {
      {Py_tp_hash, reinterpret_cast<void*>(&hash)},
      // A class that has a hash inherits no comparisons.
      {Py_tp_richcompare, PyType_GetSlot(tensor_type, Py_tp_richcompare)},
      {0, nullptr},
  };
  return slots;
}

constexpr const char* kScalarDoc =
    R"(A number that was computed: what NumPy returns as one of its scalars.

Sums of all elements, elements themselves and operations on numbers without dimensions give Scalars.
They are Tensors of shape () that never change: x += 1 binds x to a new one. They are hashable, and
count as numbers.Integral, Real or Complex by their dtype, which is as strong in promotion as that of
other Tensors. A Scalar may be pending: looking at it (print, float, bool, hash) computes it.
Assignment raises TypeError, but for x[mask] = y with a mask without dimensions, as code for any
array API has it. hologram.array(x) is a Tensor of its value, which can be written.)";

template <ScalarKind kind>
void add_kind(nb::module_& m, const char* name, const char* doc) {
  const nb::class_<ScalarOf<kind>, ScalarObject> type(m, name, nb::is_final(),
#if NB_VERSION_MAJOR * 100 + NB_VERSION_MINOR >= 301
                                                      nb::pooled(256),
#endif
                                                      doc);
  scalar_types[static_cast<size_t>(kind)] = reinterpret_cast<PyTypeObject*>(type.ptr());
}

}  // namespace

void TensorObject::give_memory() const {
  const size_t size = itemsize(value_.dtype);
  BufferRef memory = BufferRef::adopt(allocate_buffer(default_device(), size));
  memory->set_dtype(value_.dtype);
  std::memcpy(memory->data(), value_.bytes, size);
  tensor_ = Tensor(std::move(memory), {}, value_.dtype);
}

void TensorObject::note_value() const {
  const size_t size = itemsize(tensor_.dtype());
  if (!tensor_.buffer() || !is_immediate(static_cast<int64_t>(size)) ||
      !is_readable_at_call(*tensor_.buffer())) {
    return;
  }
  value_.dtype = tensor_.dtype();
  std::memcpy(value_.bytes, tensor_.data(), size);
  is_known_ = true;
}

nb::object wrap_scalar(Tensor tensor) {
  const Dtype dtype = tensor.dtype();
  return wrap_as_scalar(dtype, std::move(tensor));
}
nb::object wrap_element(const Element& value) { return wrap_as_scalar(value.dtype, value); }

nb::object view_of(const TensorObject& self, Tensor view) {
  if (!self.is_scalar) return wrap(std::move(view), self.readonly);
  return view.ndim() == 0 ? wrap_scalar(std::move(view)) : wrap(copy_of(view));
}

void register_scalars(nb::module_& m) {
  nb::class_<ScalarObject, TensorObject> type(m, "Scalar", nb::type_slots(scalar_slots()),
                                              kScalarDoc);
  type.def(
      "__init__",
      [](ScalarObject*, const nb::args&, const nb::kwargs&) {
        fail(ErrorKind::kTypeMismatch,
             "Scalar: computations make scalars; hologram.array(x)[()] is that of a number");
      },
      nb::arg("args"), nb::arg("options"),
      nb::sig("def __init__(self, *args: typing.Any, **options: typing.Any) -> None"));
  add_scalar_methods(type);
  add_kind<ScalarKind::kBool>(m, "BoolScalar", "A Scalar of dtype bool.");
  add_kind<ScalarKind::kInteger>(m, "IntegerScalar", "A Scalar of an integer dtype.");
  add_kind<ScalarKind::kFloat>(m, "FloatScalar", "A Scalar of a floating-point dtype.");
  add_kind<ScalarKind::kComplex>(m, "ComplexScalar", "A Scalar of a complex dtype.");
  m.def(
      "_conj", [](const TensorObject& x) { return wrap_result(conj(x.tensor())); }, nb::arg("x"),
      nb::sig("def _conj(x: Tensor) -> Tensor"), "Return the complex conjugate of numbers.");
  m.def(
      "_as_scalar",
      [](nb::handle x) {
        const TensorObject& self = self_of(x.ptr());
        return self.tensor().ndim() == 0 ? wrap_scalar(self.tensor()) : nb::borrow(x);
      },
      nb::arg("x"), nb::sig("def _as_scalar(x: Tensor) -> Tensor"),
      "Return the Scalar on the memory of a Tensor without dimensions, which no one else may "
      "keep;\n"
      "another Tensor itself.");
}

}  // namespace hologram::python
