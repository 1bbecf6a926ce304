// SPDX-License-Identifier: MIT
// Numbers beside tensors: what a number without a width counts as, and operands of any kind.
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "convert.h"
#include "hologram/elementwise.h"
#include "interop/numpy_classes.h"

namespace hologram::python {

bool parse_weak(PyObject* object, WeakNumber& number) {
  number.is_big = number.is_uint64 = false;
  if (PyBool_Check(object)) {
    number.value = Scalar(object == Py_True);
    return true;
  }
  const bool is_float = PyFloat_Check(object);
  if (!is_float && !PyLong_Check(object)) return false;
  if (!PyFloat_CheckExact(object) && !PyLong_CheckExact(object) && is_like_array(object)) {
    return false;
  }
  if (is_float) {
    number.value = Scalar(PyFloat_AS_DOUBLE(object));
    return true;
  }
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow == 0) {
    if (value == -1 && PyErr_Occurred() != nullptr) raise_set();
    number.value = Scalar(value);
    return true;
  }
  number.is_big = true;
  const uint64_t bits = PyLong_AsUnsignedLongLong(object);
  number.is_uint64 = !(bits == static_cast<uint64_t>(-1) && PyErr_Occurred() != nullptr);
  if (number.is_uint64) number.bits = static_cast<int64_t>(bits);
  PyErr_Clear();
  double nearest = PyLong_AsDouble(object);
  if (nearest == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    nearest = overflow * std::numeric_limits<double>::infinity();
  }
  number.value = Scalar(nearest);
  return true;
}

void check_fits(const WeakNumber& number, Dtype dtype) {
  if (number.is_big) {
    if (number.is_uint64 && dtype == Dtype::kUInt64) return;
    raise(PyExc_OverflowError,
          "Python integer out of bounds for " +
              std::string(dtype_name(is_integer(dtype) ? dtype : Dtype::kInt64)) + "; use a float");
  }
  if (number.value.dtype != Dtype::kInt64 || fits(number.value.i64, dtype)) return;
  raise(PyExc_OverflowError, "Python integer " + std::to_string(number.value.i64) +
                                 " out of bounds for " + std::string(dtype_name(dtype)) +
                                 "; convert the Tensor with astype first");
}

namespace {

// A number of `strong` dtype gives the same beside a tensor of `other` as one without a width: the
// tensor's dtype, or the only one of a higher kind that numbers without a width become.
bool counts_as_weak(Dtype strong, Dtype other) {
  if (strong == Dtype::kUInt64 || is_complex(strong)) return false;
  if (strong == Dtype::kBool || strong == other) return true;
  if (other == Dtype::kBFloat16) return false;
  const bool is_wide = other == Dtype::kFloat64 || other == Dtype::kComplex128;
  if (is_wide) return true;
  if (is_integer(strong)) {
    return is_integer(other) ? promote(strong, other) == other
                             : strong == Dtype::kInt64 && other == Dtype::kBool;
  }
  if (is_integer(other) || other == Dtype::kBool) return strong == Dtype::kFloat64;
  const size_t width = itemsize(other) / (is_complex(other) ? 2 : 1);
  return itemsize(strong) <= width;
}

}  // namespace

bool Argument::parse_beside(PyObject* object, PyObject* other) {
  const TensorObject* const tensor = tensor_of(other);
  const bool is_plain =
      Py_TYPE(object) == tensor_type || PyFloat_CheckExact(object) || PyLong_CheckExact(object);
  if (is_plain || tensor == nullptr || (tensor->is_scalar && tensor_of(object) != nullptr)) {
    return parse(object);
  }
  NumpyScalar scalar;
  if (const Element* value = scalar_value(object)) {
    scalar = {value->dtype, value->bytes};
  } else if (const std::optional<NumpyScalar> found = numpy_scalar(object)) {
    scalar = *found;
  } else {
    return parse(object);
  }
  if (!counts_as_weak(scalar.dtype, tensor->dtype())) return parse(object);
  if (scalar.dtype == Dtype::kBool) {
    weak_.value = Scalar(*scalar.value != 0);
  } else if (is_integer(scalar.dtype)) {
    weak_.value = Scalar(integer_of(scalar.dtype, scalar.value));
  } else {
    double value = 0;
    hologram::convert(scalar.dtype, scalar.value, Dtype::kFloat64, &value, 1);
    weak_.value = Scalar(value);
  }
  return true;
}

bool Argument::parse_slowly(PyObject* object) {
  if (ndarray_type == nullptr) [[unlikely]]
    meet_numpy(object);
  if (const std::optional<NumpyScalar> scalar = numpy_scalar(object)) {
    owned_.emplace(from_host({const_cast<char*>(scalar->value), scalar->dtype, 0, nullptr, nullptr},
                             default_device()));
    tensor_ = &*owned_;
    return true;
  }
  TensorObject made;
  if (!try_make_tensor(object, made)) return false;
  is_weak_complex_ = PyComplex_CheckExact(object);
  owned_.emplace(std::move(made.tensor()));
  tensor_ = &*owned_;
  return true;
}

void Argument::require(PyObject* object, const char* function) {
  if (parse(object)) return;
  // Functions, unlike operators, take whatever holds numbers.
  owned_.emplace(make_tensor(object).tensor());
  tensor_ = &*owned_;
  (void)function;
}

void Argument::make_strong() {
  if (tensor_ != nullptr) return;
  const Dtype dtype = weak_.natural_dtype();
  owned_.emplace(full({}, weak_.value_in(dtype), dtype, default_device()));
  tensor_ = &*owned_;
}

Argument::Use Argument::use_of(OpId op) {
  const OpInfo& info = op_info(op);
  if ((info.traits & kCompares) != 0) return Use::kComparison;
  const bool is_arithmetic =
      info.dtypes != DtypeSet::kFloats || info.others.way == OtherDtypes::kInteger;
  return is_arithmetic ? Use::kArithmetic : Use::kFunctionOfFloats;
}

void Argument::adapt_to(Dtype dtype, Use use) {
  if (is_weak_complex_) {
    const bool is_single = dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16 ||
                           dtype == Dtype::kFloat32 || dtype == Dtype::kComplex64;
    if (is_single) *owned_ = cast(*owned_, Dtype::kComplex64);
    return;
  }
  if (tensor_ != nullptr) return;
  Scalar& value = weak_.value;
  if (dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16) {
    if (value.dtype == Dtype::kBool) return;
    double number = value.dtype == Dtype::kInt64 ? static_cast<double>(value.i64) : value.f64;
    uint16_t half;
    convert(Dtype::kFloat64, &number, dtype, &half, 1);
    convert(dtype, &half, Dtype::kFloat64, &number, 1);
    value = Scalar(number);
    return;
  }
  if (is_floating(dtype) || is_complex(dtype) || (!is_int() && !is_big())) return;
  if (dtype == Dtype::kUInt64 && weak_.is_uint64) return make_strong();
  if (!is_big() && (!is_integer(dtype) || fits(value.i64, dtype))) return;
  if (use == Use::kFunctionOfFloats) {
    if (!is_big()) value = Scalar(static_cast<double>(value.i64));
    return;
  }
  if (use == Use::kArithmetic) check_fits(weak_, dtype);
  // Beyond all of the dtype's numbers, also where those are rounded to float64.
  const bool is_below = is_big() ? value.f64 < 0 : value.i64 < 0;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  value = Scalar(is_below ? -kInfinity : kInfinity);
}

bool changes_kind(Dtype result, Dtype out) {
  const auto kind = [](Dtype dtype) {
    if (dtype == Dtype::kBool) return 0;
    if (is_integer(dtype)) return is_unsigned(dtype) ? 1 : 2;
    return is_floating(dtype) ? 3 : 4;
  };
  return kind(result) > kind(out);
}

void check_same_kind(Dtype result, Dtype out, const char* name) {
  if (!changes_kind(result, out)) return;
  fail(ErrorKind::kTypeMismatch, name, ": the result is ", dtype_name(result),
       ", which does not go into ", dtype_name(out),
       "; use an operator that makes a new Tensor, or convert with astype");
}

}  // namespace hologram::python
