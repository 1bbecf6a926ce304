// SPDX-License-Identifier: MIT
// DLPack capsules both ways: __dlpack__ of tensors and buffers, and from_dlpack.
#include "interop/dlpack.h"

#include <array>
#include <cstring>
#include <string>

#include "convert.h"
#include "hologram/dlpack.h"
#include "interop/host_array.h"
#include "looks.h"

namespace hologram::python {
namespace {

constexpr const char* kVersioned = "dltensor_versioned";
constexpr const char* kUsedVersioned = "used_dltensor_versioned";
constexpr const char* kUnversioned = "dltensor";
constexpr const char* kUsedUnversioned = "used_dltensor";

// Of a capsule that no consumer took: a consumer renames it.
template <class Managed>
void drop(PyObject* capsule) {
  const char* name = std::is_same_v<Managed, DLManagedTensor> ? kUnversioned : kVersioned;
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed->deleter != nullptr) managed->deleter(managed);
}

template <class Managed>
PyObject* capsule_of(Managed* managed) {
  const char* name = std::is_same_v<Managed, DLManagedTensor> ? kUnversioned : kVersioned;
  PyObject* capsule = PyCapsule_New(managed, name, &drop<Managed>);
  if (capsule == nullptr) {
    managed->deleter(managed);
    raise_set();
  }
  return capsule;
}

struct Names {
  PyObject* dlpack = PyUnicode_InternFromString("__dlpack__");
  PyObject* stream = PyUnicode_InternFromString("stream");
  PyObject* max_version = PyUnicode_InternFromString("max_version");
  PyObject* dl_device = PyUnicode_InternFromString("dl_device");
  PyObject* copy = PyUnicode_InternFromString("copy");
  // How from_dlpack asks others.
  PyObject* keywords = PyTuple_Pack(1, max_version);
  PyObject* version = Py_BuildValue("(ii)", DLPACK_MAJOR_VERSION, 0);
  PyObject* host_keywords = PyTuple_Pack(3, max_version, dl_device, copy);
  PyObject* host = Py_BuildValue("(ii)", static_cast<int>(kDLCPU), 0);
};
const Names& names() {
  static const Names& found = *new Names;
  return found;
}

long tuple_item(PyObject* tuple, Py_ssize_t i, const char* what) {  // NOLINT
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 2) {
    fail(ErrorKind::kTypeMismatch, "__dlpack__: ", what, " is a tuple of two ints or None, not ",
         name_of_type(tuple));
  }
  const long value = PyLong_AsLong(PyTuple_GET_ITEM(tuple, i));  // NOLINT
  if (value == -1 && PyErr_Occurred() != nullptr) raise_set();
  return value;
}

struct Request {
  PyObject* stream = Py_None;
  PyObject* max_version = Py_None;
  PyObject* dl_device = Py_None;
  PyObject* copy = Py_None;
};

Request parse_request(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  Request request;
  if (nargs > 1) {
    fail(ErrorKind::kTypeMismatch,
         "__dlpack__(*, stream, max_version, dl_device, copy) takes keywords only");
  }
  if (nargs == 1) request.stream = args[0];
  const Py_ssize_t count = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i);
    PyObject* value = args[nargs + i];
    // Names in calls are interned, nearly always.
    const auto is = [&](PyObject* known) {
      return name == known || PyUnicode_Compare(name, known) == 0;
    };
    if (is(names().max_version)) {
      request.max_version = value;
    } else if (is(names().dl_device)) {
      request.dl_device = value;
    } else if (is(names().copy)) {
      request.copy = value;
    } else if (is(names().stream)) {
      request.stream = value;
    } else {
      fail(ErrorKind::kTypeMismatch, "__dlpack__: unexpected keyword ",
           nb::cast<const char*>(nb::handle(name)));
    }
  }
  return request;
}

// PyTorch's tensors have neither negative strides nor memory that may not be written, and its
// from_dlpack takes no notice of a capsule that says so: the caller of __dlpack__ is that function.
bool is_asked_by_pytorch() {
  PyObject* globals = PyEval_GetGlobals();
  PyObject* name = globals == nullptr ? nullptr : PyDict_GetItemString(globals, "__name__");
  return name != nullptr && PyUnicode_Check(name) != 0 &&
         PyUnicode_CompareWithASCIIString(name, "torch.utils.dlpack") == 0;
}

bool has_negative_strides(const Tensor& tensor) {
  if (tensor.numel() == 0) return false;
  for (int d = 0; d < tensor.ndim(); ++d) {
    if (tensor.stride(d) < 0 && tensor.size(d) > 1) return true;
  }
  return false;
}

// True where PyTorch has to be given a copy; BufferError where it must not be one.
bool needs_copy(const TensorObject& self, bool may_copy) {
  const bool is_negative = has_negative_strides(self.tensor());
  if ((!is_negative && !self.readonly) || !is_asked_by_pytorch()) return false;
  if (self.readonly) {
    raise(PyExc_BufferError,
          "__dlpack__: the Tensor is read-only, and PyTorch would write to its memory all the "
          "same; pass copy=True");
  }
  if (!may_copy) {
    raise(PyExc_BufferError, "__dlpack__: the strides " + text(self.tensor().strides()) +
                                 " are negative, which PyTorch has no tensors of, and copy=False "
                                 "rules out a copy; leave it out");
  }
  return true;
}

PyObject* export_tensor(const TensorObject& self, const Request& request) {
  const bool is_default =
      request.stream == Py_None ||
      (PyLong_Check(request.stream) && PyLong_AsLong(request.stream) == -1 && !PyErr_Occurred());
  if (!is_default) {
    PyErr_Clear();
    raise(PyExc_BufferError, "__dlpack__: host memory has no streams; pass stream=None");
  }
  Tensor tensor = self.tensor();
  uint64_t flags = self.readonly ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  if (request.dl_device != Py_None) {
    const DLDevice own =
        tensor.buffer() ? dlpack_device(tensor.buffer()->device()) : DLDevice{kDLCPU, 0};
    const long type = tuple_item(request.dl_device, 0, "dl_device");   // NOLINT
    const long index = tuple_item(request.dl_device, 1, "dl_device");  // NOLINT
    if (type != own.device_type || index != own.device_id) {
      raise(PyExc_BufferError, "__dlpack__: the memory is on device (" +
                                   std::to_string(own.device_type) + ", " +
                                   std::to_string(own.device_id) + "), and dl_device asks for (" +
                                   std::to_string(type) + ", " + std::to_string(index) + ")");
    }
  }
  const bool may_copy = request.copy == Py_None || to_bool(request.copy);
  if ((request.copy != Py_None && may_copy) || needs_copy(self, may_copy)) {
    tensor = copy_of(tensor);
    flags = DLPACK_FLAG_BITMASK_IS_COPIED;
  }
  const bool versioned =
      request.max_version != Py_None && tuple_item(request.max_version, 0, "max_version") >= 1;
  if (!versioned && self.readonly && flags == DLPACK_FLAG_BITMASK_READ_ONLY) {
    raise(PyExc_BufferError,
          "__dlpack__: the Tensor is read-only, which only versioned capsules can say; pass "
          "max_version=(1, 0) or copy=True");
  }
  ExportMark mark;
  if (tensor.buffer() && !is_settled(*tensor.buffer())) {
    const Look look("DLPack");
    mark = mark_and_settle(tensor);
  }
  return versioned ? capsule_of(to_dlpack(tensor, flags))
                   : capsule_of(to_dlpack_unversioned(tensor));
}

PyObject* dlpack_method(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                        PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    const Request request = parse_request(args, nargs, kwnames);
    if (const TensorObject* tensor = tensor_of(self)) {
      // Whoever gets it may write.
      if (tensor->is_scalar) return export_tensor({copy_of(tensor->tensor()), false}, request);
      return export_tensor(*tensor, request);
    }
    const BufferObject* buffer = buffer_of(self);
    if (buffer == nullptr) fail(ErrorKind::kTypeMismatch, "__dlpack__: not made by its class");
    return export_tensor({buffer->tensor("__dlpack__"), false}, request);
  });
}

PyObject* dlpack_device_method(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const BufferObject* buffer = buffer_of(self);
    if (buffer != nullptr) buffer->check_alive("__dlpack_device__");
    const BufferRef& memory =
        buffer != nullptr ? buffer->buffer : tensor_of(self)->tensor().buffer();
    if (memory && !memory->device().is_host_memory()) {
      const DLDevice device = dlpack_device(memory->device());
      return Py_BuildValue("(ii)", static_cast<int>(device.device_type), int{device.device_id});
    }
    static PyObject* const host = Py_BuildValue("(ii)", static_cast<int>(kDLCPU), 0);
    return nb::borrow(host).release().ptr();
  });
}

PyMethodDef methods[] = {
    {"__dlpack__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&dlpack_method)),
     METH_FASTCALL | METH_KEYWORDS,
     "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "Lend the memory, without a copy, as a DLPack capsule; ops on it run at their calls from\n"
     "then on. Versioned where max_version is (1, 0) or later. copy=True lends a copy. "
     "BufferError\n"
     "for another device, and for read-only memory without max_version. PyTorch gets a copy of\n"
     "what has negative strides, unless copy=False, and BufferError for read-only memory."},
    {"__dlpack_device__", &dlpack_device_method, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\nReturn DLPack's number of the device, (1, 0): the CPU."}};

// A capsule whose memory is ours after this; it is left alone where that fails.
TensorObject take(PyObject* capsule) {
  const char* name = PyCapsule_GetName(capsule);
  TensorObject result;
  if (name != nullptr && std::strcmp(name, kVersioned) == 0) {
    auto* managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, name));
    result.set_tensor(from_dlpack(managed, &result.readonly));
    PyCapsule_SetName(capsule, kUsedVersioned);
  } else if (name != nullptr && std::strcmp(name, kUnversioned) == 0) {
    result.set_tensor(
        from_dlpack(static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, name))));
    PyCapsule_SetName(capsule, kUsedUnversioned);
  } else if (name != nullptr && std::strncmp(name, "used_", 5) == 0) {
    fail(ErrorKind::kInvalidArgument,
         "from_dlpack: the capsule was used already; it gives its memory once, so call "
         "__dlpack__() again");
  } else {
    fail(ErrorKind::kInvalidArgument, "from_dlpack: the capsule is called ",
         name == nullptr ? "nothing" : name, ", not 'dltensor' or 'dltensor_versioned'");
  }
  return result;
}

// Whether it has __dlpack__; leaves the error that is set, if one is, as it is.
bool lends(PyObject* object) {
  const nb::error_scope kept;
  return PyObject_HasAttr(object, names().dlpack) != 0;
}

nb::object ask(PyObject* object) {
  const std::array<PyObject*, 3> arguments = {nullptr, object, names().version};
  PyObject* capsule = PyObject_VectorcallMethod(
      names().dlpack, arguments.data() + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, names().keywords);
  if (capsule == nullptr && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
    // Libraries from before version 1.0 know no max_version.
    PyErr_Clear();
    capsule = PyObject_CallMethodNoArgs(object, names().dlpack);
  }
  if (capsule == nullptr && PyErr_ExceptionMatches(PyExc_AttributeError) != 0 && !lends(object)) {
    PyErr_Clear();
    fail(ErrorKind::kTypeMismatch, "from_dlpack: ", name_of_type(object),
         " has no __dlpack__; use asarray() for what has the buffer protocol or __array__");
  }
  if (capsule == nullptr) raise_set();
  return nb::steal(capsule);
}

// From a device of another name, as PyTorch's device hologram is one, whose memory the CPU reaches
// all the same. Null where its owner does not say so.
nb::object ask_for_host(PyObject* object) {
  const std::array<PyObject*, 5> arguments = {nullptr, object, names().version, names().host,
                                              Py_False};
  PyObject* capsule =
      PyObject_VectorcallMethod(names().dlpack, arguments.data() + 1,
                                1 | PY_VECTORCALL_ARGUMENTS_OFFSET, names().host_keywords);
  if (capsule == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) raise_set();  // Ctrl-C
    PyErr_Clear();
  }
  return nb::steal(capsule);
}

}  // namespace

TensorObject import_dlpack(nb::handle object, bool copy) {
  TensorObject result;
  if (const TensorObject* tensor = tensor_of(object.ptr())) {
    result = {tensor->tensor(), tensor->readonly};
    copy = copy || tensor->is_scalar;
  } else if (const BufferObject* buffer = buffer_of(object.ptr())) {
    result.set_tensor(buffer->tensor("__dlpack__"));
  } else if (PyCapsule_CheckExact(object.ptr()) != 0) {
    result = take(object.ptr());
  } else {
    const nb::object capsule = ask(object.ptr());
    if (PyCapsule_CheckExact(capsule.ptr()) == 0) {
      fail(ErrorKind::kTypeMismatch, "from_dlpack: __dlpack__ of ", name_of_type(object),
           " gave no capsule but ", name_of_type(capsule));
    }
    try {
      result = take(capsule.ptr());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kNotSupported) throw;
      const nb::object on_host = ask_for_host(object.ptr());
      if (!on_host.is_valid() || PyCapsule_CheckExact(on_host.ptr()) == 0) throw;
      result = take(on_host.ptr());
    }
  }
  if (copy) return {copy_of(result.tensor()), false};
  return result;
}

void add_dlpack_methods(nb::handle type) {
  for (PyMethodDef& method : methods) {
    nb::object descriptor =
        nb::steal(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &method));
    if (!descriptor.is_valid()) raise_set();
    nb::setattr(type, method.ml_name, descriptor);
  }
}

}  // namespace hologram::python
