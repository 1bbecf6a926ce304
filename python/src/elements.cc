// SPDX-License-Identifier: MIT
// Scalars and numbers as operands of an operation that runs at its call.
#include "elements.h"

#include <cstring>
#include <optional>
#include <string_view>

#include "convert.h"
#include "hologram/elementwise.h"
#include "hologram/functions.h"
#include "hologram/trace.h"
#include "interop/numpy_classes.h"
#include "objects.h"

namespace hologram::python {
namespace {

// Puts a number of Python's into `to` as it counts beside a scalar of that dtype. False where it
// changes the dtype of the result, does not fit, or is no number.
bool put_number(PyObject* number, Element& to) {
  if (PyFloat_CheckExact(number)) {
    if (!is_floating(to.dtype) && !is_complex(to.dtype)) return false;
    const double value = PyFloat_AS_DOUBLE(number);
    convert(Dtype::kFloat64, &value, to.dtype, to.bytes, 1);
    return true;
  }
  if (!PyLong_CheckExact(number) || to.dtype == Dtype::kBool) return false;
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow != 0 || (is_integer(to.dtype) && !fits(value, to.dtype))) return false;
  convert(Dtype::kInt64, &value, is_integer(to.dtype) ? carrier_dtype(to.dtype) : to.dtype,
          to.bytes, 1);
  return true;
}

// One or two operands of one dtype.
class Elements {
 public:
  bool settle(PyObject* a, PyObject* b) {
    const Element* x = scalar_value(a);
    const Element* y = b != nullptr ? scalar_value(b) : nullptr;
    if (x == nullptr && y == nullptr) return false;
    dtype_ = x != nullptr ? x->dtype : y->dtype;
    return put(x, a, x_) && (b == nullptr || put(y, b, y_));
  }
  Dtype dtype() const { return dtype_; }
  const void* x() const { return x_; }
  const void* y() const { return y_; }

 private:
  bool put(const Element* known, PyObject* object, const void*& place) {
    if (known != nullptr) {
      place = known->bytes;
      return known->dtype == dtype_;
    }
    made_.dtype = dtype_;
    place = made_.bytes;
    if (put_number(object, made_)) return true;
    const std::optional<NumpyScalar> scalar = numpy_scalar(object);
    if (!scalar || scalar->dtype != dtype_) return false;
    std::memcpy(made_.bytes, scalar->value, itemsize(dtype_));
    return true;
  }

  Dtype dtype_ = Dtype::kFloat64;
  Element made_;  // of a number
  const void* x_ = nullptr;
  const void* y_ = nullptr;
};

void note_small(std::string_view op) {
  if (is_noting_calls()) [[unlikely]]
    note_at_call(default_device(), op, AtCall::kSmall);
}

PyObject* compute(OpId op, const Elements& operands) {
  Element result;
  const std::optional<Dtype> dtype = apply_to_elements(op, operands.dtype(), operands.x(),
                                                       operands.y(), result.bytes, Rules::numpy);
  if (!dtype) return nullptr;
  result.dtype = *dtype;
  note_small(op_info(op).name);
  return wrap_element(result).release().ptr();
}

}  // namespace

PyObject* compute_elements(OpId op, PyObject* a, PyObject* b) {
  Elements operands;
  return operands.settle(a, b) ? compute(op, operands) : nullptr;
}

PyObject* compute_elements(IntegerOp op, PyObject* a, PyObject* b) {
  Elements operands;
  if (!operands.settle(a, b)) return nullptr;
  Element result{operands.dtype()};
  if (!apply_to_elements(op, operands.dtype(), operands.x(), operands.y(), result.bytes)) {
    return nullptr;
  }
  note_small(op == IntegerOp::left_shift ? "left_shift" : "right_shift");
  return wrap_element(result).release().ptr();
}

PyObject* compute_power_of_elements(PyObject* a, PyObject* b) {
  const Element* base = scalar_value(a);
  if (base == nullptr) return compute_elements(OpId::pow, a, b);
  // The exponents for which NumPy has a shorter way, with fewer roundings.
  const bool is_inexact = is_floating(base->dtype) || is_complex(base->dtype);
  double exponent = 0;
  if (PyFloat_CheckExact(b) && is_inexact) exponent = PyFloat_AS_DOUBLE(b);
  if (PyLong_CheckExact(b)) exponent = PyLong_AsDouble(b);
  if (exponent == -1.0 && PyErr_Occurred() != nullptr) {  // an int beyond all floats
    PyErr_Clear();
    return nullptr;
  }
  if (exponent == 2.0) return compute_elements(OpId::square, a, nullptr);
  if (is_inexact && exponent == 0.5) return compute_elements(OpId::sqrt, a, nullptr);
  if (is_inexact && exponent == -1.0) return compute_elements(OpId::reciprocal, a, nullptr);
  return compute_elements(OpId::pow, a, b);
}

}  // namespace hologram::python
