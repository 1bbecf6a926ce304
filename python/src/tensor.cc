// SPDX-License-Identifier: MIT
// hologram.Tensor: its class, its views and its conversions.
#include "hologram/tensor.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "convert.h"
#include "dtype.h"
#include "hologram/functions.h"
#include "interop/dlpack.h"
#include "interop/host_array.h"
#include "looks.h"
#include "methods.h"
#include "objects.h"
#include "operators.h"
#include "order.h"
#include "reductions.h"

namespace hologram::python {

PyTypeObject* tensor_type = nullptr;

namespace {

// --- Slots --------------------------------------------------------------------------------------

int get_tensor_view(PyObject* self, Py_buffer* view, int flags) {
  const TensorObject* object = tensor_of(self);
  view->obj = nullptr;
  if (object != nullptr && object->is_scalar) {  // arrays of it may be written
    return guarded_int([&] {
      const nb::object copy = wrap(copy_of(object->tensor()));
      return get_tensor_view(copy.ptr(), view, flags);
    });
  }
  if (object == nullptr) {
    PyErr_SetString(PyExc_BufferError, "the Tensor was not made by its class");
    return -1;
  }
  return export_view(self, object->tensor(), object->readonly, view, flags);
}

// Lives as long as the type.
PyType_Slot* tensor_slots() {
  static auto& slots = *new std::vector<PyType_Slot>;
  add_operator_slots(slots);
  add_indexing_slots(slots);
  slots.push_back({Py_bf_getbuffer, reinterpret_cast<void*>(&get_tensor_view)});
  slots.push_back({Py_bf_releasebuffer, reinterpret_cast<void*>(&release_view)});
  slots.push_back({0, nullptr});
  return slots.data();
}

// --- Views --------------------------------------------------------------------------------------

// f(2, 3), f((2, 3)) and f([2, 3]) mean the same.
Shape parse_sizes(const nb::args& args) {
  if (args.size() == 1) return parse_shape(args[0]);
  return parse_shape(args);
}

std::vector<int> to_dims(const Shape& values) {
  std::vector<int> dims;
  for (const int64_t value : values) {
    if (value < INT32_MIN || value > INT32_MAX) {
      fail(ErrorKind::kIndex, "dimension ", value, " is out of range");
    }
    dims.push_back(static_cast<int>(value));
  }
  return dims;
}

nb::object reshape(const TensorObject& self, const nb::args& args, const nb::kwargs& options) {
  nb::object order = nb::none();
  for (const auto& [name, value] : options) {
    const std::string option = nb::cast<std::string>(name);
    if (option != "order") {
      fail(ErrorKind::kTypeMismatch, "reshape: only order= is known, not ", option, "=",
           nb::cast<std::string>(nb::repr(value)));
    }
    order = nb::borrow(value);
  }
  return reshape_in_order(self, parse_sizes(args), order);
}

nb::object transpose(const TensorObject& self, const nb::args& args) {
  if (args.empty() || (args.size() == 1 && args[0].is_none())) {
    return view_of(self, reversed_dims(self.tensor()));
  }
  const std::vector<int> dims = to_dims(parse_sizes(args));
  if (args.size() == 2) return view_of(self, self.tensor().transpose(dims[0], dims[1]));
  return view_of(self, self.tensor().permute(dims));
}

nb::object permute(const TensorObject& self, const nb::args& args) {
  return view_of(self, self.tensor().permute(to_dims(parse_sizes(args))));
}

nb::object squeeze(const TensorObject& self, nb::handle axis) {
  Tensor result = self.tensor();
  if (!axis.is_none()) {
    Shape dims = parse_shape(axis);
    for (int64_t& dim : dims) {
      if (dim < -result.ndim() || dim >= result.ndim()) {
        fail(ErrorKind::kIndex, "squeeze: dimension ", dim, " is out of range for shape ",
             text(result.shape()));
      }
      if (dim < 0) dim += result.ndim();
      if (result.size(static_cast<int>(dim)) != 1) {
        fail(ErrorKind::kInvalidArgument, "squeeze: dimension ", dim,
             " does not have size 1 in shape ", text(result.shape()));
      }
    }
    std::sort(dims.begin(), dims.end());
    for (size_t i = dims.size(); i-- > 0;) result = result.squeeze(static_cast<int>(dims[i]));
    return view_of(self, std::move(result));
  }
  for (int i = result.ndim() - 1; i >= 0; --i) {
    if (result.size(i) == 1) result = result.squeeze(i);
  }
  return view_of(self, std::move(result));
}

// --- Properties ---------------------------------------------------------------------------------

nb::object stride(const TensorObject& self, nb::handle dim) {
  if (dim.is_none()) return to_tuple(self.tensor().strides());
  return nb::int_(self.tensor().stride(to_int(dim)));
}

void set_shape(TensorObject& self, nb::handle sizes) {
  if (self.is_scalar) {
    raise(PyExc_AttributeError,
          "shape: a Scalar has no dimensions, ever; reshape() gives a Tensor of its value");
  }
  std::optional<Tensor> view = self.tensor().try_reshape(parse_shape(sizes));
  if (!view) {
    raise(PyExc_AttributeError, "shape: elements with strides " + text(self.tensor().strides()) +
                                    " take another shape only as a copy; use reshape()");
  }
  self.set_tensor(*std::move(view));
}

nb::tuple byte_strides(const TensorObject& self) {
  Shape bytes = self.tensor().strides();
  for (int64_t& value : bytes) value *= static_cast<int64_t>(itemsize(self.tensor().dtype()));
  return to_tuple(bytes);
}

// A memoryview that owns nothing and whose reader lets go of it before its call returns.
nb::object peek(const TensorObject& self) {
  if (self.tensor().buffer() && !self.tensor().buffer()->device().is_host_memory()) {
    // A copy to read: what was written there would be lost.
    Tensor copy = host_tensor(self.tensor());
    if (buffer_format(copy.dtype()) == nullptr) {
      copy = Tensor(copy.buffer(), copy.shape(), copy.strides(), Dtype::kInt16, copy.offset());
    }
    nb::object memory =
        nb::steal(PyMemoryView_FromObject(wrap(std::move(copy), /*readonly=*/true).ptr()));
    if (!memory.is_valid()) raise_set();
    return memory;
  }
  settle(self.tensor());
  const char* format = buffer_format(self.tensor().dtype());
  if (format == nullptr) format = "h";
  std::vector<Py_ssize_t> shape(self.tensor().shape().begin(), self.tensor().shape().end());
  std::vector<Py_ssize_t> strides;
  const auto size = static_cast<Py_ssize_t>(itemsize(self.tensor().dtype()));
  for (const int64_t step : self.tensor().strides()) strides.push_back(step * size);
  static char nowhere[16];
  Py_buffer view{};
  view.buf = self.tensor().data() != nullptr ? self.tensor().data() : nowhere;
  view.len = static_cast<Py_ssize_t>(self.tensor().nbytes());
  view.itemsize = size;
  view.readonly = self.readonly || self.is_scalar ? 1 : 0;
  view.ndim = self.tensor().ndim();
  view.format = const_cast<char*>(format);
  view.shape = shape.data();
  view.strides = strides.data();
  nb::object memory = nb::steal(PyMemoryView_FromBuffer(&view));
  if (!memory.is_valid()) raise_set();
  return memory;
}

// The bytes of a tensor in one dimension as elements of another dtype.
nb::object reinterpret(const TensorObject& self, nb::handle dtype) {
  const Dtype wanted = parse_dtype(dtype);
  const Tensor bytes = contiguous(self.tensor());
  const auto size = static_cast<int64_t>(itemsize(wanted));
  const auto offset = bytes.offset() * static_cast<int64_t>(itemsize(bytes.dtype()));
  return wrap(Tensor(bytes.buffer(), Shape{static_cast<int64_t>(bytes.nbytes()) / size}, Shape{1},
                     wanted, offset / size),
              self.readonly);
}

nb::object as_int16(const TensorObject& self) {
  const Tensor& t = self.tensor();
  return wrap(Tensor(t.buffer(), t.shape(), t.strides(), Dtype::kInt16, t.offset()), self.readonly);
}

// bfloat16 of a tensor of int16, bit for bit.
nb::object as_bfloat16(const TensorObject& self) {
  const Tensor& t = self.tensor();
  return wrap(Tensor(t.buffer(), t.shape(), t.strides(), Dtype::kBFloat16, t.offset()),
              self.readonly);
}

// --- Conversions --------------------------------------------------------------------------------

nb::object astype(nb::handle object, nb::handle dtype, nb::handle copies, nb::handle in_order) {
  const TensorObject& self = self_of(object.ptr());
  const Dtype wanted = parse_dtype(dtype);
  // NumPy's second argument is the order.
  const bool is_second = nb::isinstance<nb::str>(copies);
  const std::optional<Order> order = parse_order(is_second ? copies : in_order);
  const bool copy = is_second || to_bool(copies);
  if (wanted == self.tensor().dtype() && !copy && (!order || is_in_order(self.tensor(), *order))) {
    return nb::borrow(object);
  }
  Tensor result;
  {
    const Unlocked unlocked(is_long(self.tensor()));
    if (is_complex(self.tensor().dtype()) && !is_complex(wanted)) {
      fail(ErrorKind::kTypeMismatch, "astype: ", dtype_name(self.tensor().dtype()),
           " does not convert to ", dtype_name(wanted), "; take the real or imaginary part");
    }
    if (order && order != Order::kRows && !self.is_scalar) {
      result = copy_in_order(self.tensor(), *order, wanted);
    } else if (wanted != self.tensor().dtype()) {
      result = cast(self.tensor(), wanted);
    }
  }
  if (order && order != Order::kRows && !self.is_scalar) return wrap_whole(std::move(result));
  if (self.is_scalar && wanted == self.tensor().dtype()) return nb::borrow(object);
  if (self.is_scalar) return wrap_scalar(std::move(result));
  return wrap(wanted != self.tensor().dtype() ? std::move(result) : copy_of(self.tensor()));
}

nb::object item(const TensorObject& self, const nb::args& args) {
  if (args.empty()) return item_object(self);
  const Shape index = parse_sizes(args);
  Tensor element = self.tensor();
  const auto check = [](int64_t at, int64_t size) {
    if (at < -size || at >= size) {
      fail(ErrorKind::kIndex, "item: index ", at, " is out of bounds for size ", size);
    }
    return at < 0 ? at + size : at;
  };
  if (index.size() == 1 && element.ndim() != 1) {
    int64_t rest = check(index[0], element.numel());
    for (int dim = element.ndim() - 1; dim >= 0; --dim) {
      const int64_t size = element.size(dim);
      element = element.select(dim, rest % size);
      rest /= size;
    }
    return item_object(element);
  }
  if (static_cast<int>(index.size()) != element.ndim()) {
    fail(ErrorKind::kInvalidArgument, "item: ", index.size(), " indices are given for an array of ",
         element.ndim(), " dimensions");
  }
  for (const int64_t at : index) element = element.select(0, check(at, element.size(0)));
  return item_object(element);
}

// A scalar, which never changes, is its own copy.
nb::object copy_object(nb::handle object, nb::handle order) {
  const TensorObject& self = self_of(object.ptr());
  const Order given = parse_order(order).value_or(Order::kRows);
  if (self.is_scalar) return nb::borrow(object);
  if (given == Order::kRows) return wrap(copy_of(self.tensor()));
  return wrap_whole(copy_in_order(self.tensor(), given, self.tensor().dtype()));
}

nb::object contiguous_object(nb::handle object) {
  const TensorObject& self = self_of(object.ptr());
  if (self.tensor().is_contiguous()) return nb::borrow(object);
  return wrap(copy_of(self.tensor()));
}

nb::object nonzero_object(const TensorObject& self) {
  const Look look("nonzero()");
  std::vector<Tensor> found;
  if (self.tensor().buffer()) {
    note_at_call(self.tensor().buffer()->device(), "nonzero", AtCall::kValues);
  }
  {
    const Unlocked unlocked(is_long(self.tensor()) ||
                            !is_readable_at_call(*self.tensor().buffer()));
    found = nonzero(self.tensor());
  }
  nb::list positions;
  for (Tensor& each : found) positions.append(wrap(std::move(each)));
  return nb::tuple(positions);
}

constexpr const char* kTensorDoc = R"(An array: elements of one dtype in a shape, on a device.

    Tensor(x, dtype=None)

Made by hologram.array(x), which copies, hologram.asarray(x), which shares the memory of arrays, by
zeros, ones, full, empty, arange and from_dlpack. Operators broadcast and promote dtypes as NumPy's
do and give Tensors; they are recorded and run, fused, when a result is read: np.asarray,
print, item, tolist, bool, DLPack. Memory that was shared with others (np.asarray(x), asarray(array),
DLPack) may be looked at any time, so ops on it run at their calls; array(x) makes a Tensor that
defers. Indexing by ints, slices, Ellipsis and None gives views, by arrays of positions and masks
copies; for bounds and counts it looks at those arrays. Complex numbers have arithmetic without fusion; where an op
has none for them it raises TypeError that says what to take instead.)";

}  // namespace

void register_tensor(nb::module_& m) {
  nb::class_<TensorObject> type(m, "Tensor", nb::is_weak_referenceable(),
#if NB_VERSION_MAJOR * 100 + NB_VERSION_MINOR >= 301
                                nb::pooled(256),  // the objects of temporaries are used again
#endif
                                nb::type_slots(tensor_slots()), kTensorDoc);
  tensor_type = reinterpret_cast<PyTypeObject*>(type.ptr());
  add_dlpack_methods(type);
  add_ufunc_method(type);
  add_function_method(type);
  type.attr("__array_priority__") = 1000.0;
  type.def(
          "__init__",
          [](TensorObject* self, nb::handle x, nb::handle dtype) {
            std::optional<Dtype> wanted;
            if (!dtype.is_none()) wanted = parse_dtype(dtype);
            new (self) TensorObject(make_tensor(x, wanted, Sharing::kNever));
          },
          nb::arg("x"), nb::arg("dtype") = nb::none(),
          nb::sig("def __init__(self, x: typing.Any, dtype: typing.Any = None) -> None"))
      .def_static(
          "from_dlpack",
          [](nb::handle x, bool copy) { return wrap_as(tensor_type, import_dlpack(x, copy)); },
          nb::arg("x"), nb::kw_only(), nb::arg("copy") = false,
          nb::sig("def from_dlpack(x: typing.Any, *, copy: bool = False) -> Tensor"),
          "Return a Tensor on the memory of `x`, which has __dlpack__ or is a capsule; no copy.\n\n"
          "Read-only memory gives a Tensor that refuses to be written. NotImplementedError for\n"
          "memory that the CPU does not reach, TypeError for other dtypes, ValueError for a "
          "capsule\n"
          "that was used already.")
      .def_prop_rw(
          "shape", [](const TensorObject& t) { return to_tuple(t.tensor().shape()); }, &set_shape,
          nb::for_getter(nb::sig("def shape(self) -> tuple[int, ...]")),
          nb::for_setter(nb::sig("def shape(self, sizes: typing.Any, /) -> None")),
          "Sizes of the dimensions. Where others are assigned, one of which may be -1, the Tensor\n"
          "has the same elements in that shape: AttributeError if only a copy could be so.")
      .def_prop_ro("strides", &byte_strides, nb::sig("def strides(self) -> tuple[int, ...]"),
                   "Bytes from an element to the next along each dimension, as NumPy's.")
      .def("stride", &stride, nb::arg("dim") = nb::none(),
           nb::sig("def stride(self, dim: int | None = None) -> typing.Any"),
           "Elements from an element to the next along each dimension, as PyTorch's.")
      .def_prop_ro(
          "dtype", [](const TensorObject& t) { return report_dtype(t.tensor().dtype()); },
          nb::sig("def dtype(self) -> typing.Any"),
          "NumPy's dtype; hologram's own for bfloat16 without ml_dtypes, and without NumPy.")
      .def_prop_ro(
          "_dtype_name",
          [](const TensorObject& t) {
            // To ask a dtype of NumPy's for its name takes microseconds.
            static std::array<PyObject*, kStoredDtypeCount> names = {};
            PyObject*& name = names[static_cast<size_t>(t.tensor().dtype())];
            if (name == nullptr)
              name = PyUnicode_InternFromString(dtype_name(t.tensor().dtype()).data());
            return nb::borrow(name);
          },
          nb::sig("def _dtype_name(self) -> str"), "str(dtype).")
      .def_prop_ro(
          "ndim", [](const TensorObject& t) { return t.tensor().ndim(); }, "Number of dimensions.")
      .def_prop_ro(
          "size", [](const TensorObject& t) { return t.tensor().numel(); }, "Number of elements.")
      .def_prop_ro(
          "itemsize", [](const TensorObject& t) { return itemsize(t.tensor().dtype()); },
          "Bytes of an element.")
      .def_prop_ro(
          "nbytes", [](const TensorObject& t) { return t.tensor().nbytes(); },
          "Bytes of the elements.")
      .def_prop_ro(
          "readonly", [](const TensorObject& t) { return t.readonly; },
          "Whether writing is refused, as it is by the owner of the memory.")
      .def_prop_ro(
          "T", [](const TensorObject& t) { return view_of(t, reversed_dims(t.tensor())); },
          nb::sig("def T(self) -> Tensor"), "A view with the dimensions in reverse.")
      .def_prop_ro(
          "mT",
          [](const TensorObject& t) {
            if (t.tensor().ndim() < 2) {
              fail(ErrorKind::kInvalidArgument, "mT: a matrix is needed; the Tensor has ",
                   t.tensor().ndim(), " dimensions");
            }
            return view_of(t, t.tensor().transpose(-2, -1));
          },
          nb::sig("def mT(self) -> Tensor"), "A view with the last two dimensions exchanged.")
      .def(
          "reshape", &reshape, nb::arg("shape"), nb::arg("options"),
          nb::sig("def reshape(self, *shape: typing.Any, order: str = 'C') -> Tensor"),
          "Return the elements in another shape, one size of which may be -1: a view if possible,\n"
          "else a copy. With 'F' they are read and placed in column-major order, with 'A' where "
          "the\n"
          "Tensor is column-major. ValueError where the number of elements differs.")
      .def("transpose", &transpose, nb::arg("axes"),
           nb::sig("def transpose(self, *axes: typing.Any) -> Tensor"),
           "Return a view with two dimensions exchanged, all of them in reverse (no argument), or\n"
           "in the order given.")
      .def(
          "swapaxes",
          [](const TensorObject& t, int a, int b) {
            return view_of(t, t.tensor().transpose(a, b));
          },
          nb::arg("axis1"), nb::arg("axis2"),
          nb::sig("def swapaxes(self, axis1: int, axis2: int) -> Tensor"),
          "Return a view with two dimensions exchanged.")
      .def("permute", &permute, nb::arg("dims"),
           nb::sig("def permute(self, *dims: typing.Any) -> Tensor"),
           "Return a view with the dimensions in the order given.")
      .def(
          "narrow",
          [](const TensorObject& t, int dim, int64_t start, int64_t length) {
            return view_of(t, t.tensor().narrow(dim, start, length));
          },
          nb::arg("dim"), nb::arg("start"), nb::arg("length"),
          nb::sig("def narrow(self, dim: int, start: int, length: int) -> Tensor"),
          "Return a view of `length` positions along a dimension. IndexError outside of it.")
      .def(
          "select",
          [](const TensorObject& t, int dim, int64_t index) {
            return view_of(t, t.tensor().select(dim, index));
          },
          nb::arg("dim"), nb::arg("index"),
          nb::sig("def select(self, dim: int, index: int) -> Tensor"),
          "Return a view of one position along a dimension, which goes.")
      .def(
          "slice",
          [](const TensorObject& t, int dim, int64_t start, int64_t stop, int64_t step) {
            return view_of(t, t.tensor().slice(dim, start, stop, step));
          },
          nb::arg("dim"), nb::arg("start"), nb::arg("stop"), nb::arg("step") = 1,
          nb::sig("def slice(self, dim: int, start: int, stop: int, step: int = 1) -> Tensor"),
          "Return a view of start:stop:step along a dimension; step is positive.")
      .def("squeeze", &squeeze, nb::arg("axis") = nb::none(),
           nb::sig("def squeeze(self, axis: int | tuple[int, ...] | None = None) -> Tensor"),
           "Return a view without the dimensions of size 1, or without those named.")
      .def(
          "unsqueeze",
          [](const TensorObject& t, int dim) { return view_of(t, t.tensor().unsqueeze(dim)); },
          nb::arg("dim"), nb::sig("def unsqueeze(self, dim: int) -> Tensor"),
          "Return a view with a dimension of size 1 more.")
      .def(
          "expand",
          [](const TensorObject& t, const nb::args& sizes) {
            if (t.is_scalar) return wrap(copy_of(t.tensor()).expand(parse_sizes(sizes)), true);
            // Elements that are several at once are not for writing.
            return wrap(t.tensor().expand(parse_sizes(sizes)), true);
          },
          nb::arg("shape"), nb::sig("def expand(self, *shape: typing.Any) -> Tensor"),
          "Return a read-only view that repeats sizes of 1; -1 keeps a size.")
      .def(
          "ravel",
          [](const TensorObject& t, nb::handle order) { return flatten_in_order(t, order, false); },
          nb::arg("order") = nb::none(), nb::sig("def ravel(self, order: str = 'C') -> Tensor"),
          "Return the elements in one dimension, in row-major order, column-major with 'F', in the "
          "order\nof memory with 'K': a view where they lie so, else a copy.")
      .def(
          "flatten",
          [](const TensorObject& t, nb::handle order) { return flatten_in_order(t, order, true); },
          nb::arg("order") = nb::none(), nb::sig("def flatten(self, order: str = 'C') -> Tensor"),
          "Return a copy in one dimension; order as of ravel.")
      .def("nonzero", &nonzero_object, nb::sig("def nonzero(self) -> tuple[Tensor, ...]"),
           "Return the positions of the elements that are not 0, one Tensor of int64 for each\n"
           "dimension.")
      .def("contiguous", &contiguous_object, nb::sig("def contiguous(self) -> Tensor"),
           "Return the Tensor itself where it is row-major, else a row-major copy.")
      .def("copy", &copy_object, nb::arg("order") = nb::none(),
           nb::sig("def copy(self, order: str = 'C') -> Tensor"),
           "Return a copy with memory of its own: row-major, column-major with 'F', with the order "
           "of\ndimensions in memory as here with 'K'; 'A' is 'F' where this is column-major, else "
           "'C'.")
      .def(
          "__copy__", [](nb::handle self) { return copy_object(self, nb::none()); },
          nb::sig("def __copy__(self) -> Tensor"))
      .def(
          "__deepcopy__", [](nb::handle self, nb::handle) { return copy_object(self, nb::none()); },
          nb::arg("memo").none(), nb::sig("def __deepcopy__(self, memo: typing.Any) -> Tensor"))
      .def(
          "astype", &astype, nb::arg("dtype"), nb::arg("copy") = true,
          nb::arg("order") = nb::none(),
          nb::sig("def astype(self, dtype: typing.Any, copy: bool = True, order: str | None = "
                  "None) -> Tensor"),
          "Return a copy in another dtype: floats are cut towards zero, anything to bool is != 0.\n"
          "With copy=False the Tensor itself where it has that dtype and order. Without an order "
          "the\ncopy is row-major; see copy. TypeError for complex to real.")
      .def("item", &item, nb::arg("position"),
           nb::sig("def item(self, *position: typing.Any) -> typing.Any"),
           "Return an element as a Python number: the only one, that of a position in row-major\n"
           "order, or that of an index for each dimension.\n\n"
           "ValueError without a position where there are several, IndexError out of range.")
      .def(
          "tolist",
          [](const TensorObject& t) {
            const Look look("tolist()");
            return to_list(t.tensor());
          },
          nb::sig("def tolist(self) -> typing.Any"),
          "Return the values as nested lists of Python numbers.")
      .def(
          "tobytes",
          [](const TensorObject& t) {
            const Look look("tobytes()");
            return to_byte_string(t.tensor());
          },
          "Return a copy of the elements in row-major order as bytes.")
      .def(
          "numpy",
          [](nb::handle self) {
            const Look look("numpy()");
            return numpy_view(self);
          },
          nb::sig("def numpy(self) -> numpy.ndarray"),
          "Return a NumPy array on this memory, without a copy; it keeps the memory alive.\n\n"
          "Later ops on the memory run at their calls. bfloat16 needs ml_dtypes.")
      .def(
          "__array__",
          [](nb::handle self, nb::handle dtype, nb::handle copy) {
            const Look look("np.asarray()");
            return helper("hologram._numpy", "array", self, dtype, copy);
          },
          nb::arg("dtype") = nb::none(), nb::kw_only(), nb::arg("copy") = nb::none(),
          nb::sig("def __array__(self, dtype: typing.Any = None, *, copy: bool | None = None) -> "
                  "numpy.ndarray"))
      .def(
          "__reduce__",
          [](nb::handle self) {
            const Look look("pickle");
            return helper("hologram._text", "reduce", self);
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def(
          "__complex__",
          [](const TensorObject& t) {
            const nb::object value = item_object(t, "complex()");
            Py_complex number = PyComplex_AsCComplex(value.ptr());
            if (PyErr_Occurred() != nullptr) raise_set();
            return nb::steal(PyComplex_FromCComplex(number));
          },
          nb::sig("def __complex__(self) -> complex"))
      .def(
          "__repr__",
          [](nb::handle self) {
            const Look look("repr()");
            return helper("hologram._text", "represent", self);
          },
          nb::sig("def __repr__(self) -> str"))
      .def(
          "__str__",
          [](nb::handle self) {
            const Look look("print()");
            return helper("hologram._text", "show", self);
          },
          nb::sig("def __str__(self) -> str"))
      .def(
          "__format__",
          [](nb::handle self, nb::handle format) {
            const Look look("format()");
            return helper("hologram._text", "apply_format", self, format);
          },
          nb::arg("format"), nb::sig("def __format__(self, format: str) -> str"))
      .def("_peek", &peek)
      .def("_as_dtype", &reinterpret)
      .def("_as_int16", &as_int16)
      .def("_as_bfloat16", &as_bfloat16);
  add_reduction_methods(type);
  add_python_methods(type);
}

}  // namespace hologram::python
