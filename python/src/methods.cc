// SPDX-License-Identifier: MIT
// Methods of tensors that are written in Python, in hologram._methods: what arrays of NumPy and of
// the array API have, made of other methods and of NumPy's functions.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "convert.h"
#include "dtype.h"
#include "hologram/tensor.h"
#include "interop/host_array.h"
#include "methods.h"
#include "objects.h"
#include "order.h"

namespace hologram::python {
namespace {

struct Method {
  const char* module;
  const char* name;
  const char* signature;
  const char* doc;
};

constexpr const char* kModule = "hologram._methods";
constexpr const char* kLayout = "hologram._layout";

constexpr std::array kMethods = {
    Method{kModule, "__array_namespace__",
           "def __array_namespace__(self, *, api_version: str | None = None) -> typing.Any",
           "Return the module hologram. ValueError for a version that it does not follow."},
    Method{kModule, "to_device",
           "def to_device(self, device: str, /, *, stream: int | None = None) -> Tensor",
           "Return the Tensor itself where it is on `device`. ValueError for another one."},
    Method{kModule, "conj", "def conj(self) -> Tensor",
           "Return the complex conjugate; a real Tensor itself."},
    Method{kModule, "conjugate", "def conjugate(self) -> Tensor", "Another name of conj."},
    Method{kModule, "clip",
           "def clip(self, min: typing.Any = None, max: typing.Any = None, out: Tensor | None = "
           "None) -> Tensor",
           "Return the elements moved into [min, max], see hologram.clip."},
    Method{kModule, "round",
           "def round(self, decimals: int = 0, out: Tensor | None = None) -> Tensor",
           "Return the elements rounded to `decimals` places, halves to even."},
    Method{kModule, "cumprod",
           "def cumprod(self, axis: int | None = None, dtype: typing.Any = None, out: Tensor | "
           "None = None) -> Tensor",
           "Return the products up to each element along `axis`, or in row-major order."},
    Method{kModule, "sort",
           "def sort(self, axis: int = -1, kind: str | None = None, order: None = None, *, stable: "
           "bool | None = None) -> None",
           "Sort in place along an axis; NaNs go last. hologram.sort returns a sorted copy."},
    Method{kModule, "argsort",
           "def argsort(self, axis: int | None = -1, kind: str | None = None, order: None = None, "
           "*, stable: bool | None = None) -> Tensor",
           "Return the positions, int64, that sort along an axis."},
    Method{
        kModule, "partition",
        "def partition(self, kth: typing.Any, axis: int = -1, kind: str = 'introselect') -> None",
        "Move in place so that position kth has what sorting would put there."},
    Method{kModule, "argpartition",
           "def argpartition(self, kth: typing.Any, axis: int | None = -1, kind: str = "
           "'introselect') -> Tensor",
           "Return the positions, int64, that partition along an axis."},
    Method{kModule, "searchsorted",
           "def searchsorted(self, v: typing.Any, side: str = 'left', sorter: typing.Any = None) "
           "-> Tensor",
           "Return where values go into this sorted Tensor, see hologram.searchsorted."},
    Method{
        kModule, "take",
        "def take(self, indices: typing.Any, axis: int | None = None, out: Tensor | None = None, "
        "mode: str = 'raise') -> Tensor",
        "Return the elements at positions along an axis, or in row-major order. IndexError for "
        "positions out of range unless mode is 'wrap' or 'clip'."},
    Method{kModule, "put",
           "def put(self, indices: typing.Any, values: typing.Any, mode: str = 'raise') -> None",
           "Write values to positions in row-major order."},
    Method{kModule, "repeat",
           "def repeat(self, repeats: typing.Any, axis: int | None = None) -> Tensor",
           "Return each element several times along an axis, or in row-major order."},
    Method{
        kModule, "choose",
        "def choose(self, choices: typing.Any, out: Tensor | None = None, mode: str = 'raise') -> "
        "Tensor",
        "Return elements of several arrays, which of them these integers say."},
    Method{
        kModule, "compress",
        "def compress(self, condition: typing.Any, axis: int | None = None, out: Tensor | None = "
        "None) -> Tensor",
        "Return the slices along an axis where the condition holds."},
    Method{kModule, "diagonal",
           "def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor",
           "Return a read-only view of a diagonal of each matrix."},
    Method{kModule, "trace",
           "def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: typing.Any = "
           "None, out: Tensor | None = None) -> Tensor",
           "Return the sum of a diagonal of each matrix."},
    Method{kModule, "dot", "def dot(self, b: typing.Any, out: Tensor | None = None) -> Tensor",
           "Return the product by numpy.dot's rules: of matrices, or over the last dimension here "
           "and the one before the last there."},
    Method{kModule, "fill", "def fill(self, value: typing.Any) -> None",
           "Write one value everywhere."},
    Method{
        kModule, "view",
        "def view(self, dtype: typing.Any = None, type: typing.Any = None) -> typing.Any",
        "Return a view of the same bytes, in another dtype where one is given; the last "
        "dimension, which is dense, changes with its size. A class of NumPy's arrays, or a dtype "
        "that does not exist here, gives an array of NumPy's on this memory."},
    Method{kLayout, "setflags",
           "def setflags(self, write: bool | None = None, align: bool | None = None, uic: bool | "
           "None = None) -> None",
           "Let elements be written, or no longer. ValueError where the memory's owner does not."},
    Method{kLayout, "byteswap", "def byteswap(self, inplace: bool = False) -> Tensor",
           "Return the elements with their bytes in reverse, which may go into the same memory."},
    Method{kLayout, "resize",
           "def resize(self, *new_shape: typing.Any, refcheck: bool = True) -> None",
           "Take another shape, with zeros for new elements. Views keep the old memory."},
    Method{kLayout, "tofile",
           "def tofile(self, fid: typing.Any, sep: str = '', format: str = '%s') -> None",
           "Write the elements in row-major order to a file, as bytes or as text with separators."},
    Method{kModule, "__dask_tokenize__", "def __dask_tokenize__(self) -> typing.Any",
           "Return what dask knows equal arrays by."},
    Method{kModule, "__arrow_array__",
           "def __arrow_array__(self, type: typing.Any = None) -> typing.Any",
           "Return an array of pyarrow with these elements."},
    Method{kModule, "__jax_array__", "def __jax_array__(self) -> typing.Any",
           "Return an array of JAX with these elements."},
};

constexpr const char* kScalarModule = "hologram._scalars";

constexpr std::array kScalarMethods = {
    Method{kScalarModule, "__round__",
           "def __round__(self, ndigits: int | None = None) -> typing.Any",
           "Return the nearest int, halves to even; with digits a Scalar."},
    Method{kScalarModule, "__trunc__", "def __trunc__(self) -> int",
           "Return the int without the fraction."},
    Method{kScalarModule, "__floor__", "def __floor__(self) -> int",
           "Return the largest int that is no larger."},
    Method{kScalarModule, "__ceil__", "def __ceil__(self) -> int",
           "Return the smallest int that is no smaller."},
    Method{kScalarModule, "is_integer", "def is_integer(self) -> bool",
           "Return whether there is no fraction."},
    Method{kScalarModule, "as_integer_ratio", "def as_integer_ratio(self) -> tuple[int, int]",
           "Return the two ints, without a common factor, whose quotient a float is."},
    Method{kScalarModule, "bit_count", "def bit_count(self) -> int",
           "Return the number of ones in the size of an integer."},
};

// The module may need NumPy, so it is looked up when a method is first called; the functions live
// as long as the process.
template <class Class>
void add_method(Class& type, const Method& method) {
  auto* found = new PyObject*(nullptr);
  const char* module = method.module;
  const char* name = method.name;
  type.def(
      name,
      [module, name, found](nb::handle self, const nb::args& args, const nb::kwargs& options) {
        if (*found == nullptr) {
          *found = nb::object(nb::module_::import_(module).attr(name)).release().ptr();
        }
        return nb::handle(*found)(self, *args, **options);
      },
      nb::sig(method.signature), method.doc);
}

// A tensor of all elements in the memory, in one dimension; None where `self` has all in order.
nb::object whole_memory(const TensorObject& self) {
  const Tensor& t = self.tensor();
  if (self.is_scalar || self.is_whole || !t.buffer()) return nb::none();
  const size_t nbytes = t.buffer()->nbytes();
  if (t.offset() == 0 && t.is_contiguous() && t.nbytes() == nbytes) return nb::none();
  const auto count = static_cast<int64_t>(nbytes / itemsize(t.dtype()));
  return wrap(Tensor(t.buffer(), Shape{count}, t.dtype()), self.readonly);
}

// A view at a distance from the first element, in bytes, with strides in bytes.
nb::object strided(const TensorObject& self, nb::handle shape, nb::handle strides, int64_t offset,
                   nb::handle dtype, bool readonly) {
  const Dtype wanted = parse_dtype(dtype, self.tensor().dtype());
  const auto size = static_cast<int64_t>(itemsize(wanted));
  const auto from = self.tensor().offset() * static_cast<int64_t>(itemsize(self.tensor().dtype()));
  Shape steps = parse_shape(strides);
  bool whole = (from + offset) % size == 0;
  for (int64_t& step : steps) {
    whole = whole && step % size == 0;
    step /= size;
  }
  if (!whole) {
    fail(ErrorKind::kInvalidArgument,
         "a view has elements at multiples of their size; copy the Tensor first");
  }
  Shape sizes = parse_shape(shape);
  // A view without elements lies nowhere.
  const int64_t at = shape_numel(sizes) == 0 ? 0 : (from + offset) / size;
  Tensor view(self.tensor().buffer(), std::move(sizes), std::move(steps), wanted, at);
  if (self.is_scalar) return view_of(self, std::move(view));
  return wrap(std::move(view), self.readonly || readonly);
}

}  // namespace

void add_scalar_methods(nb::class_<ScalarObject, TensorObject>& type) {
  for (const Method& method : kScalarMethods) add_method(type, method);
  type.def_prop_ro(
          "numerator", [](nb::handle self) { return helper(kScalarModule, "numerator", self); },
          nb::sig("def numerator(self) -> typing.Any"), "An integer itself.")
      .def_prop_ro(
          "denominator", [](nb::handle self) { return helper(kScalarModule, "denominator", self); },
          nb::sig("def denominator(self) -> int"), "1, of an integer.");
}

void register_orders(nb::module_& m) {
  m.def(
      "_order_of",
      [](nb::handle order) -> nb::object {
        const std::optional<Order> found = parse_order(order);
        if (!found) return nb::none();
        const char letter = static_cast<char>(*found);
        return nb::str(&letter, 1);
      },
      nb::arg("order").none(), nb::sig("def _order_of(order: typing.Any) -> str | None"),
      "Return 'C', 'F', 'A', 'K' or None as given. ValueError for another string, TypeError for\n"
      "another object.");
}

void add_python_methods(nb::class_<TensorObject>& type) {
  for (const Method& method : kMethods) add_method(type, method);
  type.def_prop_ro(
          "device",
          [](const TensorObject& t) {
            const BufferRef& memory = t.tensor().buffer();
            const std::string name = (memory ? memory->device() : default_device()).name();
            return nb::str(name.data(), name.size());
          },
          nb::sig("def device(self) -> str"), "Name of the device that holds the memory: 'cpu'.")
      .def_prop_rw(
          "real", [](nb::handle self) { return helper(kModule, "real", self); },
          [](nb::handle self, nb::handle value) { helper(kModule, "set_real", self, value); },
          nb::for_getter(nb::sig("def real(self) -> Tensor")),
          nb::for_setter(nb::sig("def real(self, value: typing.Any, /) -> None")),
          "A view of the real parts; a real Tensor itself.")
      .def_prop_rw(
          "imag", [](nb::handle self) { return helper(kModule, "imag", self); },
          [](nb::handle self, nb::handle value) { helper(kModule, "set_imag", self, value); },
          nb::for_getter(nb::sig("def imag(self) -> Tensor")),
          nb::for_setter(nb::sig("def imag(self, value: typing.Any, /) -> None")),
          "A view of the imaginary parts; zeros, read-only, of a real Tensor.")
      .def_prop_rw(
          "flat", [](nb::handle self) { return helper(kModule, "flat", self); },
          [](nb::handle self, nb::handle value) { helper(kModule, "set_flat", self, value); },
          nb::for_getter(nb::sig("def flat(self) -> typing.Any")),
          nb::for_setter(nb::sig("def flat(self, value: typing.Any, /) -> None")),
          "An iterator over the elements in row-major order, which can be indexed and assigned.")
      .def_prop_ro(
          "flags", [](nb::handle self) { return helper(kLayout, "flags", self); },
          nb::sig("def flags(self) -> typing.Any"),
          "What NumPy's flags say of the memory: `flags.writeable`, `flags['C_CONTIGUOUS']`.")
      .def_prop_ro(
          "base", [](const TensorObject& t) { return whole_memory(t); },
          nb::sig("def base(self) -> Tensor | None"),
          "A Tensor of all elements in the memory that this one views; None where these are all.")
      .def_prop_ro(
          "data",
          [](nb::handle self) {
            nb::object view = nb::steal(PyMemoryView_FromObject(self.ptr()));
            if (!view.is_valid()) raise_set();
            return view;
          },
          nb::sig("def data(self) -> memoryview"), "A memoryview of the elements.")
      .def_prop_ro(
          "ctypes", [](nb::handle self) { return nb::object(numpy_view(self).attr("ctypes")); },
          nb::sig("def ctypes(self) -> typing.Any"),
          "NumPy's object for ctypes on this memory, which keeps it; later ops on it run at their "
          "calls.")
      .def(
          "_set_readonly",
          [](TensorObject& t, bool readonly) {
            if (readonly) {
              t.is_locked = t.is_locked || !t.readonly;
            } else if (t.is_scalar || (t.readonly && !t.is_locked)) {
              fail(ErrorKind::kInvalidArgument,
                   "cannot set WRITEABLE flag to True of this array: its memory's owner does not "
                   "let "
                   "others write; use a copy()");
            }
            t.readonly = readonly;
          },
          nb::arg("readonly"), nb::sig("def _set_readonly(self, readonly: bool) -> None"))
      .def(
          "_take_over",
          [](TensorObject& t, const TensorObject& other) { t.set_tensor(other.tensor()); },
          nb::arg("other"), nb::sig("def _take_over(self, other: Tensor) -> None"),
          "Become a Tensor of another one's memory and shape.")
      .def(
          "_dims_in_order",
          [](const TensorObject& t, nb::handle order) {
            nb::list dims;
            for (const int dim :
                 dims_in_order(t.tensor(), parse_order(order).value_or(Order::kRows)))
              dims.append(dim);
            return nb::tuple(dims);
          },
          nb::arg("order").none(),
          nb::sig("def _dims_in_order(self, order: str | None) -> tuple[int, ...]"),
          "Dimensions from the outermost in memory to the innermost, of what is made like this.")
      .def(
          "_laid_out",
          [](const TensorObject& t, nb::handle dims) {
            const Shape given = parse_shape(dims);
            return wrap_whole(laid_out(t.tensor(), std::vector<int>(given.begin(), given.end())));
          },
          nb::arg("dims"), nb::sig("def _laid_out(self, dims: tuple[int, ...]) -> Tensor"),
          "Return this memory as a Tensor whose dimension dims[i] is dimension i here.")
      .def(
          "_shares",
          [](const TensorObject& t, nb::handle other) {
            return t.tensor().buffer() == self_of(other.ptr()).tensor().buffer();
          },
          nb::arg("other"), nb::sig("def _shares(self, other: Tensor) -> bool"),
          "Whether both are of one memory.")
      .def("_strided", &strided, nb::arg("shape"), nb::arg("strides"), nb::arg("offset"),
           nb::arg("dtype") = nb::none(), nb::arg("readonly") = false,
           nb::sig("def _strided(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: "
                   "int, dtype: typing.Any = None, readonly: bool = False) -> Tensor"),
           "Return a view that lies `offset` bytes behind the first element, strides in bytes.");
}

}  // namespace hologram::python
