// SPDX-License-Identifier: MIT
// Buffers made with a dtype, and bytes and JSON going in and out.
#include <iterator>

#include "call.h"

namespace hologram_ffi {
namespace {

PyObject* new_executor_with_backend(const Spec& spec, PyObject* given) {
  if (!PyUnicode_Check(given)) {
    refuse(PyExc_TypeError, spec, 0, "a backend's name (str)", given);
    return nullptr;
  }
  const char* name = PyUnicode_AsUTF8(given);
  if (name == nullptr) return nullptr;
  uint64_t executor = 0;
  const int status = hologram_new_executor_with_backend(name, &executor);
  return value_or_raise(status, executor);
}

PyObject* allocate(const Spec&, uint64_t executor, int64_t n, DtypeArgument dtype) {
  uint64_t buffer = 0;
  const int status = hologram_executor_allocate_buffer(executor, n, dtype.number, &buffer);
  return value_or_raise(status, buffer);
}

PyObject* buffer_dtype(const Spec&, uint64_t buffer) {
  int dtype = 0;
  const int status = hologram_buffer_dtype(buffer, &dtype);
  return value_or_raise(status, hologram_dtype_name(dtype));
}

PyObject* from_bytes(const Spec& spec, uint64_t executor, uint64_t buffer, PyObject* data) {
  Py_buffer view;
  if (PyObject_GetBuffer(data, &view, PyBUF_C_CONTIGUOUS) != 0) {
    PyErr_Clear();
    refuse(PyExc_TypeError, spec, 2, "bytes, or an object whose bytes lie without gaps", data);
    return nullptr;
  }
  const int status = unlocked([&] {
    return hologram_buffer_copy_from_bytes(executor, buffer, view.buf,
                                           static_cast<size_t>(view.len));
  });
  PyBuffer_Release(&view);
  return none_or_raise(status);
}

PyObject* to_bytes(const Spec&, uint64_t executor, uint64_t buffer) {
  int64_t n = 0;
  int dtype = 0;
  // Checked with length 0 first, so that an error has the name of this function.
  int status = hologram_buffer_to_bytes(executor, buffer, nullptr, 0);
  if (status == HOLOGRAM_OK) status = hologram_buffer_length(buffer, &n);
  if (status == HOLOGRAM_OK) status = hologram_buffer_dtype(buffer, &dtype);
  if (status != HOLOGRAM_OK) return raise(status);
  constexpr int8_t kSizes[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16, 2, 4, 8};
  static_assert(std::size(kSizes) == HOLOGRAM_UINT64 + 1);
  const Py_ssize_t nbytes = static_cast<Py_ssize_t>(n) * kSizes[dtype];
  PyObject* bytes = PyBytes_FromStringAndSize(nullptr, nbytes);
  if (bytes == nullptr) return nullptr;
  char* to = PyBytes_AS_STRING(bytes);
  status = unlocked(
      [&] { return hologram_buffer_to_bytes(executor, buffer, to, static_cast<size_t>(nbytes)); });
  if (status == HOLOGRAM_OK) return bytes;
  Py_DECREF(bytes);
  return raise(status);
}

PyObject* from_slice(const Spec& spec, uint64_t executor, uint64_t buffer, PyObject* json) {
  Py_ssize_t size = 0;
  const char* text = nullptr;
  if (PyUnicode_Check(json)) {
    text = PyUnicode_AsUTF8AndSize(json, &size);
    if (text == nullptr) return nullptr;
  } else if (PyBytes_Check(json)) {
    text = PyBytes_AS_STRING(json);
    size = PyBytes_GET_SIZE(json);
  } else {
    refuse(PyExc_TypeError, spec, 2, "JSON text (str or bytes)", json);
    return nullptr;
  }
  // The caller's reference keeps the text.
  return none_or_raise(unlocked([&] {
    return hologram_buffer_copy_from_slice(executor, buffer, text, static_cast<size_t>(size));
  }));
}

PyObject* to_vec(const Spec&, uint64_t executor, uint64_t buffer) {
  char* json = nullptr;
  size_t size = 0;
  const int status =
      unlocked([&] { return hologram_buffer_to_vec(executor, buffer, &json, &size); });
  if (status != HOLOGRAM_OK) return raise(status);
  PyObject* text = PyUnicode_FromStringAndSize(json, static_cast<Py_ssize_t>(size));
  hologram_free(json);
  return text;
}

// n, or the buffer's length where it was left out.
bool length_or(PyObject* given, const Spec& spec, size_t parameter, uint64_t buffer, int64_t* n) {
  if (given != nullptr && given != Py_None) return to_int(given, spec, parameter, n);
  // The called function refuses an invalid handle.
  if (hologram_buffer_length(buffer, n) != HOLOGRAM_OK) *n = 0;
  return true;
}

PyObject* fill(const Spec& spec, uint64_t executor, uint64_t buffer, double value,
               PyObject* given) {
  int64_t n = 0;
  if (!length_or(given, spec, 3, buffer, &n)) return nullptr;
  return none_or_raise(hologram_buffer_fill(executor, buffer, value, n));
}

PyObject* copy(const Spec& spec, uint64_t executor, uint64_t source, uint64_t target,
               PyObject* given) {
  int64_t n = 0;
  if (!length_or(given, spec, 3, source, &n)) return nullptr;
  return none_or_raise(hologram_buffer_copy(executor, source, target, n));
}

PyObject* elementwise(const Spec& spec, uint64_t executor, PyObject* row, PyObject* given,
                      uint64_t out, int64_t n) {
  int op = -1;
  if (PyUnicode_Check(row)) {
#define HOLOGRAM_OP(name, id, ...) \
  if (op < 0 && PyUnicode_CompareWithASCIIString(row, #name) == 0) op = id;
#include "hologram/elementwise.def"
    if (op < 0) {
      refuse(PyExc_ValueError, spec, 1, "a row of the op table", row);
      return nullptr;
    }
  } else {
    int64_t number = 0;
    if (!to_int(row, spec, 1, &number)) return nullptr;
    op = number < 0 || number > HOLOGRAM_OP_END_OF_ROWS ? -1 : static_cast<int>(number);
  }
  constexpr Py_ssize_t kMost = 4;
  uint64_t inputs[kMost] = {};
  double numbers[kMost] = {};
  bool any_number = false;
  PyObject* list = PySequence_Fast(given, "elementwise: inputs: expected a sequence");
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
  return none_or_raise(hologram_elementwise(executor, op, inputs, any_number ? numbers : nullptr,
                                            static_cast<int>(arity), out, n));
}

PyObject* reduce(const Spec& spec, uint64_t executor, PyObject* name, uint64_t x, uint64_t out,
                 int64_t n) {
  static const std::vector<std::string> reductions = [] {
    std::vector<std::string> list = {
#define HOLOGRAM_REDUCTION(name, id, c, ...) #c,
#include "hologram/reductions.def"
    };
    for (std::string& entry : list) {
      for (char& c : entry) c = static_cast<char>(c + ('a' - 'A'));
    }
    return list;
  }();
  int reduction = -1;
  std::string known = "one of ";
  for (size_t i = 0; i < reductions.size() && PyUnicode_Check(name); ++i) {
    const char* known_name = reductions[i].c_str();
    if (PyUnicode_CompareWithASCIIString(name, known_name) == 0) reduction = static_cast<int>(i);
    known += (i == 0 ? "" : ", ") + reductions[i];
  }
  if (reduction < 0) {
    refuse(PyExc_ValueError, spec, 1, known.c_str(), name);
    return nullptr;
  }
  return none_or_raise(hologram_reduce(executor, reduction, x, out, n));
}

}  // namespace

void add_transfers(Functions& functions) {
  functions.add<new_executor_with_backend>(
      "new_executor_with_backend", "name",
      "Return an executor on a backend: 'cpu', or 'auto' for the default.\n\n"
      "ValueError lists what is available.");
  functions.add<allocate>(
      "executor_allocate_buffer", "ex, n, dtype='float32'",
      "Return a buffer of n elements, contents undefined.\n\n"
      "dtype: a name, a NumPy or PyTorch dtype, or its number. MemoryError; ValueError.");
  functions.add<buffer_dtype>("buffer_dtype", "buf", "Return the dtype's name.");
  functions.add<from_bytes>(
      "buffer_copy_from_bytes", "ex, buf, data",
      "Set the buffer's first len(data) bytes; data is bytes or any contiguous buffer.");
  functions.add<to_bytes>("buffer_to_bytes", "ex, buf", "Return a copy of all bytes.");
  functions.add<from_slice>(
      "buffer_copy_from_slice", "ex, buf, json",
      "Set the first elements from a JSON array of numbers (str or bytes).\n\n"
      "NaN, Infinity and -Infinity are numbers. ValueError names the byte of what is "
      "malformed, and of\nan element past the end.");
  functions.add<to_vec>(
      "buffer_to_vec", "ex, buf",
      "Return all elements as a JSON array, with digits that give the same bits back.");
  functions.add<fill>("buffer_fill", "ex, buf, value, n=None",
                      "Set the first n elements (all by default) to value.");
  functions.add<copy>(
      "buffer_copy", "ex, source, target, n=None",
      "Copy the first n elements (all of source by default), converted where the dtypes "
      "differ.");
  functions.add<elementwise>(
      "elementwise", "ex, op, inputs, out, n",
      "out[i] = op(inputs...) for a row of the op table, on buffers of any dtype but "
      "complex.\n\n"
      "op: its name or number. inputs: handles (int) and numbers (float).");
  functions.add<reduce>("reduce", "ex, reduction, x, out, n",
                        "out[0] = the reduction of x[0:n]: sum, mean, prod, min, max, any, all, "
                        "logsumexp, norm, var,\nstd, argmin or argmax.");
}

}  // namespace hologram_ffi
