// SPDX-License-Identifier: MIT
// hologram.Buffer: memory of an executor as NumPy, bytes and other libraries see it.
#include "hologram/buffer.h"

#include <cstring>
#include <string>

#include "convert.h"
#include "dtype.h"
#include "hologram/elementwise.h"
#include "hologram/functions.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"
#include "interop/dlpack.h"
#include "interop/host_array.h"
#include "looks.h"
#include "objects.h"

namespace hologram::python {

PyTypeObject* buffer_type = nullptr;

namespace {

void from_numpy(BufferObject& self, nb::handle array) {
  const Tensor to = self.tensor("from_numpy");
  const HostArray host(array);
  const View from = host.view();
  if (from.numel() != to.numel()) {
    fail(ErrorKind::kInvalidArgument, "Buffer.from_numpy: the buffer has ", to.numel(),
         " elements, shape ", text(self.shape), ", and the array ", from.numel(), ", shape ",
         text(host.shape()), "; pass an array with as many");
  }
  if (is_complex(from.dtype) && !is_complex(to.dtype())) {
    fail(ErrorKind::kTypeMismatch, "Buffer.from_numpy: ", dtype_name(from.dtype),
         " does not fit into ", dtype_name(to.dtype()), "; pass array.real or array.imag");
  }
  // In the array's shape, so that any strides will do.
  const Tensor shaped(to.buffer(), host.shape(), to.dtype());
  const Unlocked unlocked(to.numel() >= kUnlockElements || is_pending(*to.buffer()));
  materialize(*to.buffer());
  Device& device = to.buffer()->device();
  if (!device.is_host_memory() || is_stored_only(from.dtype) || is_stored_only(to.dtype())) {
    return copy_into(from_host(from, device), shaped);
  }
  if (!may_share_bytes(bytes_of(from), all_bytes(*to.buffer()))) {
    copy(from, shaped.view());
    return;
  }
  const BufferRef between = BufferRef::adopt(allocate_buffer(to.buffer()->device(), to.nbytes()));
  const Tensor aside(between, host.shape(), to.dtype());
  copy(from, aside.view());
  copy(aside.view(), shaped.view());
}

void from_bytes(BufferObject& self, nb::handle data) {
  self.check_alive("from_bytes");
  Py_buffer view;
  if (PyObject_GetBuffer(data.ptr(), &view, PyBUF_SIMPLE) != 0) raise_set();
  struct Guard {
    Py_buffer* view;
    ~Guard() { PyBuffer_Release(view); }
  } const guard{&view};
  if (static_cast<size_t>(view.len) != self.buffer->nbytes()) {
    fail(ErrorKind::kInvalidArgument, "Buffer.from_bytes: the buffer has ", self.buffer->nbytes(),
         " bytes and `data` ", view.len, "; pass as many");
  }
  const BufferRef buffer = self.buffer;
  const Unlocked unlocked(view.len >= kUnlockElements || is_pending(*buffer));
  materialize(*buffer);
  Device& device = buffer->device();
  if (!device.is_host_memory()) {
    device.copy_from_host(device.default_stream(), buffer->data(), view.buf, buffer->nbytes());
    return;
  }
  // The bytes may be the buffer's own.
  if (view.len != 0) std::memmove(buffer->data(), view.buf, static_cast<size_t>(view.len));
}

nb::bytes to_bytes(BufferObject& self) {
  const Look look("to_bytes()");
  const Tensor from = host_tensor(self.tensor("to_bytes"));
  return nb::bytes(static_cast<const char*>(from.data()), from.nbytes());
}

void copy_from(BufferObject& self, nb::handle source) {
  if (BufferObject* other = buffer_of(source.ptr())) {
    const Tensor to = self.tensor("copy_from");
    const Tensor from = other->tensor("copy_from");
    if (from.numel() != to.numel()) {
      fail(ErrorKind::kInvalidArgument, "Buffer.copy_from: the buffer has ", to.numel(),
           " elements and `source` ", from.numel(), "; copy between buffers of one size");
    }
    if (to.buffer() == from.buffer()) return;
    if (is_complex(from.dtype()) && !is_complex(to.dtype())) {
      fail(ErrorKind::kTypeMismatch, "Buffer.copy_from: ", dtype_name(from.dtype()),
           " does not fit into ", dtype_name(to.dtype()));
    }
    const Unlocked unlocked(to.numel() >= kUnlockElements);
    copy_into(Tensor(from.buffer(), to.shape(), from.dtype()), to);
    return;
  }
  from_numpy(self, source);
}

Scalar parse_number(nb::handle value, Dtype dtype) {
  if (PyBool_Check(value.ptr())) return {value.ptr() == Py_True};
  if (PyLong_Check(value.ptr())) {
    WeakNumber weak;
    if (parse_weak(value.ptr(), weak) && weak.is_uint64 && dtype == Dtype::kUInt64) {
      return weak.value_in(dtype);
    }
    const int64_t number = PyLong_AsLongLong(value.ptr());
    if (number == -1 && PyErr_Occurred() != nullptr) raise_set();
    return {number};
  }
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) raise_set();
  return {number};
}

void fill_buffer(BufferObject& self, nb::handle value) {
  const Tensor to = self.tensor("fill");
  const Scalar number = parse_number(value, to.dtype());
  const Unlocked unlocked(to.numel() >= kUnlockElements || is_pending(*to.buffer()));
  if (!to.buffer()->device().is_host_memory() || is_stored_only(to.dtype())) {
    return fill_into(number, to);
  }
  materialize(*to.buffer());
  fill(number, to.view());
}

std::string repr(BufferObject& self) {
  if (!self.buffer) return "<hologram.Buffer, freed>";
  std::string result = "<hologram.Buffer shape=" + text(self.shape) +
                       " dtype=" + std::string(dtype_name(self.dtype)) + " pool=";
  result += self.buffer->pool() == PoolKind::kBoundary
                ? "boundary class=" + std::to_string(self.buffer->class_index())
                : "linear";
  return result + (is_pending(*self.buffer) ? ", work recorded>" : ">");
}

int get_buffer_view(PyObject* self, Py_buffer* view, int flags) {
  Tensor tensor;
  view->obj = nullptr;
  const int status = guarded_int([&] {
    tensor = buffer_self(self).tensor("__buffer__");
    return 0;
  });
  return status != 0 ? status : export_view(self, tensor, false, view, flags);
}

PyType_Slot buffer_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer_view)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(&release_view)},
                              {0, nullptr}};

constexpr const char* kBufferDoc =
    R"(Memory of an Executor: elements of one dtype, one after another, in a shape.

Made by Executor.allocate. A Buffer is what hologram.ops work on; hologram.asarray(buffer) is a
Tensor on the same memory. np.asarray(buffer), memoryview(buffer) and DLPack share the memory
without a copy. Ops on buffers may be deferred until they are read; every reader here waits. From
when its memory was shared, ops on a buffer run at their calls. After free() every use raises
RuntimeError; what shares the memory stays valid.)";

constexpr const char* kFromNumpyDoc =
    R"(Copy the elements of `array`, of any shape with as many elements, in row-major order.

`array` is a NumPy array or anything with the buffer protocol, or what np.asarray takes; its dtype
is converted as astype does. ValueError for another number of elements, TypeError for complex into
real and for elements that are no dtype of hologram.)";

constexpr const char* kToNumpyDoc =
    R"(Return a NumPy array on this memory, without a copy; it keeps the memory alive.

Waits for the work that writes the buffer. Later ops on it run at their calls, so that the array
shows their results. bfloat16 needs ml_dtypes. Memory that the processor cannot reach, as that of
an OpenCL device, is copied: the array is read-only and shows what is there now.)";

nb::object buffer_from_dlpack(nb::handle x) {
  TensorObject lent = import_dlpack(x, /*copy=*/false);
  lent.check_writable("Buffer.from_dlpack");
  const Tensor& tensor = lent.tensor();
  if (tensor.buffer() && (!tensor.is_contiguous() || tensor.offset() != 0 ||
                          tensor.nbytes() != tensor.buffer()->nbytes())) {
    fail(ErrorKind::kInvalidArgument,
         "Buffer.from_dlpack: a buffer is all of its memory in row-major order, and `x` is another "
         "view; pass a contiguous copy, or use hologram.Tensor.from_dlpack(x)");
  }
  BufferObject result{tensor.buffer(), tensor.shape(), tensor.dtype()};
  if (!result.buffer) result.buffer = BufferRef::adopt(allocate_buffer(default_device(), 0));
  return wrap_as(buffer_type, std::move(result));
}

template <class Result, class Get>
auto getter(const char* name, Get get) {
  return [name, get](BufferObject& self) -> Result {
    self.check_alive(name);
    return get(self);
  };
}

}  // namespace

void register_buffer(nb::module_& m) {
  nb::class_<BufferObject> type(m, "Buffer", nb::is_final(), nb::type_slots(buffer_slots),
                                kBufferDoc);
  add_dlpack_methods(type);
  buffer_type = reinterpret_cast<PyTypeObject*>(type.ptr());
  type.def_static(
          "from_dlpack", &buffer_from_dlpack, nb::arg("x"),
          nb::sig("def from_dlpack(x: typing.Any) -> Buffer"),
          "Return a Buffer on the memory of `x`, which has __dlpack__ or is a capsule; no copy.\n\n"
          "It keeps that memory alive, and ops on it run at their calls. ValueError where `x` is\n"
          "not contiguous or read-only; for the rest see Tensor.from_dlpack.")
      .def("from_numpy", &from_numpy, nb::arg("array"),
           nb::sig("def from_numpy(self, array: typing.Any) -> None"), kFromNumpyDoc)
      .def(
          "to_numpy",
          [](nb::handle self) {
            buffer_self(self).check_alive("to_numpy");
            const Look look("to_numpy()");
            return numpy_view(self);
          },
          nb::sig("def to_numpy(self) -> numpy.ndarray"), kToNumpyDoc)
      .def("from_bytes", &from_bytes, nb::arg("data"),
           nb::sig("def from_bytes(self, data: typing.Any) -> None"),
           "Copy as many bytes as the buffer has from a bytes-like object; ValueError otherwise.")
      .def("to_bytes", &to_bytes, "Return a copy of the contents as bytes.")
      .def("fill", &fill_buffer, nb::arg("value"), nb::sig("def fill(self, value: float) -> None"),
           "Set every element to a number, converted as astype does.")
      .def("copy_from", &copy_from, nb::arg("source"),
           nb::sig("def copy_from(self, source: typing.Any) -> None"),
           "Copy the elements of a Buffer of the same size, or of an array as from_numpy does.")
      .def(
          "free", [](BufferObject& self) { self.buffer.reset(); },
          "Give the memory back once nothing shares it. Freeing twice is fine.")
      .def_prop_ro("size", getter<int64_t>("size", [](auto& b) { return shape_numel(b.shape); }),
                   "Number of elements.")
      .def_prop_ro("nbytes", getter<size_t>("nbytes", [](auto& b) { return b.buffer->nbytes(); }),
                   "Bytes of the elements.")
      .def_prop_ro("shape", getter<nb::object>("shape", [](auto& b) { return to_tuple(b.shape); }),
                   nb::sig("def shape(self) -> tuple[int, ...]"), "Sizes, as allocated.")
      .def_prop_ro("dtype",
                   getter<nb::object>("dtype", [](auto& b) { return report_dtype(b.dtype); }),
                   nb::sig("def dtype(self) -> typing.Any"), "NumPy's dtype of an element.")
      .def_prop_ro("pool",
                   getter<const char*>("pool",
                                       [](auto& b) {
                                         return b.buffer->pool() == PoolKind::kBoundary ? "boundary"
                                                                                        : "linear";
                                       }),
                   "Which pool the memory is from: 'boundary' or 'linear'.")
      .def_prop_ro("class_index",
                   getter<int>("class_index", [](auto& b) { return b.buffer->class_index(); }),
                   "Class in the boundary pool, 0 to 95; -1 in the linear pool.")
      .def("__len__", getter<int64_t>("__len__",
                                      [](auto& b) -> int64_t {
                                        if (b.shape.empty())
                                          raise(PyExc_TypeError, "len() of shape ()");
                                        return b.shape[0];
                                      }))
      .def(
          "__array__",
          [](nb::handle self, nb::handle dtype, nb::handle copy) {
            buffer_self(self).check_alive("__array__");
            return helper("hologram._numpy", "array", self, dtype, copy);
          },
          nb::arg("dtype") = nb::none(), nb::kw_only(), nb::arg("copy") = nb::none(),
          nb::sig("def __array__(self, dtype: typing.Any = None, *, copy: bool | None = None) -> "
                  "numpy.ndarray"))
      .def("__repr__", &repr);
}

}  // namespace hologram::python
