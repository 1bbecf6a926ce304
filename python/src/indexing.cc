// SPDX-License-Identifier: MIT
// tensor[...] : views by ints, slices, Ellipsis and None, a copy of a single element; the rest
// through NumPy.
#include <cstring>
#include <optional>
#include <vector>

#include "convert.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"
#include "objects.h"
#include "operators.h"

namespace hologram::python {
namespace {

// One step after the other through the dimensions of a tensor.
class Indexer {
 public:
  explicit Indexer(const Tensor& tensor) : tensor_(tensor), offset_(tensor.offset()) {}

  // False where an index is an array or a bool.
  bool apply(PyObject* key) {
    if (!PyTuple_Check(key)) {
      if (!count(key) || !apply_one(key)) return false;
    } else {
      const Py_ssize_t n = PyTuple_GET_SIZE(key);
      for (Py_ssize_t i = 0; i < n; ++i) {
        if (!count(PyTuple_GET_ITEM(key, i))) return false;
      }
      for (Py_ssize_t i = 0; i < n; ++i) {
        if (!apply_one(PyTuple_GET_ITEM(key, i))) return false;
      }
    }
    while (dim_ < tensor_.ndim()) keep(1);
    return true;
  }
  // Whether ints alone named one element: NumPy answers with a scalar, which shares no memory.
  bool is_element() const { return only_ints_ && shape_.empty(); }
  Tensor view() && {
    // A view without elements keeps the offset.
    if (shape_numel(shape_) == 0) offset_ = tensor_.offset();
    return Tensor(tensor_.buffer(), std::move(shape_), std::move(strides_), tensor_.dtype(),
                  offset_);
  }

 private:
  // Notes how many dimensions an index takes.
  bool count(PyObject* index) {
    if (index == Py_None) return true;
    if (index == Py_Ellipsis) {
      if (has_ellipsis_) {
        fail(ErrorKind::kIndex, "an index can only have a single ellipsis ('...')");
      }
      has_ellipsis_ = true;
      return true;
    }
    if (PyBool_Check(index) || (!PySlice_Check(index) && PyIndex_Check(index) == 0)) return false;
    // A Tensor of bool is a mask, also without dimensions.
    const TensorObject* tensor = tensor_of(index);
    if (tensor != nullptr && tensor->tensor.dtype() == Dtype::kBool) return false;
    if (++taken_ > tensor_.ndim()) {
      fail(ErrorKind::kIndex, "too many indices: the Tensor has ", tensor_.ndim(),
           " dimensions, but ", taken_, " were indexed");
    }
    return true;
  }

  bool apply_one(PyObject* index) {
    only_ints_ = only_ints_ && index != Py_None && index != Py_Ellipsis && !PySlice_Check(index);
    if (index == Py_None) {
      shape_.push_back(1);
      strides_.push_back(0);
    } else if (index == Py_Ellipsis) {
      keep(tensor_.ndim() - taken_);
    } else if (PySlice_Check(index)) {
      take_slice(index);
    } else {
      return take_int(index);
    }
    return true;
  }

  void keep(int dims) {
    for (int i = 0; i < dims; ++i, ++dim_) {
      shape_.push_back(tensor_.size(dim_));
      strides_.push_back(tensor_.stride(dim_));
    }
  }

  void take_slice(PyObject* slice) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(slice, &start, &stop, &step) != 0) raise_set();
    const Py_ssize_t n = PySlice_AdjustIndices(tensor_.size(dim_), &start, &stop, step);
    if (n > 0) offset_ += start * tensor_.stride(dim_);
    shape_.push_back(n);
    // A stride beyond the address space belongs to a dimension of at most one element.
    int64_t stride = 0;
    if (n < 2 || __builtin_mul_overflow(tensor_.stride(dim_), step, &stride)) {
      stride = tensor_.stride(dim_);
    }
    strides_.push_back(stride);
    ++dim_;
  }

  bool take_int(PyObject* index) {
    const Py_ssize_t value = PyNumber_AsSsize_t(index, PyExc_IndexError);
    if (value == -1 && PyErr_Occurred() != nullptr) {
      // Arrays of several elements have __index__ to say that it does not work.
      if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) raise_set();
      PyErr_Clear();
      return false;
    }
    const int64_t size = tensor_.size(dim_);
    if (value < -size || value >= size) {
      fail(ErrorKind::kIndex, "index ", value, " is out of bounds for dimension ", dim_,
           " with size ", size);
    }
    offset_ += (value < 0 ? value + size : value) * tensor_.stride(dim_);
    ++dim_;
    return true;
  }

  const Tensor& tensor_;
  int64_t offset_;
  Shape shape_;
  Shape strides_;
  int dim_ = 0;    // the next of the tensor
  int taken_ = 0;  // by ints and slices
  bool has_ellipsis_ = false;
  bool only_ints_ = true;
};

// The position of the element that `key`, an int or a tuple of as many ints as there are
// dimensions, names. Empty for other keys and for ints out of range, which Indexer explains.
std::optional<int64_t> position_of(const Tensor& tensor, PyObject* key) {
  const bool is_tuple = PyTuple_CheckExact(key);
  const Py_ssize_t count = is_tuple ? PyTuple_GET_SIZE(key) : 1;
  if (count != tensor.ndim()) return std::nullopt;
  int64_t offset = tensor.offset();
  for (Py_ssize_t d = 0; d < count; ++d) {
    PyObject* const index = is_tuple ? PyTuple_GET_ITEM(key, d) : key;
    Py_ssize_t value;
    if (PyLong_CheckExact(index)) {
      value = PyLong_AsSsize_t(index);
      if (value == -1 && PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        return std::nullopt;
      }
    } else if (const TensorObject* held = tensor_of(index)) {
      const std::optional<int64_t> known = integer_at_hand(held->tensor);
      if (!known) return std::nullopt;
      value = *known;
    } else {
      return std::nullopt;
    }
    const int64_t size = tensor.shape()[static_cast<size_t>(d)];
    if (value < 0) value += size;
    if (value < 0 || value >= size) return std::nullopt;
    offset += value * tensor.strides()[static_cast<size_t>(d)];
  }
  return offset;
}

// The element at that position, which is copied at once where it is known and may be.
nb::object element_at(const Tensor& tensor, int64_t offset) {
  const size_t size = itemsize(tensor.dtype());
  if (!is_immediate(static_cast<int64_t>(size)) || !is_readable_at_call(*tensor.buffer())) {
    return wrap_scalar(copy_of(Tensor(tensor.buffer(), {}, {}, tensor.dtype(), offset)));
  }
  Buffer* const memory = allocate_buffer(tensor.buffer()->device(), size);
  memory->set_dtype(tensor.dtype());
  std::memcpy(memory->data(),
              tensor.buffer()->data_as<char>() + offset * static_cast<int64_t>(size), size);
  return wrap_scalar(Tensor(BufferRef::adopt(memory), {}, tensor.dtype()));
}

template <class T>
bool put_number(char* to, T number) {
  std::memcpy(to, &number, sizeof(number));
  return true;
}

// Writes a float or int of Python's, or an element of that dtype that is known, at its call; false
// where it is another case.
bool put_at_call(const Tensor& tensor, int64_t offset, PyObject* value) {
  const auto size = static_cast<int64_t>(itemsize(tensor.dtype()));
  if (!is_immediate(size) || !is_writable_at_call(*tensor.buffer())) return false;
  if (tensor.buffer()->data() == nullptr) return false;
  char* const to = tensor.buffer()->data_as<char>() + offset * size;
  if (const TensorObject* held = tensor_of(value)) {
    const Tensor& from = held->tensor;
    if (from.dtype() != tensor.dtype() || from.numel() != 1 || !from.buffer() ||
        !is_readable_at_call(*from.buffer())) {
      return false;
    }
    std::memmove(to, from.data(), static_cast<size_t>(size));
    return true;
  }
  if (PyFloat_CheckExact(value)) {
    const double number = PyFloat_AS_DOUBLE(value);
    if (tensor.dtype() == Dtype::kFloat64) return put_number(to, number);
    return tensor.dtype() == Dtype::kFloat32 && put_number(to, static_cast<float>(number));
  }
  if (!PyLong_CheckExact(value)) return false;
  int overflow = 0;
  const int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow != 0) return false;
  if (tensor.dtype() == Dtype::kInt64) return put_number(to, number);
  return tensor.dtype() == Dtype::kFloat64 && put_number(to, static_cast<double>(number));
}

std::optional<Tensor> view_at(const Tensor& tensor, PyObject* key) {
  if (!tensor.buffer()) return std::nullopt;
  Indexer indexer(tensor);
  if (!indexer.apply(key)) return std::nullopt;
  return std::move(indexer).view();
}

PyObject* get(PyObject* self, PyObject* key) {
  return guarded([&] {
    const TensorObject& object = self_of(self);
    if (object.tensor.buffer()) {
      const std::optional<int64_t> position =
          object.is_scalar ? std::nullopt : position_of(object.tensor, key);
      if (position) return element_at(object.tensor, *position).release().ptr();
      Indexer indexer(object.tensor);
      if (indexer.apply(key)) {
        const bool is_element = indexer.is_element();
        if (is_element && object.is_scalar) return Py_NewRef(self);
        Tensor view = std::move(indexer).view();
        if (is_element) return element_at(view, view.offset()).release().ptr();
        if (object.is_scalar) return wrap(copy_of(view)).release().ptr();
        return wrap(std::move(view), object.readonly).release().ptr();
      }
    }
    return helper("hologram._numpy", "take", nb::handle(self), nb::handle(key)).release().ptr();
  });
}

bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.buffer() == b.buffer() && a.offset() == b.offset() && a.shape() == b.shape() &&
         a.strides() == b.strides() && a.dtype() == b.dtype();
}

void assign(const Tensor& view, PyObject* value) {
  WeakNumber number;
  if (tensor_of(value) == nullptr && parse_weak(value, number)) {
    if (is_integer(view.dtype())) check_fits(number, view.dtype());
    const Unlocked unlocked(is_long(view));
    fill_into(number.value_in(view.dtype()), view);
    return;
  }
  Tensor source = make_tensor(value).tensor;
  if (is_complex(source.dtype()) && !is_complex(view.dtype())) {
    fail(ErrorKind::kTypeMismatch, "cannot assign ", dtype_name(source.dtype()), " to ",
         dtype_name(view.dtype()), "; assign the real or the imaginary part");
  }
  if (is_same_view(source, view)) return;  // x[i] += y comes here with what it wrote
  // NumPy lets sizes of 1 in front go.
  while (source.ndim() > view.ndim() && source.size(0) == 1) source = source.squeeze(0);
  const Unlocked unlocked(is_long(view));
  copy_into(source, view);
}

int set(PyObject* self, PyObject* key, PyObject* value) {
  return guarded_int([&] {
    TensorObject& object = self_of(self);
    if (value == nullptr) {
      fail(ErrorKind::kTypeMismatch, "elements of a Tensor cannot be deleted");
    }
    const TensorObject* mask = object.is_scalar ? tensor_of(key) : nullptr;
    if (mask != nullptr && mask->tensor.dtype() == Dtype::kBool && mask->tensor.ndim() == 0) {
      // Code for any array API does so with what it computed. No other object has this memory.
      const nb::object made = wrap(copy_of(object.tensor));
      helper("hologram._numpy", "put", made, nb::handle(key), nb::handle(value));
      object.tensor = self_of(made.ptr()).tensor;
      return 0;
    }
    object.check_writable("assignment");
    if (object.tensor.buffer()) {
      const std::optional<int64_t> position = position_of(object.tensor, key);
      if (position && put_at_call(object.tensor, *position, value)) return 0;
    }
    if (const std::optional<Tensor> view = view_at(object.tensor, key)) {
      assign(*view, value);
    } else {
      helper("hologram._numpy", "put", nb::handle(self), nb::handle(key), nb::handle(value));
    }
    return 0;
  });
}

Py_ssize_t length(PyObject* self) {
  Py_ssize_t result = -1;
  guarded_int([&] {
    const Tensor& tensor = self_of(self).tensor;
    if (tensor.ndim() == 0) {
      fail(ErrorKind::kTypeMismatch, "len() of a Tensor without dimensions");
    }
    result = tensor.size(0);
    return 0;
  });
  return result;
}

PyObject* item_at(PyObject* self, Py_ssize_t index) {
  return guarded([&] {
    const TensorObject& object = self_of(self);
    Tensor item = object.tensor.select(0, index);
    if (item.ndim() == 0) return element_at(item, item.offset()).release().ptr();  // as of t[index]
    return wrap(std::move(item), object.readonly).release().ptr();
  });
}

PyObject* iterate(PyObject* self) {
  return guarded([&] {
    if (self_of(self).tensor.ndim() == 0) {
      fail(ErrorKind::kTypeMismatch, "iteration over a Tensor without dimensions");
    }
    return PySeqIter_New(self);
  });
}

int contains(PyObject* self, PyObject* value) {
  return guarded_int([&] {
    const nb::object equal = nb::steal(PyObject_RichCompare(self, value, Py_EQ));
    if (!equal.is_valid()) raise_set();
    const TensorObject* found = tensor_of(equal.ptr());
    if (found == nullptr) {  // what NumPy compared, or the value itself
      const nb::object any = nb::module_::import_("numpy").attr("asarray")(equal).attr("any")();
      return PyObject_IsTrue(any.ptr());
    }
    const Tensor any = reduce(Reduction::any, found->tensor);
    return PyObject_IsTrue(item_object(any).ptr());
  });
}

}  // namespace

void add_indexing_slots(std::vector<PyType_Slot>& slots) {
  const auto add = [&](int slot, auto* function) {
    slots.push_back({slot, reinterpret_cast<void*>(function)});
  };
  add(Py_mp_subscript, &get);
  add(Py_mp_ass_subscript, &set);
  add(Py_mp_length, &length);
  add(Py_sq_length, &length);
  add(Py_sq_item, &item_at);
  add(Py_sq_contains, &contains);
  add(Py_tp_iter, &iterate);
}

}  // namespace hologram::python
