// SPDX-License-Identifier: MIT
// Tensors of handles in Python: DLPack capsules, and the class HologramTensor.
#include <cstring>
#include <memory>

#include "call.h"
#include "hologram/dlpack.h"

namespace hologram_ffi {
namespace {

constexpr const char* kVersioned = "dltensor_versioned";
constexpr const char* kUnversioned = "dltensor";
constexpr int kMostDims = 64;

// A capsule that no consumer took gives its memory back.
template <class Managed>
void destroy_capsule(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed->deleter != nullptr) managed->deleter(managed);
}
void destroy_versioned(PyObject* capsule) {
  destroy_capsule<DLManagedTensorVersioned>(capsule, kVersioned);
}
void destroy_unversioned(PyObject* capsule) {
  destroy_capsule<DLManagedTensor>(capsule, kUnversioned);
}

PyObject* make_capsule(uint64_t tensor, bool versioned, bool copied) {
  PyObject* capsule = nullptr;
  if (versioned) {
    DLManagedTensorVersioned* managed = nullptr;
    const int status = hologram_tensor_to_dlpack(tensor, &managed);
    if (status != HOLOGRAM_OK) return raise(status);
    if (copied) managed->flags |= DLPACK_FLAG_BITMASK_IS_COPIED;
    capsule = PyCapsule_New(managed, kVersioned, destroy_versioned);
    if (capsule == nullptr) managed->deleter(managed);
  } else {
    DLManagedTensor* managed = nullptr;
    const int status = hologram_tensor_to_dlpack_unversioned(tensor, &managed);
    if (status != HOLOGRAM_OK) return raise(status);
    capsule = PyCapsule_New(managed, kUnversioned, destroy_unversioned);
    if (capsule == nullptr) managed->deleter(managed);
  }
  return capsule;
}

// Takes the memory of a capsule; 0 with an exception where it cannot be taken.
uint64_t take_capsule(PyObject* capsule) {
  uint64_t tensor = 0;
  int status = HOLOGRAM_OK;
  const char* used = nullptr;
  if (PyCapsule_IsValid(capsule, kVersioned) != 0) {
    auto* managed =
        static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, kVersioned));
    status = hologram_tensor_from_dlpack(managed, &tensor);
    used = "used_dltensor_versioned";
  } else if (PyCapsule_IsValid(capsule, kUnversioned) != 0) {
    auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kUnversioned));
    status = hologram_tensor_from_dlpack_unversioned(managed, &tensor);
    used = "used_dltensor";
  } else {
    const char* name = PyCapsule_GetName(capsule);
    PyErr_Clear();
    const bool taken = name != nullptr && std::strncmp(name, "used_", 5) == 0;
    PyErr_Format(PyExc_ValueError,
                 taken ? "tensor_from_dlpack: x: the capsule %s was taken already"
                       : "tensor_from_dlpack: x: expected a DLPack capsule, got one named %s",
                 name == nullptr ? "NULL" : name);
    return 0;
  }
  if (status != HOLOGRAM_OK) {
    raise(status);
    return 0;
  }
  PyCapsule_SetName(capsule, used);
  return tensor;
}

struct Names {
  PyObject* dlpack = PyUnicode_InternFromString("__dlpack__");
  PyObject* keywords = Py_BuildValue("(ss)", "max_version", "dl_device");
  PyObject* version = Py_BuildValue("(ii)", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
  PyObject* device = Py_BuildValue("(ii)", kDLCPU, 0);
  PyObject* zero = PyLong_FromLong(0);
};
Names& names() {
  static Names* instance = new Names;
  return *instance;
}

// A handle on the memory of x: a capsule, or an object with __dlpack__; 0 with an exception.
uint64_t import_object(PyObject* x) {
  if (PyCapsule_CheckExact(x)) return take_capsule(x);
  const Names& n = names();
  PyObject* args[] = {nullptr, x, n.version, n.device};
  PyObject* capsule =
      PyObject_VectorcallMethod(n.dlpack, args + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, n.keywords);
  if (capsule == nullptr && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
    // Lenders from before version 1.0 know no keywords.
    PyErr_Clear();
    capsule = PyObject_CallMethodNoArgs(x, n.dlpack);
  }
  if (capsule == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) != 0) {
      PyErr_Format(PyExc_TypeError,
                   "tensor_from_dlpack: x: expected a DLPack capsule or an object with __dlpack__, "
                   "got %.200s",
                   Py_TYPE(x)->tp_name);
    }
    return 0;
  }
  uint64_t tensor = 0;
  if (PyCapsule_CheckExact(capsule)) {
    tensor = take_capsule(capsule);
  } else {
    PyErr_Format(PyExc_TypeError, "tensor_from_dlpack: x: its __dlpack__ gave %.200s, no capsule",
                 Py_TYPE(capsule)->tp_name);
  }
  Py_DECREF(capsule);
  return tensor;
}

PyObject* sizes_of(uint64_t tensor, int (*read)(uint64_t, int64_t*, int)) {
  int ndim = 0;
  int64_t sizes[kMostDims];
  // First what was asked for, so that an error has its name.
  int status = read(tensor, sizes, kMostDims);
  if (status == HOLOGRAM_OK) status = hologram_tensor_ndim(tensor, &ndim);
  if (status != HOLOGRAM_OK) return raise(status);
  PyObject* tuple = PyTuple_New(ndim);
  for (int d = 0; tuple != nullptr && d < ndim; ++d) {
    PyObject* size = PyLong_FromLongLong(sizes[d]);
    if (size == nullptr) Py_CLEAR(tuple);
    if (tuple != nullptr) PyTuple_SET_ITEM(tuple, d, size);
  }
  return tuple;
}

PyObject* dtype_of(uint64_t tensor) {
  int dtype = 0;
  const int status = hologram_tensor_dtype(tensor, &dtype);
  return status == HOLOGRAM_OK ? to_python(hologram_dtype_name(dtype)) : raise(status);
}

// The sizes of a tuple or list; false with an exception.
bool read_sizes(PyObject* given, const Spec& spec, size_t parameter, int64_t* sizes, int* ndim) {
  PyObject* list = PySequence_Fast(given, "expected a sequence");
  if (list == nullptr) {
    PyErr_Clear();
    return refuse(PyExc_TypeError, spec, parameter, "a sequence of ints", given);
  }
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
  *ndim = count > kMostDims ? kMostDims + 1 : static_cast<int>(count);
  bool good = true;
  for (int d = 0; good && d < *ndim && d < kMostDims; ++d) {
    good = to_int(PySequence_Fast_GET_ITEM(list, d), spec, parameter, &sizes[d]);
  }
  Py_DECREF(list);
  return good;
}

// What __dlpack__ is asked for.
struct Wish {
  bool versioned = false;
  bool copy = false;
};

bool refuse_wish(const char* text) {
  PyErr_SetString(PyExc_BufferError, text);
  return false;
}

bool is_pair(PyObject* given) { return PyTuple_Check(given) && PyTuple_GET_SIZE(given) == 2; }

bool read_wish(PyObject* stream, PyObject* max_version, PyObject* dl_device, PyObject* copy,
               Wish* wish) {
  if (stream != nullptr && stream != Py_None) {
    return refuse_wish("__dlpack__: stream: memory of the CPU has none; pass None");
  }
  if (max_version != nullptr && max_version != Py_None) {
    if (!is_pair(max_version)) {
      PyErr_Format(PyExc_TypeError, "__dlpack__: max_version: expected (major, minor), got %R",
                   max_version);
      return false;
    }
    const long major = PyLong_AsLong(PyTuple_GET_ITEM(max_version, 0));
    if (major == -1 && PyErr_Occurred() != nullptr) return false;
    wish->versioned = major >= 1;
  }
  if (dl_device != nullptr && dl_device != Py_None) {
    if (!is_pair(dl_device)) {
      PyErr_Format(PyExc_TypeError, "__dlpack__: dl_device: expected (type, id), got %R",
                   dl_device);
      return false;
    }
    const long type = PyLong_AsLong(PyTuple_GET_ITEM(dl_device, 0));
    if (type == -1 && PyErr_Occurred() != nullptr) return false;
    if (type != kDLCPU) {
      return refuse_wish("__dlpack__: dl_device: the memory is on the CPU, (1, 0)");
    }
  }
  const int truth = copy == nullptr || copy == Py_None ? 0 : PyObject_IsTrue(copy);
  wish->copy = truth > 0;
  return truth >= 0;
}

PyObject* export_tensor(uint64_t tensor, const Wish& wish) {
  if (!wish.copy) return make_capsule(tensor, wish.versioned, false);
  uint64_t copy = 0;
  const int status = hologram_tensor_copy(tensor, &copy);
  if (status != HOLOGRAM_OK) return raise(status);
  PyObject* capsule = make_capsule(copy, wish.versioned, true);
  hologram_tensor_cleanup(copy);
  return capsule;
}

// --- Functions -----------------------------------------------------------------------------------

PyObject* tensor_shape(const Spec&, uint64_t tensor) {
  return sizes_of(tensor, hologram_tensor_shape);
}
PyObject* tensor_strides(const Spec&, uint64_t tensor) {
  return sizes_of(tensor, hologram_tensor_strides);
}
PyObject* tensor_dtype(const Spec&, uint64_t tensor) { return dtype_of(tensor); }

PyObject* tensor_from_dlpack(const Spec&, PyObject* x) {
  const uint64_t tensor = import_object(x);
  return tensor == 0 ? nullptr : to_python(tensor);
}

PyObject* tensor_to_dlpack(const Spec&, uint64_t tensor, PyObject* max_version) {
  Wish wish;
  if (max_version == nullptr) max_version = names().version;
  if (!read_wish(nullptr, max_version, nullptr, nullptr, &wish)) return nullptr;
  return export_tensor(tensor, wish);
}

PyObject* tensor_from_buffer(const Spec& spec, uint64_t buffer, PyObject* given_shape,
                             PyObject* given_strides, PyObject* given_offset) {
  int64_t shape[kMostDims];
  int64_t strides[kMostDims];
  int ndim = 0;
  int steps = 0;
  int64_t offset = 0;
  const bool strided = given_strides != nullptr && given_strides != Py_None;
  if (!read_sizes(given_shape, spec, 1, shape, &ndim) ||
      (strided && !read_sizes(given_strides, spec, 2, strides, &steps)) ||
      (given_offset != nullptr && !to_int(given_offset, spec, 3, &offset))) {
    return nullptr;
  }
  if (strided && steps != ndim) {
    refuse(PyExc_ValueError, spec, 2, "as many as in shape", given_strides);
    return nullptr;
  }
  uint64_t tensor = 0;
  const int status = hologram_tensor_from_buffer(buffer, offset, ndim, shape,
                                                 strided ? strides : nullptr, &tensor);
  return value_or_raise(status, tensor);
}

// --- HologramTensor ------------------------------------------------------------------------------

struct TensorObject {
  PyObject_HEAD uint64_t handle;
};

uint64_t handle_of(PyObject* self) { return reinterpret_cast<TensorObject*>(self)->handle; }

PyObject* wrap_handle(PyTypeObject* type, uint64_t handle) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) {
    hologram_tensor_cleanup(handle);
    return nullptr;
  }
  reinterpret_cast<TensorObject*>(self)->handle = handle;
  return self;
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  // All handles may have been cleared before: then there is nothing to free.
  if (handle_of(self) != 0) hologram_tensor_cleanup(handle_of(self));
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* from_dlpack(PyObject* type, PyObject* x) {
  const uint64_t tensor = import_object(x);
  if (tensor == 0) return nullptr;
  return wrap_handle(reinterpret_cast<PyTypeObject*>(type), tensor);
}

PyObject* from_buffer(PyObject* type, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  PyObject* number = Wrapped<tensor_from_buffer, Gil::kHeld>::call(nullptr, args, count, keywords);
  if (number == nullptr) return nullptr;
  const uint64_t tensor = PyLong_AsUnsignedLongLong(number);
  Py_DECREF(number);
  return wrap_handle(reinterpret_cast<PyTypeObject*>(type), tensor);
}

Spec g_dlpack;
PyObject* dlpack(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  PyObject* given[4];
  Wish wish;
  if (!sort_arguments(g_dlpack, args, count, keywords, given) ||
      !read_wish(given[0], given[1], given[2], given[3], &wish)) {
    return nullptr;
  }
  return export_tensor(handle_of(self), wish);
}

PyObject* dlpack_device(PyObject*, PyObject*) { return Py_NewRef(names().device); }

PyObject* get_shape(PyObject* self, void*) {
  return sizes_of(handle_of(self), hologram_tensor_shape);
}
PyObject* get_strides(PyObject* self, void*) {
  return sizes_of(handle_of(self), hologram_tensor_strides);
}
PyObject* get_dtype(PyObject* self, void*) { return dtype_of(handle_of(self)); }
PyObject* get_handle(PyObject* self, void*) { return to_python(handle_of(self)); }
PyObject* get_ndim(PyObject* self, void*) {
  int ndim = 0;
  const int status = hologram_tensor_ndim(handle_of(self), &ndim);
  return status == HOLOGRAM_OK ? to_python(ndim) : raise(status);
}

PyObject* repr(PyObject* self) {
  PyObject* shape = get_shape(self, nullptr);
  PyObject* dtype = shape == nullptr ? nullptr : get_dtype(self, nullptr);
  PyObject* text = nullptr;
  if (dtype != nullptr) {
    text = PyUnicode_FromFormat("HologramTensor(shape=%R, dtype=%R)", shape, dtype);
  } else {
    PyErr_Clear();
    text = PyUnicode_FromString("HologramTensor(freed)");
  }
  Py_XDECREF(shape);
  Py_XDECREF(dtype);
  return text;
}

template <class F>
PyCFunction method(F* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef g_methods[] = {
    {"from_dlpack", method(from_dlpack), METH_CLASS | METH_O,
     "from_dlpack(x)\n--\n\nBorrow the memory of x, a capsule or an object with __dlpack__, "
     "without a copy."},
    {"from_buffer", method(from_buffer), METH_CLASS | METH_FASTCALL | METH_KEYWORDS,
     "from_buffer(buf, shape, strides=None, offset=0)\n--\n\nView a buffer; strides and offset "
     "count elements."},
    {"__dlpack__", method(dlpack), METH_FASTCALL | METH_KEYWORDS,
     "__dlpack__(stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nReturn a capsule "
     "that lends the memory; versioned where max_version is (1, 0) or more."},
    {"__dlpack_device__", method(dlpack_device), METH_NOARGS,
     "__dlpack_device__()\n--\n\nReturn (1, 0): the CPU."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef g_properties[] = {
    {"shape", get_shape, nullptr, "Sizes, a tuple.", nullptr},
    {"strides", get_strides, nullptr, "Steps between neighbours in elements, a tuple.", nullptr},
    {"dtype", get_dtype, nullptr, "The dtype's name, which equals NumPy's dtype.", nullptr},
    {"ndim", get_ndim, nullptr, "How many dimensions.", nullptr},
    {"handle", get_handle, nullptr, "The handle, for functions on tensors; freed with this object.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot g_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_repr, reinterpret_cast<void*>(repr)},
    {Py_tp_methods, g_methods},
    {Py_tp_getset, g_properties},
    {Py_tp_doc, const_cast<char*>("A tensor of the handle interface: made by from_dlpack() or "
                                  "from_buffer(), read by\nany library that knows DLPack.")},
    {0, nullptr}};

}  // namespace

void add_tensors(Functions& f) {
  f.add<tensor_from_dlpack>(
      "tensor_from_dlpack", "x",
      "Return a tensor on the memory of x, a capsule or an object with __dlpack__; no copy.\n\n"
      "BufferError, TypeError (dtype), ValueError (what the descriptor says).");
  f.add<tensor_to_dlpack>(
      "tensor_to_dlpack", "tensor, max_version=(1, 0)",
      "Return a capsule that lends the memory of a tensor or a buffer; max_version=None makes "
      "an\nunversioned one.");
  f.add<tensor_from_buffer>(
      "tensor_from_buffer", "buf, shape, strides=None, offset=0",
      "Return a tensor that views a buffer; strides and offset count elements.");
  f.add<hologram_tensor_as_buffer>(
      "tensor_as_buffer", "tensor",
      "Return a buffer for ops on a tensor's memory, whose elements must be row-major.");
  f.add<hologram_tensor_copy>("tensor_copy", "tensor", "Return a row-major copy.");
  f.add<hologram_tensor_cleanup>("tensor_cleanup", "tensor", "Free a tensor.");
  f.add<hologram_tensor_ndim>("tensor_ndim", "tensor", "Return the number of dimensions.");
  f.add<tensor_shape>("tensor_shape", "tensor", "Return the sizes, a tuple.");
  f.add<tensor_strides>("tensor_strides", "tensor", "Return the strides in elements, a tuple.");
  f.add<tensor_dtype>("tensor_dtype", "tensor", "Return the dtype's name.");
  // Not in the module: its parameters are sorted as those of functions are.
  Functions apart;
  apart.add("__dlpack__", "stream=None, max_version=None, dl_device=None, copy=None", "", nullptr,
            &g_dlpack);
}

PyObject* make_tensor_type(PyObject* module) {
  static PyType_Spec spec = {"hologram_ffi.HologramTensor", sizeof(TensorObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, g_slots};
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) return nullptr;
  if (PyModule_AddObjectRef(module, "HologramTensor", type) != 0) Py_CLEAR(type);
  Py_XDECREF(type);  // the module's from here on
  return type;
}

}  // namespace hologram_ffi
