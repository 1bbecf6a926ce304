// SPDX-License-Identifier: MIT
// Methods of tensors that are written in Python, in hologram._methods: what arrays of NumPy and of
// the array API have, made of other methods and of NumPy's functions.
#include <array>
#include <string>
#include <utility>

#include "convert.h"
#include "dtype.h"
#include "hologram/tensor.h"
#include "methods.h"
#include "objects.h"

namespace hologram::python {
namespace {

struct Method {
  const char* name;
  const char* signature;
  const char* doc;
};

constexpr const char* kModule = "hologram._methods";

constexpr std::array kMethods = {
    Method{"__array_namespace__",
           "def __array_namespace__(self, *, api_version: str | None = None) -> typing.Any",
           "Return the module hologram. ValueError for a version that it does not follow."},
    Method{"__array_function__",
           "def __array_function__(self, func: typing.Any, types: typing.Any, args: typing.Any, "
           "kwargs: typing.Any) -> typing.Any",
           "Answer a function of NumPy: recorded where hologram has it, else run by NumPy on this "
           "memory."},
    Method{"to_device",
           "def to_device(self, device: str, /, *, stream: int | None = None) -> Tensor",
           "Return the Tensor itself where it is on `device`. ValueError for another one."},
    Method{"conj", "def conj(self) -> Tensor",
           "Return the complex conjugate; a real Tensor itself."},
    Method{"conjugate", "def conjugate(self) -> Tensor", "Another name of conj."},
    Method{"clip",
           "def clip(self, min: typing.Any = None, max: typing.Any = None, out: Tensor | None = "
           "None) -> Tensor",
           "Return the elements moved into [min, max], see hologram.clip."},
    Method{"round", "def round(self, decimals: int = 0, out: Tensor | None = None) -> Tensor",
           "Return the elements rounded to `decimals` places, halves to even."},
    Method{"cumprod",
           "def cumprod(self, axis: int | None = None, dtype: typing.Any = None, out: Tensor | "
           "None = None) -> Tensor",
           "Return the products up to each element along `axis`, or in row-major order."},
    Method{"nonzero", "def nonzero(self) -> tuple[Tensor, ...]",
           "Return the positions of the elements that are not 0, one Tensor of int64 for each "
           "dimension."},
    Method{"sort",
           "def sort(self, axis: int = -1, kind: str | None = None, order: None = None, *, stable: "
           "bool | None = None) -> None",
           "Sort in place along an axis; NaNs go last. hologram.sort returns a sorted copy."},
    Method{"argsort",
           "def argsort(self, axis: int | None = -1, kind: str | None = None, order: None = None, "
           "*, stable: bool | None = None) -> Tensor",
           "Return the positions, int64, that sort along an axis."},
    Method{
        "partition",
        "def partition(self, kth: typing.Any, axis: int = -1, kind: str = 'introselect') -> None",
        "Move in place so that position kth has what sorting would put there."},
    Method{"argpartition",
           "def argpartition(self, kth: typing.Any, axis: int | None = -1, kind: str = "
           "'introselect') -> Tensor",
           "Return the positions, int64, that partition along an axis."},
    Method{"searchsorted",
           "def searchsorted(self, v: typing.Any, side: str = 'left', sorter: typing.Any = None) "
           "-> Tensor",
           "Return where values go into this sorted Tensor, see hologram.searchsorted."},
    Method{
        "take",
        "def take(self, indices: typing.Any, axis: int | None = None, out: Tensor | None = None, "
        "mode: str = 'raise') -> Tensor",
        "Return the elements at positions along an axis, or in row-major order. IndexError for "
        "positions out of range unless mode is 'wrap' or 'clip'."},
    Method{"put",
           "def put(self, indices: typing.Any, values: typing.Any, mode: str = 'raise') -> None",
           "Write values to positions in row-major order."},
    Method{"repeat", "def repeat(self, repeats: typing.Any, axis: int | None = None) -> Tensor",
           "Return each element several times along an axis, or in row-major order."},
    Method{
        "choose",
        "def choose(self, choices: typing.Any, out: Tensor | None = None, mode: str = 'raise') -> "
        "Tensor",
        "Return elements of several arrays, which of them these integers say."},
    Method{
        "compress",
        "def compress(self, condition: typing.Any, axis: int | None = None, out: Tensor | None = "
        "None) -> Tensor",
        "Return the slices along an axis where the condition holds."},
    Method{"diagonal",
           "def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor",
           "Return a read-only view of a diagonal of each matrix."},
    Method{"trace",
           "def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: typing.Any = "
           "None, out: Tensor | None = None) -> Tensor",
           "Return the sum of a diagonal of each matrix."},
    Method{"dot", "def dot(self, b: typing.Any, out: Tensor | None = None) -> Tensor",
           "Return the product by numpy.dot's rules: of matrices, or over the last dimension here "
           "and the one before the last there."},
    Method{"fill", "def fill(self, value: typing.Any) -> None", "Write one value everywhere."},
    Method{"view", "def view(self, dtype: typing.Any = None) -> Tensor",
           "Return a view of the same bytes, in another dtype where one is given; the last "
           "dimension, which is dense, changes with its size."},
};

// A view at a distance from the first element, in bytes, with strides in bytes.
nb::object strided(const TensorObject& self, nb::handle shape, nb::handle strides, int64_t offset,
                   nb::handle dtype, bool readonly) {
  const Dtype wanted = parse_dtype(dtype, self.tensor.dtype());
  const auto size = static_cast<int64_t>(itemsize(wanted));
  const auto from = self.tensor.offset() * static_cast<int64_t>(itemsize(self.tensor.dtype()));
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
  return wrap(Tensor(self.tensor.buffer(), std::move(sizes), std::move(steps), wanted, at),
              self.readonly || readonly);
}

}  // namespace

void add_python_methods(nb::class_<TensorObject>& type) {
  for (const Method& method : kMethods) {
    // The module needs NumPy, so it is looked up when a method is first called; the functions live
    // as long as the process.
    auto* found = new PyObject*(nullptr);
    const char* name = method.name;
    type.def(
        name,
        [name, found](nb::handle self, const nb::args& args, const nb::kwargs& options) {
          if (*found == nullptr) {
            *found = nb::object(nb::module_::import_(kModule).attr(name)).release().ptr();
          }
          return nb::handle(*found)(self, *args, **options);
        },
        nb::sig(method.signature), method.doc);
  }
  type.def_prop_ro(
          "device",
          [](const TensorObject& t) {
            const BufferRef& memory = t.tensor.buffer();
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
      .def(
          "_shares",
          [](const TensorObject& t, nb::handle other) {
            return t.tensor.buffer() == self_of(other.ptr()).tensor.buffer();
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
