// SPDX-License-Identifier: MIT
// Tensors from numbers, lists and arrays, and numbers, lists and bytes from tensors.
#include "convert.h"

#include <array>
#include <complex>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "dtype.h"
#include "hologram/elementwise.h"
#include "interop/dlpack.h"
#include "interop/host_array.h"
#include "interop/numpy_classes.h"
#include "looks.h"

namespace hologram::python {
namespace {

// A sequence that leaves arithmetic to arrays, as lists, ranges and memoryviews do.
bool is_plain_sequence(PyObject* object) {
  const PyNumberMethods* numbers = Py_TYPE(object)->tp_as_number;
  return PySequence_Check(object) != 0 && (numbers == nullptr || numbers->nb_add == nullptr);
}

// Whether it is one of NumPy's masked arrays, whose masked elements a Tensor would show.
bool has_mask(PyObject* object) {
  return PyObject_HasAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "mask") != 0 &&
         is_like_array(object);
}

// --- Nested lists of numbers --------------------------------------------------------------------

// The numbers of a nested sequence in row-major order.
struct Nested {
  Shape shape;
  int depth = -1;  // of the numbers
  std::vector<PyObject*> numbers;
  Dtype dtype = Dtype::kBool;
  bool has_int64 = false;   // an int that int64 holds
  bool has_uint64 = false;  // an int that only uint64 holds
  bool has_more = false;    // one that neither holds
  bool plain = true;        // holds nothing but Python's own numbers

  void add_number(PyObject* object, int at) {
    if (depth >= 0 && depth != at) ragged();
    depth = at;
    Dtype kind;
    if (PyBool_Check(object)) {
      kind = Dtype::kBool;
    } else if (PyLong_CheckExact(object)) {
      kind = Dtype::kInt64;
      int overflow = 0;
      const int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
      if (value == -1 && PyErr_Occurred() != nullptr) raise_set();
      if (overflow == 0) {
        has_int64 = true;
      } else {
        const uint64_t most = PyLong_AsUnsignedLongLong(object);
        const bool is_more = most == static_cast<uint64_t>(-1) && PyErr_Occurred() != nullptr;
        PyErr_Clear();
        (is_more ? has_more : has_uint64) = true;
      }
    } else if (PyFloat_CheckExact(object)) {
      kind = Dtype::kFloat64;
    } else if (PyComplex_CheckExact(object)) {
      kind = Dtype::kComplex128;
    } else {
      plain = false;
      return;
    }
    dtype = std::max(dtype, kind);
    numbers.push_back(object);
  }

  void add(PyObject* object, int at) {
    if (!PyList_Check(object) && !PyTuple_Check(object)) {
      add_number(object, at);
      return;
    }
    if (at >= 64) fail(ErrorKind::kInvalidArgument, "lists are nested more than 64 deep");
    if (depth >= 0 && at >= depth) ragged();
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
    if (at == static_cast<int>(shape.size())) {
      shape.push_back(size);
    } else if (shape[static_cast<size_t>(at)] != size) {
      ragged();
    }
    for (Py_ssize_t i = 0; i < size && plain; ++i) {
      add(PySequence_Fast_GET_ITEM(object, i), at + 1);
    }
  }

  [[noreturn]] static void ragged() {
    fail(ErrorKind::kInvalidArgument,
         "the nested sequences have different lengths or depths; a Tensor needs equal ones");
  }
};

int64_t as_int64(PyObject* number) {
  const int64_t value = PyLong_AsLongLong(number);
  if (value == -1 && PyErr_Occurred() != nullptr) raise_set();
  return value;
}

// The bits of an int that has to be one of uint64.
int64_t as_uint64_bits(PyObject* number) {
  const uint64_t value = PyLong_AsUnsignedLongLong(number);
  if (value == static_cast<uint64_t>(-1) && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) raise_set();
    PyErr_Clear();
    raise(PyExc_OverflowError, "Python integer " +
                                   nb::cast<std::string>(nb::str(nb::handle(number))) +
                                   " out of bounds for uint64");
  }
  return static_cast<int64_t>(value);
}

double as_double(PyObject* number) {
  const double value = PyFloat_AsDouble(number);
  if (value == -1 && PyErr_Occurred() != nullptr) raise_set();
  return value;
}

Tensor from_numbers(const Nested& nested, std::optional<Dtype> wanted) {
  const size_t count = nested.numbers.size();
  Dtype dtype = nested.numbers.empty() ? Dtype::kFloat64 : nested.dtype;
  if (dtype == Dtype::kInt64) {
    // As NumPy promotes numbers of which some are uint64.
    if (nested.has_uint64 && !nested.has_more)
      dtype = nested.has_int64 ? Dtype::kFloat64 : Dtype::kUInt64;
    // Ints that float64 holds though no integer does.
    if (wanted && (is_floating(*wanted) || is_complex(*wanted))) dtype = Dtype::kFloat64;
    if (wanted && (is_integer(*wanted) || *wanted == Dtype::kBool)) {
      dtype = *wanted == Dtype::kUInt64 ? Dtype::kUInt64 : Dtype::kInt64;
    }
  }
  std::vector<char> bytes(count * itemsize(dtype));
  for (size_t i = 0; i < count; ++i) {
    PyObject* number = nested.numbers[i];
    char* place = bytes.data() + i * itemsize(dtype);
    if (dtype == Dtype::kBool) {
      *place = number == Py_True ? 1 : 0;
    } else if (dtype == Dtype::kUInt64) {
      const int64_t value = as_uint64_bits(number);
      std::memcpy(place, &value, sizeof(value));
    } else if (dtype == Dtype::kInt64) {
      const int64_t value = as_int64(number);
      if (wanted && is_integer(*wanted)) check_fits({value}, *wanted);
      std::memcpy(place, &value, sizeof(value));
    } else if (dtype == Dtype::kFloat64) {
      const double value = as_double(number);
      std::memcpy(place, &value, sizeof(value));
    } else {
      const Py_complex value = PyComplex_AsCComplex(number);
      if (PyErr_Occurred() != nullptr) raise_set();
      std::memcpy(place, &value, sizeof(value));
    }
  }
  const Shape strides = contiguous_strides(nested.shape);
  const View view{bytes.data(), dtype, static_cast<int>(nested.shape.size()), nested.shape.data(),
                  strides.data()};
  return from_host(view, default_device());
}

// With more bytes than this it takes longer to copy an operand than to share it.
constexpr Py_ssize_t kCopiedOperand = 8192;

// A tensor of the object's memory, or one of its own where that is `fresh`.
TensorObject from_array(nb::handle object, std::optional<Dtype> dtype, Sharing sharing,
                        bool& fresh) {
  HostArray host(object);
  const bool converts = dtype && *dtype != host.dtype();           // which makes a copy anyway
  const bool single = host.shape().empty() && host.is_readonly();  // a scalar of NumPy's
  const auto copies = [&] {
    if (single || !host.is_in_place()) return true;
    if (sharing == Sharing::kNever) return !converts;
    if (sharing == Sharing::kReadOnly) return !converts && !host.is_readonly();
    return sharing == Sharing::kOperand && host.nbytes() <= kCopiedOperand;
  };
  TensorObject result;
  if (copies()) {
    fresh = true;
    const View view = host.view();
    const Unlocked unlocked(view.numel() >= kUnlockElements);
    result.set_tensor(from_host(view, default_device()));
    return result;
  }
  fresh = sharing == Sharing::kTakeOver;
  result.readonly = host.is_readonly();
  const bool is_shared = !fresh && !host.is_constant();
  result.set_tensor(std::move(host).adopt(default_device(), is_shared));
  return result;
}

TensorObject convert(nb::handle object, std::optional<Dtype> dtype, Sharing sharing, bool& fresh) {
  PyObject* const o = object.ptr();
  if (const TensorObject* tensor = tensor_of(o)) {
    return {tensor->tensor(), tensor->readonly || tensor->is_scalar};
  }
  if (const BufferObject* buffer = buffer_of(o)) return {buffer->tensor("asarray"), false};
  const bool is_number =
      PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyComplex_CheckExact(o);
  if (is_number || PyList_Check(o) || PyTuple_Check(o)) {
    Nested nested;
    nested.add(o, 0);
    if (nested.plain) {
      fresh = true;
      return {from_numbers(nested, dtype), false};
    }
    return from_array(object, dtype, Sharing::kNever, fresh = true);
  }
  if (PyObject_CheckBuffer(o) != 0) return from_array(object, dtype, sharing, fresh);
  if (PyObject_HasAttrString(o, "__dlpack__") != 0) return import_dlpack(object, false);
  if (PyObject_HasAttrString(o, "__array__") == 0 && PySequence_Check(o) == 0 &&
      PyNumber_Check(o) == 0) {
    fail(ErrorKind::kTypeMismatch, "cannot make a Tensor of ", name_of_type(object),
         "; pass numbers, nested lists of numbers, or an array");
  }
  return from_array(object, dtype, sharing, fresh);
}

template <class T>
nb::object number_object(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  if constexpr (std::is_same_v<T, int64_t>) return nb::steal(PyLong_FromLongLong(value));
  if constexpr (std::is_same_v<T, uint64_t>) return nb::steal(PyLong_FromUnsignedLongLong(value));
  if constexpr (std::is_same_v<T, double>) return nb::steal(PyFloat_FromDouble(value));
  if constexpr (std::is_same_v<T, uint8_t>) return nb::borrow(value != 0 ? Py_True : Py_False);
  if constexpr (std::is_same_v<T, Py_complex>) return nb::steal(PyComplex_FromCComplex(value));
}

// The dtype in which Python has the values of another.
Dtype python_dtype(Dtype dtype) {
  if (dtype == Dtype::kBool || dtype == Dtype::kUInt64) return dtype;
  if (is_integer(dtype)) return Dtype::kInt64;
  return is_floating(dtype) ? Dtype::kFloat64 : Dtype::kComplex128;
}

nb::object number_at(const char* bytes, Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
      return number_object<uint8_t>(bytes);
    case Dtype::kInt64:
      return number_object<int64_t>(bytes);
    case Dtype::kUInt64:
      return number_object<uint64_t>(bytes);
    case Dtype::kFloat64:
      return number_object<double>(bytes);
    default:
      return number_object<Py_complex>(bytes);
  }
}

nb::object list_of(const char*& bytes, const Shape& shape, size_t dim, Dtype dtype) {
  if (dim == shape.size()) {
    const char* place = bytes;
    bytes += itemsize(dtype);
    return number_at(place, dtype);
  }
  nb::object list = nb::steal(PyList_New(shape[dim]));
  if (!list.is_valid()) raise_set();
  for (int64_t i = 0; i < shape[dim]; ++i) {
    PyList_SET_ITEM(list.ptr(), i, list_of(bytes, shape, dim + 1, dtype).release().ptr());
  }
  return list;
}

// The values of such a tensor can be read at once: nothing has to run for them.
bool is_known(const Tensor& tensor) {
  return tensor.buffer() && is_readable_at_call(*tensor.buffer());
}

// The first element of a known tensor of integers.
int64_t known_integer(const Tensor& tensor) { return integer_of(tensor.dtype(), tensor.data()); }

// Row-major values in another dtype, read without sharing the memory.
std::vector<char> values_of(const Tensor& tensor, Dtype dtype) {
  std::vector<char> bytes(static_cast<size_t>(tensor.numel()) * itemsize(dtype));
  const Shape strides = contiguous_strides(tensor.shape());
  const View view{bytes.data(), dtype, tensor.ndim(), tensor.shape().data(), strides.data()};
  const Unlocked unlocked;
  if (tensor.numel() != 0) read(tensor, view);
  return bytes;
}

}  // namespace

// Arrays are made of memory of the host and lent as that: what lives elsewhere belongs to
// executors.
Device& default_device() {
  static Device& chosen = []() -> Device& {
    Device& wished = device(default_backend());
    return wished.is_host_memory() ? wished : device(BackendType::kCpu);
  }();
  return chosen;
}

TensorObject make_tensor(nb::handle object, std::optional<Dtype> dtype, Sharing sharing) {
  bool fresh = false;
  TensorObject result = convert(object, dtype, sharing, fresh);
  const bool converts = dtype && *dtype != result.tensor().dtype();
  if (sharing == Sharing::kAlways && (fresh || converts)) {
    fail(ErrorKind::kInvalidArgument, "asarray: a copy is needed to make a Tensor of ",
         name_of_type(object), "; leave copy=False out");
  }
  if (converts) return {cast(result.tensor(), *dtype), false};
  if (sharing == Sharing::kNever && !fresh) return {copy_of(result.tensor()), false};
  return result;
}

bool try_make_tensor(nb::handle object, TensorObject& result) {
  PyObject* const o = object.ptr();
  if (is_ndarray(o)) {  // of no subclass, so that it has no mask
    result = make_tensor(object);
    return true;
  }
  if (PyUnicode_Check(o) || PyBytes_Check(o)) return false;
  if (!PyComplex_Check(o) && buffer_of(o) == nullptr && !is_like_array(o) &&
      !is_plain_sequence(o)) {
    return false;
  }
  if (has_mask(o)) return false;
  result = make_tensor(object);
  return true;
}

Tensor copy_of(const Tensor& tensor) {
  Tensor copy = empty(tensor.shape(), tensor.dtype(),
                      tensor.buffer() ? tensor.buffer()->device() : default_device());
  const Unlocked unlocked(is_long(tensor));
  copy_into(tensor, copy);
  return copy;
}

std::optional<int64_t> integer_at_hand(const TensorObject& object) {
  const Element* value = object.value();
  if (value == nullptr) return integer_at_hand(object.tensor());
  if (!is_integer(value->dtype)) return std::nullopt;
  const int64_t number = integer_of(value->dtype, value->bytes);
  return value->dtype == Dtype::kUInt64 && number < 0 ? std::nullopt : std::optional(number);
}

int64_t integer_of(Dtype dtype, const void* bytes) {
  int64_t value = 0;
  if (is_unsigned(dtype)) {
    std::memcpy(&value, bytes, itemsize(dtype));
  } else {
    hologram::convert(dtype, bytes, Dtype::kInt64, &value, 1);
  }
  return value;
}

bool is_like_array(PyObject* object) {
  return PyObject_HasAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)),
                                "__array_interface__") != 0;
}

std::optional<int64_t> integer_at_hand(const Tensor& tensor) {
  if (tensor.ndim() != 0 || !is_integer(tensor.dtype()) || !is_known(tensor)) return std::nullopt;
  const int64_t value = known_integer(tensor);
  if (tensor.dtype() == Dtype::kUInt64 && value < 0) return std::nullopt;
  return value;
}

nb::object item_object(Dtype dtype, const void* bytes) {
  if (is_integer(dtype)) {
    const int64_t value = integer_of(dtype, bytes);
    const auto* const words = reinterpret_cast<const char*>(&value);
    return dtype == Dtype::kUInt64 ? number_object<uint64_t>(words) : number_object<int64_t>(words);
  }
  const Dtype wide = python_dtype(dtype);
  if (dtype == wide) return number_at(static_cast<const char*>(bytes), wide);
  char value[16];
  hologram::convert(dtype, bytes, wide, value, 1);
  return number_at(value, wide);
}

nb::object item_object(const Tensor& tensor, const char* what) {
  if (tensor.numel() != 1) {
    fail(ErrorKind::kInvalidArgument, "item(): the Tensor has ", tensor.numel(),
         " elements; index it so that one is left");
  }
  if (is_known(tensor)) return item_object(tensor.dtype(), tensor.data());
  const Dtype dtype = python_dtype(tensor.dtype());
  const Look look(what);
  return number_at(values_of(tensor, dtype).data(), dtype);
}

nb::object item_object(const TensorObject& object, const char* what) {
  const Element* value = object.value();
  return value != nullptr ? item_object(value->dtype, value->bytes)
                          : item_object(object.tensor(), what);
}

nb::object to_list(const Tensor& tensor) {
  const Dtype dtype = python_dtype(tensor.dtype());
  const std::vector<char> values = values_of(tensor, dtype);
  const char* next = values.data();
  return list_of(next, tensor.shape(), 0, dtype);
}

nb::bytes to_byte_string(const Tensor& tensor) {
  if (tensor.numel() != 0 && !is_long(tensor) && tensor.is_contiguous() &&
      tensor.buffer()->device().is_host_memory()) {
    {
      const Unlocked unlocked;
      materialize(tensor);
    }
    return nb::bytes(tensor.data(), tensor.nbytes());
  }
  nb::object bytes =
      nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(tensor.nbytes())));
  if (!bytes.is_valid()) raise_set();
  const Shape strides = contiguous_strides(tensor.shape());
  const View view{PyBytes_AS_STRING(bytes.ptr()), tensor.dtype(), tensor.ndim(),
                  tensor.shape().data(), strides.data()};
  if (tensor.numel() != 0) {
    const Unlocked unlocked;
    read(tensor, view);
  }
  return nb::borrow<nb::bytes>(bytes);
}

}  // namespace hologram::python
