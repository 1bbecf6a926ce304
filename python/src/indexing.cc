// SPDX-License-Identifier: MIT
// tensor[...] : views by ints, slices, Ellipsis and None, a copy of a single element or of what
// arrays of positions and masks name.
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "convert.h"
#include "hologram/functions.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"
#include "interop/host_array.h"
#include "interop/numpy_classes.h"
#include "looks.h"
#include "objects.h"
#include "operators.h"

namespace hologram::python {
namespace {

// An index that is an array, or stands for one.
struct ArrayIndex {
  enum class Kind : uint8_t { kPositions, kMask, kBool, kInt };
  Kind kind;
  Tensor tensor;      // of kPositions and kMask
  int64_t value = 0;  // of kBool and kInt
};

constexpr const char* kIndices =
    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean "
    "arrays are valid indices";

// True for an index that counts as an array, and is no int, slice, Ellipsis or None.
bool is_array(PyObject* index) {
  if (index == Py_None || index == Py_Ellipsis || PySlice_Check(index)) return false;
  if (PyLong_Check(index)) return PyBool_Check(index);
  if (const Element* element = scalar_value(index)) return !is_integer(element->dtype);
  if (const TensorObject* held = tensor_of(index)) {
    return held->tensor().ndim() != 0 || !is_integer(held->tensor().dtype());
  }
  if (PyList_CheckExact(index) || is_ndarray(index) || PyIndex_Check(index) == 0) return true;
  const nb::object number = nb::steal(PyNumber_Index(index));
  if (number.is_valid()) return false;
  // Arrays of several elements have __index__ to say that it does not work.
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) raise_set();
  PyErr_Clear();
  return true;
}

// The value of a bound that is a small int or a Scalar whose value is there; false for others.
bool read_bound(PyObject* object, Py_ssize_t& value) {
  if (object == Py_None) return true;  // the default stays
  if (const TensorObject* held = tensor_of(object)) {
    const std::optional<int64_t> known = integer_at_hand(*held);
    if (known) value = *known;
    return known.has_value();
  }
  if (!PyLong_CheckExact(object)) return false;
  const Py_ssize_t given = PyLong_AsSsize_t(object);
  if (given == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return false;
  }
  value = given;
  return true;
}

// PySlice_Unpack, which would make Python's ints of Scalars.
void unpack_slice(PyObject* object, Py_ssize_t& start, Py_ssize_t& stop, Py_ssize_t& step) {
  const auto* const slice = reinterpret_cast<PySliceObject*>(object);
  start = 0, stop = PY_SSIZE_T_MAX, step = 1;
  if (slice->step == Py_None && read_bound(slice->start, start) && read_bound(slice->stop, stop)) {
    return;
  }
  if (PySlice_Unpack(object, &start, &stop, &step) != 0) raise_set();
}

// Small arrays are copied, so that ops on them may wait.
Tensor tensor_of_array(PyObject* array) {
  HostArray host(array);
  const View view = host.view();
  const int64_t bytes = view.numel() * static_cast<int64_t>(itemsize(view.dtype));
  Device& device = default_device();
  if (!is_immediate(bytes) && host.is_in_place()) return std::move(host).adopt(device);
  const Shape dense = contiguous_strides(host.shape());
  if (!std::equal(dense.begin(), dense.end(), view.strides)) return from_host(view, device);
  BufferRef memory = BufferRef::adopt(allocate_buffer(device, static_cast<size_t>(bytes)));
  memory->set_dtype(view.dtype);
  if (bytes != 0) std::memcpy(memory->data(), view.data, static_cast<size_t>(bytes));
  return Tensor(std::move(memory), host.shape(), view.dtype);
}

Tensor make_index(PyObject* index) {
  if (const TensorObject* held = tensor_of(index)) return held->tensor();
  if (PyFloat_Check(index) || PyComplex_Check(index) || PyUnicode_Check(index) ||
      PyBytes_Check(index)) {
    fail(ErrorKind::kIndex, kIndices);
  }
  try {
    if (is_ndarray(index)) return tensor_of_array(index);
    return make_tensor(index).tensor();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kTypeMismatch) throw;
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_OverflowError)) throw;
  }
  fail(ErrorKind::kIndex, kIndices);
}

ArrayIndex settle_array(PyObject* index) {
  using Kind = ArrayIndex::Kind;
  if (PyBool_Check(index)) return {Kind::kBool, {}, index == Py_True ? 1 : 0};
  Tensor tensor = make_index(index);
  const bool is_number = tensor.ndim() == 0;
  if (tensor.dtype() == Dtype::kBool) {
    if (is_number) return {Kind::kBool, {}, item(tensor).b != 0 ? 1 : 0};
    return {Kind::kMask, std::move(tensor)};
  }
  if (is_integer(tensor.dtype())) {
    if (is_number) return {Kind::kInt, {}, item(tensor).i64};
    return {Kind::kPositions, std::move(tensor)};
  }
  // Lists without elements have no dtype of their own.
  if (tensor.numel() == 0 && PyList_Check(index)) {
    return {Kind::kPositions, cast(tensor, Dtype::kInt64)};
  }
  fail(ErrorKind::kIndex, "arrays used as indices must be of integer (or boolean) type, not ",
       dtype_name(tensor.dtype()));
}

// One step after the other through the dimensions of a tensor.
class Indexer {
 public:
  explicit Indexer(const Tensor& tensor) : tensor_(tensor), offset_(tensor.offset()) {}

  void apply(PyObject* key) {
    if (!PyTuple_Check(key)) {
      count(key);
      apply_one(key);
    } else {
      const Py_ssize_t n = PyTuple_GET_SIZE(key);
      for (Py_ssize_t i = 0; i < n; ++i) count(PyTuple_GET_ITEM(key, i));
      for (Py_ssize_t i = 0; i < n; ++i) apply_one(PyTuple_GET_ITEM(key, i));
    }
    while (dim_ < tensor_.ndim()) keep(1);
  }
  // Whether ints alone named one element: NumPy answers with a scalar, which shares no memory.
  bool is_element() const { return only_ints_ && shape_.empty(); }
  // The view that ints, slices and None make of the tensor, to which the array indices apply.
  Tensor view() {
    // A view without elements keeps the offset.
    if (shape_numel(shape_) == 0) offset_ = tensor_.offset();
    return Tensor(tensor_.buffer(), std::move(shape_), std::move(strides_), tensor_.dtype(),
                  offset_);
  }
  const std::vector<DimIndex>& indices() const { return indices_; }
  int place() const { return place_; }

 private:
  // Notes how many dimensions an index takes.
  void count(PyObject* index) {
    if (index == Py_None) return;
    if (index == Py_Ellipsis) {
      if (has_ellipsis_) {
        fail(ErrorKind::kIndex, "an index can only have a single ellipsis ('...')");
      }
      has_ellipsis_ = true;
      return;
    }
    if (is_array(index)) {
      arrays_.push_back(settle_array(index));
      const ArrayIndex& array = arrays_.back();
      taken_ += array.kind == ArrayIndex::Kind::kMask   ? array.tensor.ndim()
                : array.kind == ArrayIndex::Kind::kBool ? 0
                                                        : 1;
    } else {
      ++taken_;
    }
    if (taken_ > tensor_.ndim()) {
      fail(ErrorKind::kIndex, "too many indices: the Tensor has ", tensor_.ndim(),
           " dimensions, but ", taken_, " were indexed");
    }
  }

  void apply_one(PyObject* index) {
    if (index == Py_None) {
      note_view();
      add_new();
    } else if (index == Py_Ellipsis) {
      note_view();
      keep(tensor_.ndim() - taken_);
    } else if (PySlice_Check(index)) {
      note_view();
      take_slice(index);
    } else if (next_ < arrays_.size() && is_array(index)) {
      take_array(arrays_[next_++]);
    } else {
      const Py_ssize_t value = PyNumber_AsSsize_t(index, PyExc_IndexError);
      if (value == -1 && PyErr_Occurred() != nullptr) raise_set();
      take_int(value);
    }
  }

  // The broadcast indices come where the first of them stands, or in front of all dimensions where
  // others lie between. Ints beside arrays count as arrays.
  void note_view() {
    only_ints_ = false;
    if (order_ == Order::kInside) order_ = Order::kBehind;
  }
  void note_array() {
    if (order_ == Order::kBefore) {
      place_ = static_cast<int>(shape_.size());
      order_ = Order::kInside;
    } else if (order_ == Order::kBehind) {
      place_ = 0;
    }
  }

  void add_new() {
    shape_.push_back(1);
    strides_.push_back(0);
  }

  void keep(int dims) {
    for (int i = 0; i < dims; ++i, ++dim_) {
      shape_.push_back(next_size());
      strides_.push_back(next_stride());
    }
  }

  void take_slice(PyObject* slice) {
    Py_ssize_t start, stop, step;
    unpack_slice(slice, start, stop, step);
    const Py_ssize_t n = PySlice_AdjustIndices(next_size(), &start, &stop, step);
    if (n > 0) offset_ += start * next_stride();
    shape_.push_back(n);
    // A stride beyond the address space belongs to a dimension of at most one element.
    int64_t stride = 0;
    if (n < 2 || __builtin_mul_overflow(next_stride(), step, &stride)) {
      stride = next_stride();
    }
    strides_.push_back(stride);
    ++dim_;
  }

  void take_int(int64_t value) {
    note_array();
    const int64_t size = next_size();
    if (value < -size || value >= size) {
      fail(ErrorKind::kIndex, "index ", value, " is out of bounds for dimension ", dim_,
           " with size ", size);
    }
    offset_ += (value < 0 ? value + size : value) * next_stride();
    ++dim_;
  }

  void take_array(const ArrayIndex& array) {
    using Kind = ArrayIndex::Kind;
    if (array.kind == Kind::kInt) return take_int(array.value);
    note_array();
    only_ints_ = false;
    const auto dim = static_cast<int>(shape_.size());
    if (array.kind == Kind::kBool) {
      // It indexes a new dimension, which a position or none is taken of.
      indices_.push_back(
          {dim, full({array.value}, Scalar(int64_t{0}), Dtype::kInt64, default_device()), dim_});
      return add_new();
    }
    indices_.push_back({dim, array.tensor, dim_});
    keep(array.kind == Kind::kMask ? array.tensor.ndim() : 1);
  }

  // The size and the stride of the next dimension; Tensor::size() would check it once more.
  int64_t next_size() const { return tensor_.shape()[static_cast<size_t>(dim_)]; }
  int64_t next_stride() const { return tensor_.strides()[static_cast<size_t>(dim_)]; }

  const Tensor& tensor_;
  int64_t offset_;
  Shape shape_;
  Shape strides_;
  int dim_ = 0;    // the next of the tensor
  int taken_ = 0;  // by ints, slices and arrays
  bool has_ellipsis_ = false;
  bool only_ints_ = true;
  std::vector<ArrayIndex> arrays_;  // of the key, in order
  size_t next_ = 0;
  std::vector<DimIndex> indices_;
  enum class Order : uint8_t { kBefore, kInside, kBehind } order_ = Order::kBefore;
  int place_ = 0;
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
      const std::optional<int64_t> known = integer_at_hand(*held);
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
  note_at_call(tensor.buffer()->device(), "x[i]", AtCall::kElement);
  Element element{tensor.dtype()};
  std::memcpy(element.bytes, tensor.buffer()->data_as<char>() + offset * static_cast<int64_t>(size),
              size);
  return wrap_element(element);
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
  if (const Element* element = scalar_value(value)) {
    if (element->dtype != tensor.dtype()) return false;
    std::memcpy(to, element->bytes, static_cast<size_t>(size));
    return true;
  }
  if (const TensorObject* held = tensor_of(value)) {
    const Tensor& from = held->tensor();
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

// Lets other threads run while large tensors are indexed or values are waited for.
bool may_take_long(const Tensor& x, std::span<const DimIndex> indices) {
  const auto is_slow = [](const Tensor& t) {
    return is_long(t) || !is_readable_at_call(*t.buffer());
  };
  return is_slow(x) ||
         std::ranges::any_of(indices, [&](const DimIndex& each) { return is_slow(each.index); });
}

Tensor index_unlocked(const Tensor& x, std::span<const DimIndex> indices, int place) {
  if (!may_take_long(x, indices)) return index(x, indices, place);
  const Look look("x[index]");
  const Unlocked unlocked;
  return index(x, indices, place);
}

// An array that is the whole key, as most of them are; empty for other keys.
std::optional<DimIndex> only_array(const Tensor& tensor, PyObject* key) {
  if (PyTuple_Check(key) || tensor.ndim() == 0 || !is_array(key)) return std::nullopt;
  if (const TensorObject* held = tensor_of(key)) {
    const Tensor& index = held->tensor();
    if (index.ndim() != 0 && index.ndim() <= tensor.ndim() &&
        (index.dtype() == Dtype::kBool || is_integer(index.dtype()))) {
      return std::optional<DimIndex>(std::in_place, 0, index);
    }
  }
  ArrayIndex array = settle_array(key);
  const bool is_mask = array.kind == ArrayIndex::Kind::kMask;
  if (!is_mask && array.kind != ArrayIndex::Kind::kPositions) return std::nullopt;
  if (is_mask && array.tensor.ndim() > tensor.ndim()) return std::nullopt;
  return DimIndex{0, std::move(array.tensor)};
}

PyObject* get(PyObject* self, PyObject* key) {
  return guarded([&] {
    const TensorObject& object = self_of(self);
    const std::optional<int64_t> position =
        object.is_scalar ? std::nullopt : position_of(object.tensor(), key);
    if (position) return element_at(object.tensor(), *position).release().ptr();
    if (const std::optional<DimIndex> array = only_array(object.tensor(), key)) {
      return wrap(index_unlocked(object.tensor(), {&*array, 1}, 0)).release().ptr();
    }
    Indexer indexer(object.tensor());
    indexer.apply(key);
    const bool is_element = indexer.is_element();
    if (is_element && object.is_scalar) return Py_NewRef(self);
    Tensor view = indexer.view();
    if (!indexer.indices().empty()) {
      return wrap(index_unlocked(view, indexer.indices(), indexer.place())).release().ptr();
    }
    if (is_element) return element_at(view, view.offset()).release().ptr();
    if (object.is_scalar) return wrap(copy_of(view)).release().ptr();
    return wrap(std::move(view), object.readonly).release().ptr();
  });
}

bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.buffer() == b.buffer() && a.offset() == b.offset() && a.shape() == b.shape() &&
         a.strides() == b.strides() && a.dtype() == b.dtype();
}

// A number of Python's, as the dtype that it is assigned to holds it. Empty for other values.
std::optional<Scalar> number_for(Dtype dtype, PyObject* value) {
  WeakNumber number;
  if (tensor_of(value) != nullptr || !parse_weak(value, number)) return std::nullopt;
  if (is_integer(dtype)) check_fits(number, dtype);
  return number.value_in(dtype);
}

Tensor source_for(const Tensor& target, PyObject* value) {
  Tensor source = make_tensor(value).tensor();
  if (is_complex(source.dtype()) && !is_complex(target.dtype())) {
    fail(ErrorKind::kTypeMismatch, "cannot assign ", dtype_name(source.dtype()), " to ",
         dtype_name(target.dtype()), "; assign the real or the imaginary part");
  }
  return source;
}

void assign(const Tensor& view, PyObject* value) {
  // x[i] += y comes here with what it wrote.
  const TensorObject* const held = tensor_of(value);
  if (held != nullptr && is_same_view(held->tensor(), view)) return;
  if (const std::optional<Scalar> number = number_for(view.dtype(), value)) {
    const Unlocked unlocked(is_long(view));
    fill_into(*number, view);
    return;
  }
  Tensor source = source_for(view, value);
  // NumPy lets sizes of 1 in front go.
  while (source.ndim() > view.ndim() && source.size(0) == 1) source = source.squeeze(0);
  const Unlocked unlocked(is_long(view));
  copy_into(source, view);
}

void assign_at(const Tensor& x, std::span<const DimIndex> indices, int place, PyObject* value,
               bool is_whole_key = false) {
  const Look look("x[index] = y");
  Device& device = x.buffer()->device();
  if (const std::optional<Scalar> number = number_for(x.dtype(), value)) {
    const Unlocked unlocked(may_take_long(x, indices));
    return index_put(x, indices, place, Operand(*number));
  }
  Tensor source = source_for(x, value);
  const Tensor& first = indices[0].index;
  if (is_whole_key && first.dtype() == Dtype::kBool && first.ndim() == x.ndim() &&
      source.ndim() > 1) {
    fail(ErrorKind::kTypeMismatch,
         "NumPy boolean array indexing assignment requires a 0 or 1-dimensional input, input has ",
         source.ndim(), " dimensions");
  }
  const Unlocked unlocked(may_take_long(x, indices));
  if (&source.buffer()->device() != &device) {
    materialize(source);
    source = from_host(source.view(), device);
  }
  index_put(x, indices, place, source);
}

void put_key(const Tensor& tensor, PyObject* key, PyObject* value) {
  if (const std::optional<DimIndex> array = only_array(tensor, key)) {
    return assign_at(tensor, {&*array, 1}, 0, value, true);
  }
  Indexer indexer(tensor);
  indexer.apply(key);
  const Tensor view = indexer.view();
  if (indexer.indices().empty()) return assign(view, value);
  assign_at(view, indexer.indices(), indexer.place(), value);
}

int set(PyObject* self, PyObject* key, PyObject* value) {
  return guarded_int([&] {
    TensorObject& object = self_of(self);
    if (value == nullptr) {
      fail(ErrorKind::kTypeMismatch, "elements of a Tensor cannot be deleted");
    }
    const TensorObject* mask = object.is_scalar ? tensor_of(key) : nullptr;
    if (mask != nullptr && mask->tensor().dtype() == Dtype::kBool && mask->tensor().ndim() == 0) {
      // Code for any array API does so with what it computed. No other object has this memory.
      Tensor made = copy_of(object.tensor());
      put_key(made, key, value);
      object.set_tensor(std::move(made));
      return 0;
    }
    object.check_writable("assignment");
    const std::optional<int64_t> position = position_of(object.tensor(), key);
    if (position && put_at_call(object.tensor(), *position, value)) {
      note_at_call(object.tensor().buffer()->device(), "x[i] = y", AtCall::kElement);
      return 0;
    }
    put_key(object.tensor(), key, value);
    return 0;
  });
}

Py_ssize_t length(PyObject* self) {
  Py_ssize_t result = -1;
  guarded_int([&] {
    const Tensor& tensor = self_of(self).tensor();
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
    const Tensor& tensor = object.tensor();
    // Loops over the elements come here.
    if (tensor.ndim() == 1 && index >= 0 && index < tensor.numel()) {
      return element_at(tensor, tensor.offset() + index * tensor.strides()[0]).release().ptr();
    }
    Tensor item = tensor.select(0, index);
    if (item.ndim() == 0) return element_at(item, item.offset()).release().ptr();  // as of t[index]
    return wrap(std::move(item), object.readonly).release().ptr();
  });
}

PyObject* iterate(PyObject* self) {
  return guarded([&] {
    if (self_of(self).tensor().ndim() == 0) {
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
    const Tensor any = reduce(Reduction::any, found->tensor());
    return PyObject_IsTrue(item_object(any, "in").ptr());
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
