// SPDX-License-Identifier: MIT
// The operators of Python on tensors: arithmetic, comparisons, bits, and their in-place forms.
#include "operators.h"

#include <array>
#include <cmath>

#include "convert.h"
#include "elements.h"
#include "hologram/functions.h"
#include "integer_operators.h"
#include "interop/numpy_classes.h"
#include "objects.h"
#include "through_numpy.h"

namespace hologram::python {
namespace {

PyObject* not_implemented() { return nb::borrow(Py_NotImplemented).release().ptr(); }

// --- Two operands ------------------------------------------------------------------------------

using Whole = Tensor (*)(const Tensor&, const Tensor&);

// Reads both operands, of which one is a Tensor; false where no Tensor is made of the other. One of
// NumPy's scalars may become a number.
bool parse_both(PyObject* a, PyObject* b, Argument& x, Argument& y) {
  try {
    return x.parse_beside(a, b) && y.parse_beside(b, a);
  } catch (const Error&) {
    return false;
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
    return false;
  }
}

// NumPy's answer in that case; NotImplemented where the other operand has one of its own. `name` is
// that of the special method without its underscores.
PyObject* answer(const char* name, PyObject* a, PyObject* b) {
  return helper("hologram._operands", "answer", name, nb::handle(a), nb::handle(b)).release().ptr();
}

// The name of the in-place form; what follows the first letter is that of the plain one.
constexpr const char* in_place_name(OpId op) {
  switch (op) {
    case OpId::add:
      return "iadd";
    case OpId::sub:
      return "isub";
    case OpId::mul:
      return "imul";
    case OpId::div:
      return "itruediv";
    case OpId::floor_divide:
      return "ifloordiv";
    case OpId::remainder:
      return "imod";
    case OpId::bitwise_and:
      return "iand";
    case OpId::bitwise_or:
      return "ior";
    default:
      return "ixor";
  }
}
constexpr const char* in_place_name(Whole whole) {
  return whole == &left_shift ? "ilshift" : "irshift";
}

// Numbers meet tensors as NumPy lets them.
void adapt(Argument& x, Argument& y, Argument::Use use) {
  if (x.adapts() && y.is_tensor()) x.adapt_to(y.tensor().dtype(), use);
  if (y.adapts() && x.is_tensor()) y.adapt_to(x.tensor().dtype(), use);
}

// Complex numbers have no such operators, whatever the shapes.
void check_not_complex(OpId op, const Argument& x, const Argument& y) {
  switch (op) {
    case OpId::floor_divide:
    case OpId::remainder:
    case OpId::bitwise_and:
    case OpId::bitwise_or:
    case OpId::bitwise_xor:
      break;
    default:
      return;
  }
  for (const Argument* argument : {&x, &y}) {
    if (!argument->is_tensor() || !is_complex(argument->tensor().dtype())) continue;
    fail(ErrorKind::kTypeMismatch, op_info(op).name, ": not defined for ",
         dtype_name(argument->tensor().dtype()),
         ", which is complex; take real or imaginary parts");
  }
}

Tensor compute_row(OpId op, Argument& x, Argument& y) {
  check_not_complex(op, x, y);
  if (x.adapts() || y.adapts()) adapt(x, y, Argument::use_of(op));
  const std::array<Operand, 2> operands = {x.operand(), y.operand()};
  const Unlocked unlocked((x.is_tensor() && is_long(x.tensor())) ||
                          (y.is_tensor() && is_long(y.tensor())));
  return apply(op, operands, Rules::numpy);
}

// Numbers take the dtype that both are promoted to.
Tensor compute_whole(Whole whole, Argument& x, Argument& y) {
  adapt(x, y, Argument::Use::kArithmetic);
  const std::array<Operand, 2> operands = {x.operand(), y.operand()};
  const Dtype dtype = elementwise_types(OpId::maximum, operands, Rules::numpy).result;
  const auto made = [&](const Argument& argument) {
    return argument.is_tensor() ? argument.tensor()
                                : full({}, argument.number().value, dtype, default_device());
  };
  const Tensor a = made(x);
  const Tensor b = made(y);
  const Unlocked unlocked(is_long(a) || is_long(b));
  return whole(a, b);
}

// A list, tuple or string that an integer scalar repeats, as ints do; null where neither operand is
// one.
PyObject* repeated(PyObject* a, PyObject* b) {
  const TensorObject* number = tensor_of(b);
  PyObject* sequence = a;
  if (number == nullptr) number = tensor_of(a), sequence = b;
  if (number == nullptr || !number->is_scalar) return nullptr;
  if (!PyList_Check(sequence) && !PyTuple_Check(sequence) && !PyUnicode_Check(sequence) &&
      !PyBytes_Check(sequence) && !PyByteArray_Check(sequence)) {
    return nullptr;
  }
  if (!is_integer(number->tensor().dtype())) {
    fail(ErrorKind::kTypeMismatch, "can't multiply sequence by non-int of type '",
         dtype_name(number->tensor().dtype()), "'");
  }
  const Py_ssize_t count = PyNumber_AsSsize_t(item_object(*number).ptr(), PyExc_OverflowError);
  if (count == -1 && PyErr_Occurred() != nullptr) raise_set();
  PyObject* result = PySequence_Repeat(sequence, count);
  if (result == nullptr) raise_set();
  return result;
}

template <OpId op>
PyObject* binary(PyObject* a, PyObject* b) {
  return guarded([&]() -> PyObject* {
    if (PyObject* result = compute_elements(op, a, b)) return result;
    if constexpr (op == OpId::mul) {
      if (PyObject* result = repeated(a, b)) return result;
    }
    Argument x;
    Argument y;
    if (!parse_both(a, b, x, y)) return answer(in_place_name(op) + 1, a, b);
    return wrap_result(compute_row(op, x, y)).release().ptr();
  });
}

template <Whole whole>
PyObject* binary_whole(PyObject* a, PyObject* b) {
  return guarded([&] {
    constexpr IntegerOp kOp = whole == &left_shift ? IntegerOp::left_shift : IntegerOp::right_shift;
    if (PyObject* result = compute_elements(kOp, a, b)) return result;
    Argument x;
    Argument y;
    if (!parse_both(a, b, x, y)) return answer(in_place_name(whole) + 1, a, b);
    return wrap_result(compute_whole(whole, x, y)).release().ptr();
  });
}

PyObject* divmod_slot(PyObject* a, PyObject* b) {
  return guarded([&] {
    Argument x;
    Argument y;
    if (!parse_both(a, b, x, y)) return answer("divmod", a, b);
    const nb::object quotient = wrap_result(compute_row(OpId::floor_divide, x, y));
    const nb::object rest = wrap_result(compute_row(OpId::remainder, x, y));
    return nb::make_tuple(quotient, rest).release().ptr();
  });
}

// --- Powers ------------------------------------------------------------------------------------

// Reads both operands; an exponent of NumPy's has its width, since those without one have ways of
// their own.
bool parse_power(PyObject* a, PyObject* b, Argument& x, Argument& y) {
  return numpy_scalar(b) ? x.parse(a) && y.parse(b) : parse_both(a, b, x, y);
}

Tensor compute_general_power(Argument& x, Argument& y) {
  adapt(x, y, Argument::Use::kArithmetic);
  const std::array<Operand, 2> operands = {x.operand(), y.operand()};
  const Dtype dtype = elementwise_types(OpId::maximum, operands, Rules::numpy).result;
  if (is_floating(dtype) || is_complex(dtype)) return compute_row(OpId::pow, x, y);
  return compute_whole(&integer_power, x, y);
}

Tensor compute_power(Argument& x, Argument& y) {
  // The exponents for which NumPy has a shorter way, with fewer roundings.
  if (x.is_tensor() && !y.is_tensor()) {
    const Scalar& value = y.number().value;
    const double exponent = value.dtype == Dtype::kFloat64 ? value.f64
                            : value.dtype == Dtype::kInt64 ? static_cast<double>(value.i64)
                                                           : -3.0;
    const Dtype dtype = x.tensor().dtype();
    const bool is_inexact = is_floating(dtype) || is_complex(dtype);
    const bool keeps = is_inexact || (is_integer(dtype) && value.dtype == Dtype::kInt64);
    const auto row = [&](OpId op) {
      const std::array<Operand, 1> operand = {x.operand()};
      const Unlocked unlocked(is_long(x.tensor()));
      return apply(op, operand, Rules::numpy);
    };
    if (keeps && exponent == 2.0) return row(OpId::square);
    if (is_inexact && exponent == 0.5) return row(OpId::sqrt);
    if (is_inexact && exponent == -1.0) return row(OpId::reciprocal);
  }
  return compute_general_power(x, y);
}

PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  return guarded([&] {
    Argument x;
    Argument y;
    if (modulus != Py_None) return not_implemented();
    if (PyObject* result = compute_power_of_elements(a, b)) return result;
    if (!parse_power(a, b, x, y)) return answer("pow", a, b);
    return wrap_result(compute_power(x, y)).release().ptr();
  });
}

// --- In place ----------------------------------------------------------------------------------

// Runs compute(out) and returns the object itself. `name` is the operator's in messages, `method`
// that of its method.
template <class Compute>
PyObject* in_place(PyObject* a, PyObject* b, const char* name, const char* method,
                   Compute compute) {
  return guarded([&] {
    TensorObject* self = tensor_of(a);
    Argument x;
    Argument y;
    // Python goes on to the operator that makes a new object.
    if (self == nullptr || self->is_scalar) return not_implemented();
    self->check_writable(name);
    if (!parse_both(a, b, x, y)) return answer(method, a, b);
    compute(self->tensor(), x, y);
    return nb::borrow(a).release().ptr();
  });
}

void store(const Tensor& result, const Tensor& out, const char* name) {
  check_same_kind(result.dtype(), out.dtype(), name);
  if (result.shape() != out.shape()) {
    fail(ErrorKind::kInvalidArgument, name,
         ": the result has another shape than the Tensor on the left; use an operator that makes "
         "a new Tensor");
  }
  copy_into(result, out);
}

template <OpId op>
PyObject* binary_in_place(PyObject* a, PyObject* b) {
  const auto compute = [](const Tensor& out, Argument& x, Argument& y) {
    check_not_complex(op, x, y);
    if (y.adapts()) adapt(x, y, Argument::use_of(op));
    const std::array<Operand, 2> operands = {x.operand(), y.operand()};
    // The only case that the library accepts and NumPy refuses.
    if (is_unsigned(out.dtype()) && y.is_tensor()) {
      const Dtype result = elementwise_types(op, operands, Rules::numpy).result;
      check_same_kind(result, out.dtype(), op_info(op).name.data());
    }
    const Unlocked unlocked(is_long(out));
    apply_into(op, operands, out, Rules::numpy);
  };
  return in_place(a, b, op_info(op).name.data(), in_place_name(op), compute);
}

template <Whole whole>
PyObject* whole_in_place(PyObject* a, PyObject* b) {
  constexpr const char* kName = whole == &left_shift ? "<<=" : ">>=";
  const auto compute = [](const Tensor& out, Argument& x, Argument& y) {
    store(compute_whole(whole, x, y), out, kName);
  };
  return in_place(a, b, kName, in_place_name(whole), compute);
}

PyObject* power_in_place(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) return not_implemented();
  return in_place(a, b, "**=", "ipow", [](const Tensor& out, Argument& x, Argument& y) {
    store(compute_power(x, y), out, "**=");
  });
}

PyObject* matmul_in_place(PyObject* a, PyObject* b) {
  return in_place(a, b, "@=", "imatmul", [](const Tensor& out, Argument& x, Argument& y) {
    if (!y.is_tensor()) {
      fail(ErrorKind::kInvalidArgument, "@=: the operand is a number; multiply with *=");
    }
    const Unlocked unlocked;
    store(matmul(x.tensor(), y.tensor(), Rules::numpy), out, "@=");
  });
}

// --- One operand -------------------------------------------------------------------------------

template <OpId op>
PyObject* unary(PyObject* a) {
  return guarded([&] {
    if (PyObject* element = compute_elements(op, a, nullptr)) return element;
    const Tensor& x = self_of(a).tensor();
    const std::array<Operand, 1> operand = {Operand(x)};
    Tensor result;
    {
      const Unlocked unlocked(is_long(x));
      result = apply(op, operand, Rules::numpy);
    }
    return wrap_result(std::move(result)).release().ptr();
  });
}

PyObject* positive(PyObject* a) {
  return guarded([&] {
    const Tensor& x = self_of(a).tensor();
    if (x.dtype() == Dtype::kBool) {
      fail(ErrorKind::kTypeMismatch, "+x: not defined for bool; use x.astype('int8')");
    }
    return wrap_result(copy_of(x)).release().ptr();
  });
}

PyObject* compare(PyObject* a, PyObject* b, int which) {
  return guarded([&] {
    constexpr std::array<OpId, 6> kRows = {OpId::lt, OpId::le, OpId::eq,
                                           OpId::ne, OpId::gt, OpId::ge};
    const OpId op = kRows[static_cast<size_t>(which)];
    if (PyObject* result = compute_elements(op, a, b)) return result;
    Argument x;
    Argument y;
    constexpr std::array<const char*, 6> kNames = {"lt", "le", "eq", "ne", "gt", "ge"};
    if (!parse_both(a, b, x, y)) return answer(kNames[static_cast<size_t>(which)], a, b);
    const auto is_complex_tensor = [](const Argument& argument) {
      return argument.is_tensor() && is_complex(argument.tensor().dtype());
    };
    const char* numpy = complex_in_numpy(op);
    if (numpy != nullptr && (is_complex_tensor(x) || is_complex_tensor(y))) {
      const std::array<PyObject*, 2> operands = {a, b};
      return call_numpy(numpy, operands.data(), 2, nullptr).release().ptr();
    }
    return wrap_result(compute_row(op, x, y)).release().ptr();
  });
}

// --- As a sequence ------------------------------------------------------------------------------

// operator.concat, and what + comes to where neither operand answers it.
PyObject* concatenate(PyObject*, PyObject* b) {
  return guarded([&]() -> PyObject* {
    fail(ErrorKind::kTypeMismatch,
         "unsupported operand type(s) for + or concatenation: 'Tensor' "
         "and '",
         name_of_type(b), "'; hologram.concat([a, b]) joins Tensors");
  });
}

// --- One value ---------------------------------------------------------------------------------

void require_one(const Tensor& x, const char* what) {
  if (x.numel() == 1) return;
  if (x.numel() == 0 || *what == 'b') {
    fail(ErrorKind::kInvalidArgument, "the truth value of a Tensor of ", x.numel(),
         " elements is ambiguous; use x.any(), x.all() or x.size");
  }
  fail(ErrorKind::kTypeMismatch, what, "() takes a Tensor of one element, not of ", x.numel());
}

int truth(PyObject* a) {
  return guarded_int([&] {
    if (const Element* value = scalar_value(a); value != nullptr && value->dtype == Dtype::kBool) {
      return value->bytes[0] != 0 ? 1 : 0;
    }
    if (const Element* value = scalar_value(a)) {
      return PyObject_IsTrue(item_object(value->dtype, value->bytes).ptr());
    }
    const Tensor& x = self_of(a).tensor();
    require_one(x, "bool");
    return PyObject_IsTrue(item_object(x, "bool()").ptr());
  });
}

PyObject* int_slot(PyObject* a) {
  return guarded([&] {
    if (const Element* value = scalar_value(a)) {
      return PyNumber_Long(item_object(value->dtype, value->bytes).ptr());
    }
    const Tensor& x = self_of(a).tensor();
    require_one(x, "int");
    return PyNumber_Long(item_object(x, "int()").ptr());
  });
}

PyObject* float_slot(PyObject* a) {
  return guarded([&] {
    if (const Element* value = scalar_value(a)) {
      return PyNumber_Float(item_object(value->dtype, value->bytes).ptr());
    }
    const Tensor& x = self_of(a).tensor();
    require_one(x, "float");
    return PyNumber_Float(item_object(x, "float()").ptr());
  });
}

PyObject* index_slot(PyObject* a) {
  return guarded([&] {
    if (const Element* value = scalar_value(a); value != nullptr && is_integer(value->dtype)) {
      return item_object(value->dtype, value->bytes).release().ptr();
    }
    const Tensor& x = self_of(a).tensor();
    if (x.ndim() != 0 || !is_integer(x.dtype())) {
      fail(ErrorKind::kTypeMismatch,
           "only a Tensor of integers without dimensions can be an index; this one has ", x.ndim(),
           " dimensions of ", dtype_name(x.dtype()));
    }
    return item_object(x, "index()").release().ptr();
  });
}

}  // namespace

PyObject* left_shift_slot(PyObject* a, PyObject* b) { return binary_whole<&left_shift>(a, b); }
PyObject* right_shift_slot(PyObject* a, PyObject* b) { return binary_whole<&right_shift>(a, b); }
PyObject* floor_divide_slot(PyObject* a, PyObject* b) { return binary<OpId::floor_divide>(a, b); }
PyObject* remainder_slot(PyObject* a, PyObject* b) { return binary<OpId::remainder>(a, b); }

PyObject* matmul_slot(PyObject* a, PyObject* b) {
  return guarded([&] {
    if (Py_TYPE(a) == tensor_type && Py_TYPE(b) == tensor_type) {
      const Tensor &x = self_of(a).tensor(), &y = self_of(b).tensor();
      Element product{x.dtype()};
      if (dot_at_call(x, y, product.bytes)) return wrap_element(product).release().ptr();
    }
    Argument x;
    Argument y;
    if (!parse_both(a, b, x, y)) return answer("matmul", a, b);
    if (!x.is_tensor() || !y.is_tensor()) {
      fail(ErrorKind::kInvalidArgument, "matmul: an operand is a number; multiply with *");
    }
    Tensor product;
    {
      const Unlocked unlocked(is_long(x.tensor()) || is_long(y.tensor()));
      product = matmul(x.tensor(), y.tensor(), Rules::numpy);
    }
    return wrap_result(std::move(product)).release().ptr();
  });
}

PyObject* power_ufunc(PyObject* a, PyObject* b) {
  return guarded([&] {
    Argument x;
    Argument y;
    if (!parse_power(a, b, x, y)) return answer("pow", a, b);
    return wrap_result(compute_general_power(x, y)).release().ptr();
  });
}

void add_operator_slots(std::vector<PyType_Slot>& slots) {
  const auto add = [&](int slot, auto* function) {
    slots.push_back({slot, reinterpret_cast<void*>(function)});
  };
  add(Py_nb_add, &binary<OpId::add>);
  add(Py_nb_subtract, &binary<OpId::sub>);
  add(Py_nb_multiply, &binary<OpId::mul>);
  add(Py_nb_true_divide, &binary<OpId::div>);
  add(Py_nb_floor_divide, &floor_divide_slot);
  add(Py_nb_remainder, &remainder_slot);
  add(Py_nb_divmod, &divmod_slot);
  add(Py_nb_power, &power);
  add(Py_nb_and, &binary<OpId::bitwise_and>);
  add(Py_nb_or, &binary<OpId::bitwise_or>);
  add(Py_nb_xor, &binary<OpId::bitwise_xor>);
  add(Py_nb_lshift, &left_shift_slot);
  add(Py_nb_rshift, &right_shift_slot);
  add(Py_nb_matrix_multiply, &matmul_slot);
  add(Py_nb_inplace_add, &binary_in_place<OpId::add>);
  add(Py_nb_inplace_subtract, &binary_in_place<OpId::sub>);
  add(Py_nb_inplace_multiply, &binary_in_place<OpId::mul>);
  add(Py_nb_inplace_true_divide, &binary_in_place<OpId::div>);
  add(Py_nb_inplace_floor_divide, &binary_in_place<OpId::floor_divide>);
  add(Py_nb_inplace_remainder, &binary_in_place<OpId::remainder>);
  add(Py_nb_inplace_power, &power_in_place);
  add(Py_nb_inplace_and, &binary_in_place<OpId::bitwise_and>);
  add(Py_nb_inplace_or, &binary_in_place<OpId::bitwise_or>);
  add(Py_nb_inplace_xor, &binary_in_place<OpId::bitwise_xor>);
  add(Py_nb_inplace_lshift, &whole_in_place<&left_shift>);
  add(Py_nb_inplace_rshift, &whole_in_place<&right_shift>);
  add(Py_nb_inplace_matrix_multiply, &matmul_in_place);
  add(Py_nb_negative, &unary<OpId::neg>);
  add(Py_nb_positive, &positive);
  add(Py_nb_absolute, &unary<OpId::abs>);
  add(Py_nb_invert, &unary<OpId::bitwise_not>);
  add(Py_nb_bool, &truth);
  add(Py_nb_int, &int_slot);
  add(Py_nb_float, &float_slot);
  add(Py_nb_index, &index_slot);
  add(Py_tp_richcompare, &compare);
  add(Py_sq_concat, &concatenate);
}

}  // namespace hologram::python
