// SPDX-License-Identifier: MIT
// NumPy's order= of copies, ravel, flatten and reshape, and the layouts of tensors made like
// others.
#include "order.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>

#include "convert.h"
#include "hologram/functions.h"

namespace hologram::python {
namespace {

std::vector<int> dims_of(const Tensor& tensor) {
  std::vector<int> dims(static_cast<size_t>(tensor.ndim()));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

bool is_column_major(const Tensor& tensor, Order order) {
  return order == Order::kColumns ||
         (order == Order::kAny && !tensor.is_contiguous() && is_in_order(tensor, Order::kColumns));
}

// As NumPy walks the elements in the order of memory: a stride of 0 says nothing about the order of
// two dimensions, which then stay as they are.
std::vector<int> dims_as_read(const Tensor& tensor) {
  std::vector<int> dims;
  for (int dim = tensor.ndim() - 1; dim >= 0; --dim) {
    const int64_t step = std::abs(tensor.stride(dim));
    auto place = dims.begin();
    for (auto outer = dims.begin(); outer != dims.end(); ++outer) {
      const int64_t other = std::abs(tensor.stride(*outer));
      if (step == 0 || other == 0) continue;
      if (other <= step) break;
      place = outer + 1;
    }
    dims.insert(place, dim);
  }
  return dims;
}

nb::object wrap_view(const TensorObject& self, Tensor view) {
  return self.is_scalar ? view_of(self, std::move(view)) : wrap(std::move(view), self.readonly);
}

}  // namespace

std::optional<Order> parse_order(nb::handle order) {
  if (order.is_none()) return std::nullopt;
  const bool is_bytes = PyBytes_Check(order.ptr()) != 0;
  if (!is_bytes && PyUnicode_Check(order.ptr()) == 0) {
    fail(ErrorKind::kTypeMismatch, "order must be str, not ", name_of_type(order));
  }
  const char* const given =
      is_bytes ? PyBytes_AS_STRING(order.ptr()) : PyUnicode_AsUTF8(order.ptr());
  if (given == nullptr) raise_set();
  const std::string name = given;
  if (name.size() == 1) {
    const char letter = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
    for (const Order known : {Order::kRows, Order::kColumns, Order::kAny, Order::kKeep}) {
      if (letter == static_cast<char>(known)) return known;
    }
  }
  fail(ErrorKind::kInvalidArgument, "order must be one of 'C', 'F', 'A', or 'K' (got '", name,
       "')");
}

Tensor reversed_dims(const Tensor& tensor) {
  std::vector<int> dims = dims_of(tensor);
  std::reverse(dims.begin(), dims.end());
  return tensor.permute(dims);
}

bool is_in_order(const Tensor& tensor, Order order) {
  if (order == Order::kKeep || (order != Order::kColumns && tensor.is_contiguous())) return true;
  return order != Order::kRows && reversed_dims(tensor).is_contiguous();
}

std::vector<int> dims_in_order(const Tensor& source, Order order) {
  std::vector<int> dims = dims_of(source);
  if (order == Order::kRows || source.is_contiguous()) {
    if (order == Order::kColumns) std::reverse(dims.begin(), dims.end());
    return dims;
  }
  if (is_column_major(source, order) ||
      (order == Order::kKeep && is_in_order(source, Order::kColumns))) {
    std::reverse(dims.begin(), dims.end());
  } else if (order == Order::kKeep) {
    std::stable_sort(dims.begin(), dims.end(), [&](int a, int b) {
      return std::abs(source.stride(a)) > std::abs(source.stride(b));
    });
  }
  return dims;
}

Tensor laid_out(const Tensor& rows, const std::vector<int>& dims) {
  std::vector<int> places(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0 || dims[i] >= rows.ndim()) {
      fail(ErrorKind::kIndex, "dimension ", dims[i], " is out of range");
    }
    places[static_cast<size_t>(dims[i])] = static_cast<int>(i);
  }
  return rows.permute(places);
}

Tensor copy_in_order(const Tensor& source, Order order, Dtype dtype) {
  const std::vector<int> dims = dims_in_order(source, order);
  const Tensor view = source.permute(dims);
  return laid_out(view.dtype() == dtype ? copy_of(view) : cast(view, dtype), dims);
}

nb::object flatten_in_order(const TensorObject& self, nb::handle order, bool copies) {
  const Order given = parse_order(order).value_or(Order::kRows);
  Tensor view = self.tensor();
  if (given == Order::kKeep) {
    view = view.permute(dims_as_read(view));
  } else if (is_column_major(view, given)) {
    view = reversed_dims(view);
  }
  if (!copies && view.is_contiguous()) return wrap_view(self, view.reshape(Shape{-1}));
  return wrap(copy_of(view).reshape(Shape{-1}));
}

nb::object reshape_in_order(const TensorObject& self, const Shape& shape, nb::handle order) {
  const Order given = parse_order(order).value_or(Order::kRows);
  if (given == Order::kKeep) {
    fail(ErrorKind::kInvalidArgument,
         "order 'K' is not permitted for reshaping; use 'C', 'F' or 'A'");
  }
  const bool reverses = is_column_major(self.tensor(), given);
  const Tensor from = reverses ? reversed_dims(self.tensor()) : self.tensor();
  Shape wanted = shape;
  if (reverses) std::reverse(wanted.begin(), wanted.end());
  const bool is_view = from.try_reshape(wanted).has_value();
  Tensor found = reshaped(from, wanted);
  if (reverses) found = reversed_dims(found);
  if (is_view) return wrap_view(self, std::move(found));
  return reverses ? wrap_whole(std::move(found)) : wrap(std::move(found));
}

}  // namespace hologram::python
