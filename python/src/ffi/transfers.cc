// SPDX-License-Identifier: MIT
// Buffers made with a dtype, and bytes and JSON going in and out.
#include "call.h"

namespace hologram_ffi {
namespace {

// Python's arguments in order, for functions that take more than numbers.
template <size_t kMost>
struct Arguments {
  PyObject* list[kMost];
  bool read(const Spec& spec, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    return sort_arguments(spec, args, count, names, list);
  }
  PyObject* operator[](size_t i) const { return list[i]; }
};

Spec g_new_executor_with_backend;
PyObject* new_executor_with_backend(PyObject*, PyObject* const* args, Py_ssize_t count,
                                    PyObject* names) {
  const Spec& spec = g_new_executor_with_backend;
  Arguments<1> given;
  if (!given.read(spec, args, count, names)) return nullptr;
  if (!PyUnicode_Check(given[0])) {
    refuse(PyExc_TypeError, spec, 0, "a backend's name (str)", given[0]);
    return nullptr;
  }
  const char* name = PyUnicode_AsUTF8(given[0]);
  if (name == nullptr) return nullptr;
  uint64_t executor = 0;
  const int status = hologram_new_executor_with_backend(name, &executor);
  return status == HOLOGRAM_OK ? to_python(executor) : raise(status);
}

Spec g_allocate;
PyObject* allocate(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Arguments<3> given;
  uint64_t executor = 0;
  int64_t n = 0;
  int dtype = HOLOGRAM_FLOAT32;
  if (!given.read(g_allocate, args, count, names) ||
      !to_handle(given[0], g_allocate, 0, &executor) || !to_int(given[1], g_allocate, 1, &n) ||
      (given[2] != nullptr && !to_dtype(given[2], g_allocate, 2, &dtype))) {
    return nullptr;
  }
  uint64_t buffer = 0;
  const int status = hologram_executor_allocate_buffer(executor, n, dtype, &buffer);
  return status == HOLOGRAM_OK ? to_python(buffer) : raise(status);
}

Spec g_dtype;
PyObject* buffer_dtype(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Arguments<1> given;
  uint64_t buffer = 0;
  if (!given.read(g_dtype, args, count, names) || !to_handle(given[0], g_dtype, 0, &buffer)) {
    return nullptr;
  }
  int dtype = 0;
  const int status = hologram_buffer_dtype(buffer, &dtype);
  return status == HOLOGRAM_OK ? to_python(hologram_dtype_name(dtype)) : raise(status);
}

// The handles of the two first parameters.
bool read_pair(const Spec& spec, PyObject* first, PyObject* second, uint64_t* executor,
               uint64_t* buffer) {
  return to_handle(first, spec, 0, executor) && to_handle(second, spec, 1, buffer);
}

Spec g_from_bytes;
PyObject* from_bytes(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Arguments<3> given;
  uint64_t executor = 0;
  uint64_t buffer = 0;
  if (!given.read(g_from_bytes, args, count, names) ||
      !read_pair(g_from_bytes, given[0], given[1], &executor, &buffer)) {
    return nullptr;
  }
  Py_buffer view;
  if (PyObject_GetBuffer(given[2], &view, PyBUF_C_CONTIGUOUS) != 0) {
    PyErr_Clear();
    refuse(PyExc_TypeError, g_from_bytes, 2, "bytes, or an object whose bytes lie without gaps",
           given[2]);
    return nullptr;
  }
  PyThreadState* state = PyEval_SaveThread();
  const int status =
      hologram_buffer_copy_from_bytes(executor, buffer, view.buf, static_cast<size_t>(view.len));
  PyEval_RestoreThread(state);
  PyBuffer_Release(&view);
  if (status != HOLOGRAM_OK) return raise(status);
  Py_RETURN_NONE;
}

Spec g_to_bytes;
PyObject* to_bytes(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Arguments<2> given;
  uint64_t executor = 0;
  uint64_t buffer = 0;
  if (!given.read(g_to_bytes, args, count, names) ||
      !read_pair(g_to_bytes, given[0], given[1], &executor, &buffer)) {
    return nullptr;
  }
  int64_t n = 0;
  int dtype = 0;
  // Of none first, so that an error has this function's name.
  int status = hologram_buffer_to_bytes(executor, buffer, nullptr, 0);
  if (status == HOLOGRAM_OK) status = hologram_buffer_length(buffer, &n);
  if (status == HOLOGRAM_OK) status = hologram_buffer_dtype(buffer, &dtype);
  if (status != HOLOGRAM_OK) return raise(status);
  constexpr int8_t kSizes[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
  const Py_ssize_t nbytes = static_cast<Py_ssize_t>(n) * kSizes[dtype];
  PyObject* bytes = PyBytes_FromStringAndSize(nullptr, nbytes);
  if (bytes == nullptr) return nullptr;
  char* to = PyBytes_AS_STRING(bytes);
  PyThreadState* state = PyEval_SaveThread();
  status = hologram_buffer_to_bytes(executor, buffer, to, static_cast<size_t>(nbytes));
  PyEval_RestoreThread(state);
  if (status == HOLOGRAM_OK) return bytes;
  Py_DECREF(bytes);
  return raise(status);
}

Spec g_from_slice;
PyObject* from_slice(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Arguments<3> given;
  uint64_t executor = 0;
  uint64_t buffer = 0;
  if (!given.read(g_from_slice, args, count, names) ||
      !read_pair(g_from_slice, given[0], given[1], &executor, &buffer)) {
    return nullptr;
  }
  Py_ssize_t size = 0;
  const char* text = nullptr;
  if (PyUnicode_Check(given[2])) {
    text = PyUnicode_AsUTF8AndSize(given[2], &size);
    if (text == nullptr) return nullptr;
  } else if (PyBytes_Check(given[2])) {
    text = PyBytes_AS_STRING(given[2]);
    size = PyBytes_GET_SIZE(given[2]);
  } else {
    refuse(PyExc_TypeError, g_from_slice, 2, "JSON text (str or bytes)", given[2]);
    return nullptr;
  }
  // The caller's reference keeps the text.
  PyThreadState* state = PyEval_SaveThread();
  const int status =
      hologram_buffer_copy_from_slice(executor, buffer, text, static_cast<size_t>(size));
  PyEval_RestoreThread(state);
  if (status != HOLOGRAM_OK) return raise(status);
  Py_RETURN_NONE;
}

Spec g_to_vec;
PyObject* to_vec(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Arguments<2> given;
  uint64_t executor = 0;
  uint64_t buffer = 0;
  if (!given.read(g_to_vec, args, count, names) ||
      !read_pair(g_to_vec, given[0], given[1], &executor, &buffer)) {
    return nullptr;
  }
  char* json = nullptr;
  size_t size = 0;
  PyThreadState* state = PyEval_SaveThread();
  const int status = hologram_buffer_to_vec(executor, buffer, &json, &size);
  PyEval_RestoreThread(state);
  if (status != HOLOGRAM_OK) return raise(status);
  PyObject* text = PyUnicode_FromStringAndSize(json, static_cast<Py_ssize_t>(size));
  hologram_free(json);
  return text;
}

// n, or the buffer's length where it was left out.
bool length_or(PyObject* given, const Spec& spec, size_t parameter, uint64_t buffer, int64_t* n) {
  if (given != nullptr && given != Py_None) return to_int(given, spec, parameter, n);
  // A handle that is none is refused by the function that it goes to.
  if (hologram_buffer_length(buffer, n) != HOLOGRAM_OK) *n = 0;
  return true;
}

Spec g_fill;
PyObject* fill(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Arguments<4> given;
  uint64_t executor = 0;
  uint64_t buffer = 0;
  double value = 0;
  int64_t n = 0;
  if (!given.read(g_fill, args, count, names) ||
      !read_pair(g_fill, given[0], given[1], &executor, &buffer) ||
      !to_double(given[2], g_fill, 2, &value) || !length_or(given[3], g_fill, 3, buffer, &n)) {
    return nullptr;
  }
  const int status = hologram_buffer_fill(executor, buffer, value, n);
  if (status != HOLOGRAM_OK) return raise(status);
  Py_RETURN_NONE;
}

Spec g_copy;
PyObject* copy(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Arguments<4> given;
  uint64_t executor = 0;
  uint64_t source = 0;
  uint64_t target = 0;
  int64_t n = 0;
  if (!given.read(g_copy, args, count, names) ||
      !read_pair(g_copy, given[0], given[1], &executor, &source) ||
      !to_handle(given[2], g_copy, 2, &target) || !length_or(given[3], g_copy, 3, source, &n)) {
    return nullptr;
  }
  const int status = hologram_buffer_copy(executor, source, target, n);
  if (status != HOLOGRAM_OK) return raise(status);
  Py_RETURN_NONE;
}

Spec g_elementwise;
PyObject* elementwise(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  const Spec& spec = g_elementwise;
  Arguments<5> given;
  uint64_t executor = 0;
  if (!given.read(spec, args, count, names) || !to_handle(given[0], spec, 0, &executor)) {
    return nullptr;
  }
  int op = -1;
  if (PyUnicode_Check(given[1])) {
#define HOLOGRAM_OP(name, id, ...) \
  if (op < 0 && PyUnicode_CompareWithASCIIString(given[1], #name) == 0) op = id;
#include "hologram/elementwise.def"
    if (op < 0) {
      refuse(PyExc_ValueError, spec, 1, "a row of the op table", given[1]);
      return nullptr;
    }
  } else {
    int64_t number = 0;
    if (!to_int(given[1], spec, 1, &number)) return nullptr;
    op = number < 0 || number > HOLOGRAM_OP_END_OF_ROWS ? -1 : static_cast<int>(number);
  }
  constexpr Py_ssize_t kMost = 4;
  uint64_t inputs[kMost] = {};
  double numbers[kMost] = {};
  bool any_number = false;
  PyObject* list = PySequence_Fast(given[2], "elementwise: inputs: expected a sequence");
  if (list == nullptr) return nullptr;
  const Py_ssize_t arity = PySequence_Fast_GET_SIZE(list);
  for (Py_ssize_t k = 0; k < arity && k < kMost; ++k) {
    PyObject* one = PySequence_Fast_GET_ITEM(list, k);
    const bool is_number = PyFloat_Check(one) != 0;
    any_number = any_number || is_number;
    if (is_number ? !to_double(one, spec, 2, &numbers[k]) : !to_handle(one, spec, 2, &inputs[k])) {
      Py_DECREF(list);
      return nullptr;
    }
    if (!is_number && inputs[k] == 0) inputs[k] = UINT64_MAX;  // 0 is no handle, not a number
  }
  Py_DECREF(list);
  uint64_t out = 0;
  int64_t n = 0;
  if (!to_handle(given[3], spec, 3, &out) || !to_int(given[4], spec, 4, &n)) return nullptr;
  const int status = hologram_elementwise(executor, op, inputs, any_number ? numbers : nullptr,
                                          static_cast<int>(arity), out, n);
  if (status != HOLOGRAM_OK) return raise(status);
  Py_RETURN_NONE;
}

Spec g_reduce;
PyObject* reduce(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  const Spec& spec = g_reduce;
  Arguments<5> given;
  uint64_t executor = 0;
  uint64_t x = 0;
  uint64_t out = 0;
  int64_t n = 0;
  if (!given.read(spec, args, count, names) || !to_handle(given[0], spec, 0, &executor)) {
    return nullptr;
  }
  static const std::vector<std::string> reductions = [] {
    std::vector<std::string> list = {
#define HOLOGRAM_REDUCTION(name, id, c, ...) #c,
#include "hologram/reductions.def"
    };
    for (std::string& name : list) {
      for (char& c : name) c = static_cast<char>(c + ('a' - 'A'));
    }
    return list;
  }();
  int reduction = -1;
  std::string known = "one of ";
  for (size_t i = 0; i < reductions.size() && PyUnicode_Check(given[1]); ++i) {
    const char* name = reductions[i].c_str();
    if (PyUnicode_CompareWithASCIIString(given[1], name) == 0) reduction = static_cast<int>(i);
    known += (i == 0 ? "" : ", ") + reductions[i];
  }
  if (reduction < 0) {
    refuse(PyExc_ValueError, spec, 1, known.c_str(), given[1]);
    return nullptr;
  }
  if (!to_handle(given[2], spec, 2, &x) || !to_handle(given[3], spec, 3, &out) ||
      !to_int(given[4], spec, 4, &n)) {
    return nullptr;
  }
  const int status = hologram_reduce(executor, reduction, x, out, n);
  if (status != HOLOGRAM_OK) return raise(status);
  Py_RETURN_NONE;
}

}  // namespace

void add_transfers(Functions& functions) {
  functions.add("new_executor_with_backend", "name",
                "Return an executor on a backend: 'cpu', or 'auto' for the default.\n\n"
                "ValueError lists what is available.",
                new_executor_with_backend, &g_new_executor_with_backend);
  functions.add("executor_allocate_buffer", "ex, n, dtype='float32'",
                "Return a buffer of n elements, contents undefined.\n\n"
                "dtype: a name, a NumPy or PyTorch dtype, or its number. MemoryError; ValueError.",
                allocate, &g_allocate);
  functions.add("buffer_dtype", "buf", "Return the dtype's name.", buffer_dtype, &g_dtype);
  functions.add("buffer_copy_from_bytes", "ex, buf, data",
                "Set the buffer's first len(data) bytes; data is bytes or any contiguous buffer.",
                from_bytes, &g_from_bytes);
  functions.add("buffer_to_bytes", "ex, buf", "Return a copy of all bytes.", to_bytes, &g_to_bytes);
  functions.add("buffer_copy_from_slice", "ex, buf, json",
                "Set the first elements from a JSON array of numbers (str or bytes).\n\n"
                "NaN, Infinity and -Infinity are numbers. ValueError names the byte of what is "
                "malformed, and of\nan element past the end.",
                from_slice, &g_from_slice);
  functions.add("buffer_to_vec", "ex, buf",
                "Return all elements as a JSON array, with digits that give the same bits back.",
                to_vec, &g_to_vec);
  functions.add("buffer_fill", "ex, buf, value, n=None",
                "Set the first n elements (all by default) to value.", fill, &g_fill);
  functions.add("buffer_copy", "ex, source, target, n=None",
                "Copy the first n elements (all of source by default), converted where the dtypes "
                "differ.",
                copy, &g_copy);
  functions.add("elementwise", "ex, op, inputs, out, n",
                "out[i] = op(inputs...) for a row of the op table, on buffers of any dtype but "
                "complex.\n\n"
                "op: its name or number. inputs: handles (int) and numbers (float).",
                elementwise, &g_elementwise);
  functions.add("reduce", "ex, reduction, x, out, n",
                "out[0] = the reduction of x[0:n]: sum, mean, prod, min, max, any, all, "
                "logsumexp, norm, var,\nstd, argmin or argmax.",
                reduce, &g_reduce);
}

}  // namespace hologram_ffi
