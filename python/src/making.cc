// SPDX-License-Identifier: MIT
// Functions that make tensors: of arrays and lists, of one value, of ranges, of other tensors.
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "convert.h"
#include "dtype.h"
#include "hologram/functions.h"
#include "host_array.h"
#include "objects.h"

namespace hologram::python {
namespace {

Sharing parse_sharing(nb::handle copy) {
  if (copy.is_none()) return Sharing::kWhereItCan;
  return to_bool(copy) ? Sharing::kNever : Sharing::kAlways;
}

nb::object array(nb::handle x, nb::handle dtype, nb::handle copy) {
  std::optional<Dtype> wanted;
  if (!dtype.is_none()) wanted = parse_dtype(dtype);
  const Sharing sharing = parse_sharing(copy);
  if (sharing != Sharing::kNever && tensor_of(x.ptr()) != nullptr &&
      (!wanted || *wanted == tensor_of(x.ptr())->tensor.dtype())) {
    return nb::borrow(x);
  }
  return wrap_as(tensor_type, make_tensor(x, wanted, sharing));
}

nb::object make_filled(nb::handle shape, const Scalar& value, Dtype dtype) {
  return wrap(full(parse_shape(shape), value, dtype, default_device()));
}

nb::object full_object(nb::handle shape, nb::handle value, nb::handle dtype) {
  WeakNumber number;
  if (!parse_weak(value.ptr(), number)) {
    const Tensor source = make_tensor(value).tensor;
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
      value = item_object(make_tensor(value).tensor);
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
    parts.push_back(make_tensor(PySequence_Fast_GET_ITEM(items.ptr(), i)).tensor);
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
  m.def(
      "array", [](nb::handle x, nb::handle dtype) { return array(x, dtype, nb::bool_(true)); },
      nb::arg("x").none(), nb::arg("dtype") = nb::none(),
      nb::sig("def array(x: typing.Any, dtype: typing.Any = None) -> Tensor"),
      "Return a Tensor with memory of its own, a copy of `x`: an array, numbers, nested lists.\n\n"
      "Ops on it are deferred. TypeError for dtypes that hologram lacks, ValueError for ragged\n"
      "lists, OverflowError for an int that the dtype does not hold.");
  m.def("asarray", &array, nb::arg("x").none(), nb::arg("dtype") = nb::none(), nb::kw_only(),
        nb::arg("copy") = nb::none(),
        nb::sig("def asarray(x: typing.Any, dtype: typing.Any = None, *, copy: bool | None = None) "
                "-> Tensor"),
        "Return a Tensor on the memory of `x`, without a copy where that can be: of arrays that\n"
        "lie in host memory, aligned. As the owner may write it any time, ops on it run at their\n"
        "calls. With copy=False ValueError where only a copy would do.");
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
