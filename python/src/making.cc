// SPDX-License-Identifier: MIT
// Functions that make tensors: of arrays and lists, of one value, of ranges, of other tensors.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "convert.h"
#include "dtype.h"
#include "hologram/functions.h"
#include "interop/host_array.h"
#include "interop/temporaries.h"
#include "objects.h"
#include "order.h"

namespace hologram::python {
namespace {

// Arrays are made in the memory of the host, whatever a program of the array API says.
void check_device(PyObject* device) {
  if (device == nullptr || device == Py_None) return;
  if (PyUnicode_Check(device) && PyUnicode_CompareWithASCIIString(device, "cpu") == 0) return;
  fail(ErrorKind::kInvalidArgument, "device ", nb::repr(device).c_str(),
       " is not one that arrays are made on; use 'cpu' or None");
}

// The parameters of a function that takes its arguments by METH_FASTCALL; null: not given.
template <size_t n>
std::array<PyObject*, n> parse_arguments(const char* function,
                                         const std::array<const char*, n>& names, size_t positional,
                                         PyObject* const* args, Py_ssize_t nargs,
                                         PyObject* kwnames) {
  std::array<PyObject*, n> given{};
  if (nargs > static_cast<Py_ssize_t>(positional)) {
    fail(ErrorKind::kTypeMismatch, function, "() takes ", positional, " arguments by position; ",
         nargs, " were given");
  }
  std::copy_n(args, nargs, given.begin());
  const Py_ssize_t count = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const char* const keyword = PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, i));
    if (keyword == nullptr) raise_set();
    const auto place = std::ranges::find(names, std::string_view(keyword));
    if (place == names.end()) {
      fail(ErrorKind::kTypeMismatch, function, "() got an unexpected keyword argument '", keyword,
           "'");
    }
    PyObject*& value = given[static_cast<size_t>(place - names.begin())];
    if (value != nullptr) {
      fail(ErrorKind::kTypeMismatch, function, "() got multiple values for argument '", keyword,
           "'");
    }
    value = args[nargs + i];
  }
  return given;
}

// In an order that is given, and not the row-major one of a copy.
nb::object tensor_in_order(nb::handle x, std::optional<Dtype> dtype, Sharing sharing, Order order) {
  // As it lies: a conversion would be row-major already.
  const bool is_array = tensor_of(x.ptr()) != nullptr || PyObject_CheckBuffer(x.ptr()) != 0;
  const TensorObject source = make_tensor(x, is_array ? std::nullopt : dtype, Sharing::kView);
  const bool converts = dtype && *dtype != source.tensor().dtype();
  const bool is_kept = !converts && (order == Order::kAny || is_in_order(source.tensor(), order));
  if (sharing == Sharing::kAlways && !is_kept) {
    fail(ErrorKind::kInvalidArgument, "the elements are not of the dtype or not in the order '",
         static_cast<char>(order), "', and with copy=False they are not copied; leave it out");
  }
  if (is_kept && sharing != Sharing::kNever) {
    TensorObject made = make_tensor(x, dtype, sharing);
    if (made.tensor().strides() == source.tensor().strides()) {
      return wrap_as(tensor_type, std::move(made));
    }
  }
  // Where a copy need not be, NumPy takes 'A' for 'K'.
  if (order == Order::kAny && sharing != Sharing::kNever) order = Order::kKeep;
  return wrap_whole(copy_in_order(source.tensor(), order, dtype.value_or(source.tensor().dtype())));
}

// A Tensor of x, itself where it is one that need not be copied or converted.
nb::object tensor_from(nb::handle x, nb::handle dtype, Sharing sharing, nb::handle in_order = {}) {
  std::optional<Dtype> wanted;
  if (dtype.is_valid() && !dtype.is_none()) wanted = parse_dtype(dtype);
  std::optional<Order> order;
  if (in_order.is_valid()) order = parse_order(in_order);
  const TensorObject* held = tensor_of(x.ptr());
  if (held != nullptr && sharing != Sharing::kNever &&
      (!wanted || *wanted == held->tensor().dtype()) &&
      (!order || order == Order::kAny || is_in_order(held->tensor(), *order))) {
    return nb::borrow(x);
  }
  const bool copies_rows = sharing == Sharing::kNever && order == Order::kRows;
  if (order && !copies_rows) return tensor_in_order(x, wanted, sharing, *order);
  return wrap_as(tensor_type, make_tensor(x, wanted, sharing));
}

PyObject* array(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&] {
    const auto [x, dtype, order] =
        parse_arguments<3>("array", {"x", "dtype", "order"}, 2, args, nargs, kwnames);
    if (x == nullptr) fail(ErrorKind::kTypeMismatch, "array() needs numbers or an array");
    const Py_ssize_t count = nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
    const bool taken = order == nullptr && is_temporary_array(x, count);
    return tensor_from(x, dtype, taken ? Sharing::kTakeOver : Sharing::kNever, order)
        .release()
        .ptr();
  });
}

PyObject* asarray(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&] {
    auto [obj, dtype, order, device, copy, x] = parse_arguments<6>(
        "asarray", {"obj", "dtype", "order", "device", "copy", "x"}, 3, args, nargs, kwnames);
    if ((obj == nullptr) == (x == nullptr)) {
      fail(ErrorKind::kTypeMismatch, "asarray() needs numbers or an array, as obj or as x");
    }
    if (obj == nullptr) obj = x;
    check_device(device);
    const Py_ssize_t count = nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
    Sharing sharing = Sharing::kReadOnly;
    if (copy != nullptr && copy != Py_None) {
      sharing = to_bool(copy) ? Sharing::kNever : Sharing::kAlways;
    }
    if (order == nullptr && is_temporary_array(obj, count)) sharing = Sharing::kTakeOver;
    const TensorObject* held = tensor_of(obj);
    const bool is_scalar = held != nullptr && held->is_scalar;  // an array of it may be written
    if (is_scalar && sharing == Sharing::kReadOnly) sharing = Sharing::kNever;
    return tensor_from(obj, dtype, sharing, order).release().ptr();
  });
}

PyMethodDef array_functions[] = {
    {"array", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&array)),
     METH_FASTCALL | METH_KEYWORDS,
     "array(x, dtype=None, *, order=None)\n--\n\n"
     "Return a Tensor with memory of its own: a copy of an array, of numbers, of nested lists.\n\n"
     "Ops on it are deferred. The memory of an array that nobody else refers to, as in\n"
     "array(numpy.zeros(n)), is taken over without a copy. Without an order it is row-major; see\n"
     "Tensor.copy. TypeError for dtypes that hologram lacks, ValueError for ragged lists,\n"
     "OverflowError for an int that the dtype does not hold."},
    {"asarray", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&asarray)),
     METH_FASTCALL | METH_KEYWORDS,
     "asarray(obj, dtype=None, order=None, *, device=None, copy=None)\n--\n\n"
     "Return a Tensor of an array, a number or nested lists of numbers; a Tensor as it is.\n\n"
     "With copy=None arrays of NumPy and others that can be written are copied, so that ops on "
     "the\n"
     "Tensor are deferred; read-only arrays, and those with DLPack alone, share their memory. The\n"
     "memory of an array that nobody else refers to is taken over. With copy=False the memory is\n"
     "shared: what either side writes the other one sees, and as the owner may write at any time,\n"
     "ops on the Tensor run at their calls. copy=True always copies. `x` is another name of "
     "`obj`. With the order 'C' or 'F' it is a copy where the elements do not lie so; 'A' and 'K'\n"
     "take them as they lie.\n"
     "\n"
     "Raises:\n"
     "    ValueError: copy=False and only a copy would do, ragged lists, or another device or "
     "order.\n"
     "    TypeError: a dtype that hologram does not have.\n"},
};

nb::object make_filled(nb::handle shape, const Scalar& value, Dtype dtype) {
  return wrap(full(parse_shape(shape), value, dtype, default_device()));
}

nb::object full_object(nb::handle shape, nb::handle value, nb::handle dtype) {
  WeakNumber number;
  if (!parse_weak(value.ptr(), number)) {
    const Tensor source = make_tensor(value).tensor();
    const Dtype wanted = parse_dtype(dtype, source.dtype());
    Tensor result = empty(parse_shape(shape), wanted, default_device());
    copy_into(source, result);
    return wrap(std::move(result));
  }
  const Dtype wanted = parse_dtype(dtype, number.natural_dtype());
  if (is_integer(wanted)) check_fits(number, wanted);
  return make_filled(shape, number.value_in(wanted), wanted);
}

// An int that int64 or uint64 holds.
using Wide = __int128;
bool is_whole(const WeakNumber& n) { return n.is_uint64 || n.value.dtype != Dtype::kFloat64; }
Wide whole_of(const WeakNumber& n) {
  return n.is_uint64                      ? static_cast<Wide>(static_cast<uint64_t>(n.bits))
         : n.value.dtype == Dtype::kInt64 ? n.value.i64
                                          : n.value.b;
}
double double_of(const WeakNumber& n) {
  return n.value.dtype == Dtype::kFloat64 ? n.value.f64 : static_cast<double>(whole_of(n));
}

constexpr int64_t kMostNumbers = 9'000'000'000'000'000;

template <class Shown>
[[noreturn]] void too_many(Shown count) {
  fail(ErrorKind::kInvalidArgument, "arange: ", count, " elements are too many");
}

int64_t checked_count(double count) {
  if (!(count < static_cast<double>(kMostNumbers))) too_many(count);
  return count > 0 ? static_cast<int64_t>(count) : 0;
}

int64_t checked_count(Wide count) {
  if (count > INT64_MAX) too_many(static_cast<double>(count));
  if (count >= kMostNumbers) too_many(static_cast<int64_t>(count));
  return static_cast<int64_t>(count);
}

// Of `n` numbers that `second` follows `first`, the difference being as rounded.
Tensor float_range(double first, double second, int64_t n) {
  Tensor result = empty(Shape{n}, Dtype::kFloat64, default_device());
  materialize(result);
  auto* values = static_cast<double*>(result.data());
  for (int64_t i = 0; i < n; ++i) {
    values[i] = i == 1 ? second : first + static_cast<double>(i) * (second - first);
  }
  return result;
}

Tensor whole_range(Wide first, Wide stop, Wide step, Dtype dtype) {
  const Wide gap = stop - first;
  const Wide count = (gap + step + (step > 0 ? -1 : 1)) / step;
  const int64_t n = (gap > 0) == (step > 0) && gap != 0 ? checked_count(count) : 0;
  if (is_floating(dtype) && (first > INT64_MAX || stop > INT64_MAX)) {
    return float_range(static_cast<double>(first), static_cast<double>(first + step), n);
  }
  // What only uint64 holds is there as its bits.
  const Dtype made = dtype == Dtype::kUInt64 ? dtype : Dtype::kInt64;
  Tensor result = empty(Shape{n}, made, default_device());
  materialize(result);
  auto* values = static_cast<int64_t*>(result.data());
  for (int64_t i = 0; i < n; ++i) values[i] = static_cast<int64_t>(first + i * step);
  return result;
}

// As NumPy counts: how many, and start + i * (second - start).
nb::object arange(nb::handle start, nb::handle stop, nb::handle step, nb::handle dtype) {
  WeakNumber numbers[3];
  const nb::handle given[3] = {stop.is_none() ? nb::handle(Py_None) : start,
                               stop.is_none() ? start : stop, step};
  numbers[0].value = Scalar(0);
  numbers[2].value = Scalar(1);
  bool whole = true, big = false;
  for (int i = 0; i < 3; ++i) {
    if (given[i].is_none()) continue;
    nb::object value = nb::borrow(given[i]);
    if (!parse_weak(value.ptr(), numbers[i])) {
      value = item_object(make_tensor(value).tensor());
      if (!parse_weak(value.ptr(), numbers[i])) {
        fail(ErrorKind::kTypeMismatch, "arange: numbers are needed, not ", name_of_type(given[i]));
      }
    }
    whole = whole && is_whole(numbers[i]);
    big = big || numbers[i].is_big;
  }
  const double first = double_of(numbers[0]);
  const double by = double_of(numbers[2]);
  if (by == 0) fail(ErrorKind::kInvalidArgument, "arange: step is 0; give another one");
  const Dtype wanted = parse_dtype(dtype, whole && !big ? Dtype::kInt64 : Dtype::kFloat64);
  const Tensor result =
      whole ? whole_range(whole_of(numbers[0]), whole_of(numbers[1]), whole_of(numbers[2]), wanted)
            : float_range(first, first + by,
                          checked_count(std::ceil((double_of(numbers[1]) - first) / by)));
  return wrap(wanted == result.dtype() ? result : cast(result, wanted));
}

nb::object join(nb::handle tensors, int axis) {
  const nb::object items = nb::steal(PySequence_Fast(tensors.ptr(), "cat: a sequence is needed"));
  if (!items.is_valid()) raise_set();
  std::vector<Tensor> parts;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
    parts.push_back(make_tensor(PySequence_Fast_GET_ITEM(items.ptr(), i)).tensor());
  }
  Tensor result;
  {
    const Unlocked unlocked;
    result = cat(parts, axis, Rules::numpy);
  }
  return wrap(std::move(result));
}

}  // namespace

void register_making(nb::module_& m) {
  for (PyMethodDef& function : array_functions) {
    const nb::object made =
        nb::steal(PyCFunction_NewEx(&function, nullptr, nb::str("hologram").ptr()));
    if (!made.is_valid()) raise_set();
    m.attr(function.ml_name) = made;
  }
  m.def(
      "_operand", [](nb::handle x) { return tensor_from(x, nb::handle(), Sharing::kOperand); },
      nb::arg("x").none(), nb::sig("def _operand(x: typing.Any) -> Tensor"),
      "Return a Tensor that stands for `x` while one function computes; it may share the memory.");
  m.def(
      "_as_tensor", [](nb::handle x) { return tensor_from(x, nb::handle(), Sharing::kView); },
      nb::arg("x").none(), nb::sig("def _as_tensor(x: typing.Any) -> Tensor"),
      "Return a Tensor on the memory of `x` where that can be, for functions that make views.");
  m.def(
      "_adopt",
      [](nb::handle x) {
        HostArray host(x);
        if (!host.is_in_place()) return wrap(from_host(host.view(), default_device()));
        return wrap(std::move(host).adopt(default_device(), false));
      },
      nb::arg("x"), nb::sig("def _adopt(x: typing.Any) -> Tensor"),
      "Return a Tensor on the memory of an array that has no other owner, so that ops defer.");
  m.def(
      "empty",
      [](nb::handle shape, nb::handle dtype) {
        return wrap(
            empty(parse_shape(shape), parse_dtype(dtype, Dtype::kFloat64), default_device()));
      },
      nb::arg("shape"), nb::arg("dtype") = nb::none(),
      nb::sig(
          "def empty(shape: int | collections.abc.Sequence[int], dtype: typing.Any = 'float64') "
          "-> Tensor"),
      "Return a Tensor with undefined contents.");
  m.def(
      "zeros",
      [](nb::handle shape, nb::handle dtype) {
        return make_filled(shape, 0.0, parse_dtype(dtype, Dtype::kFloat64));
      },
      nb::arg("shape"), nb::arg("dtype") = nb::none(),
      nb::sig(
          "def zeros(shape: int | collections.abc.Sequence[int], dtype: typing.Any = 'float64') "
          "-> Tensor"),
      "Return a Tensor of zeros.");
  m.def(
      "ones",
      [](nb::handle shape, nb::handle dtype) {
        return make_filled(shape, 1.0, parse_dtype(dtype, Dtype::kFloat64));
      },
      nb::arg("shape"), nb::arg("dtype") = nb::none(),
      nb::sig("def ones(shape: int | collections.abc.Sequence[int], dtype: typing.Any = 'float64') "
              "-> Tensor"),
      "Return a Tensor of ones.");
  m.def("full", &full_object, nb::arg("shape"), nb::arg("value"), nb::arg("dtype") = nb::none(),
        nb::sig("def full(shape: int | collections.abc.Sequence[int], value: typing.Any, "
                "dtype: typing.Any = None) -> Tensor"),
        "Return a Tensor of one value, in that value's dtype unless another is given.");
  m.def("arange", &arange, nb::arg("start"), nb::arg("stop") = nb::none(),
        nb::arg("step") = nb::none(), nb::arg("dtype") = nb::none(),
        nb::sig("def arange(start: float, stop: float | None = None, step: float | None = None, "
                "dtype: typing.Any = None) -> Tensor"),
        "Return the numbers from start (0 where only one is given) to before stop, by step.");
  m.def("cat", &join, nb::arg("tensors"), nb::arg("axis") = 0,
        nb::sig("def cat(tensors: collections.abc.Sequence[typing.Any], axis: int = 0) -> Tensor"),
        "Return the Tensors joined along a dimension; their other sizes are equal.");
}

}  // namespace hologram::python
