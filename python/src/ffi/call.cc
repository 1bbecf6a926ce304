// SPDX-License-Identifier: MIT
// Arguments of Python functions as numbers of C, and failures as exceptions that name them.
#include "call.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace hologram_ffi {

PyObject* raise(int status) {
  PyObject* kinds[] = {PyExc_RuntimeError, PyExc_ValueError,  PyExc_TypeError,
                       PyExc_IndexError,   PyExc_MemoryError, PyExc_NotImplementedError,
                       PyExc_RuntimeError, PyExc_RuntimeError};
  const bool known = status > 0 && status <= HOLOGRAM_INTERNAL;
  // A Python deleter may have failed while the call ran; the error of the call comes first.
  PyErr_Clear();
  PyErr_SetString(kinds[known ? status : 0], hologram_last_error());
  return nullptr;
}

bool refuse(PyObject* exception, const Spec& spec, size_t parameter, const char* text,
            PyObject* given) {
  PyErr_Format(exception, "%s: %U: expected %s, got %R", spec.name, spec.parameters[parameter],
               text, given);
  return false;
}

bool sort_arguments(const Spec& spec, PyObject* const* args, Py_ssize_t count, PyObject* names,
                    PyObject** sorted) {
  const size_t most = spec.parameters.size();
  const auto given = static_cast<size_t>(count);
  if (given > most) {
    PyErr_Format(PyExc_TypeError, "%s: takes %zu arguments, got %zu", spec.name, most, given);
    return false;
  }
  for (size_t i = 0; i < most; ++i) sorted[i] = i < given ? args[i] : nullptr;
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t k = 0; k < named; ++k) {
    PyObject* name = PyTuple_GET_ITEM(names, k);
    size_t at = 0;
    while (at < most && PyUnicode_Compare(spec.parameters[at], name) != 0) ++at;
    if (at == most) {
      PyErr_Format(PyExc_TypeError, "%s: no parameter is named %R", spec.name, name);
      return false;
    }
    if (sorted[at] != nullptr) {
      PyErr_Format(PyExc_TypeError, "%s: %U is given twice", spec.name, name);
      return false;
    }
    sorted[at] = args[count + k];
  }
  for (size_t i = 0; i < spec.required; ++i) {
    if (sorted[i] == nullptr) {
      PyErr_Format(PyExc_TypeError, "%s: %U is missing", spec.name, spec.parameters[i]);
      return false;
    }
  }
  return true;
}

bool to_handle(PyObject* given, const Spec& spec, size_t parameter, uint64_t* handle) {
  if (!PyLong_Check(given)) {
    return refuse(PyExc_TypeError, spec, parameter, "a handle (int)", given);
  }
  *handle = PyLong_AsUnsignedLongLong(given);
  if (*handle == UINT64_MAX && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return refuse(PyExc_ValueError, spec, parameter, "a handle (int)", given);
  }
  return true;
}

bool to_int(PyObject* given, const Spec& spec, size_t parameter, int64_t* number) {
  PyObject* index = PyLong_CheckExact(given) ? Py_NewRef(given) : PyNumber_Index(given);
  if (index == nullptr) {
    PyErr_Clear();
    return refuse(PyExc_TypeError, spec, parameter, "an int", given);
  }
  int overflow = 0;
  *number = PyLong_AsLongLongAndOverflow(index, &overflow);
  Py_DECREF(index);
  if (overflow != 0) return refuse(PyExc_ValueError, spec, parameter, "an int of 64 bits", given);
  return true;
}

bool to_double(PyObject* given, const Spec& spec, size_t parameter, double* number) {
  *number = PyFloat_AsDouble(given);
  if (*number == -1.0 && PyErr_Occurred() != nullptr) {
    const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
    PyErr_Clear();
    return refuse(too_large ? PyExc_ValueError : PyExc_TypeError, spec, parameter, "a number",
                  given);
  }
  return true;
}

bool to_dtype(PyObject* given, const Spec& spec, size_t parameter, int* dtype) {
  if (PyLong_CheckExact(given)) {
    int64_t number = 0;
    if (!to_int(given, spec, parameter, &number)) return false;
    // The called function refuses numbers that are out of its range.
    *dtype = number < INT32_MIN || number > INT32_MAX ? -1 : static_cast<int>(number);
    return true;
  }
  PyObject* name = nullptr;
  if (PyUnicode_Check(given)) {
    name = Py_NewRef(given);
  } else {
    for (const char* attribute : {"name", "__name__"}) {
      name = PyObject_GetAttrString(given, attribute);
      if (name != nullptr && PyUnicode_Check(name)) break;
      Py_CLEAR(name);
      PyErr_Clear();
    }
    if (name == nullptr) name = PyObject_Str(given);
  }
  const char* text = name == nullptr ? nullptr : PyUnicode_AsUTF8(name);
  bool found = false;
  if (text != nullptr) {
    std::string_view wanted(text);
    if (wanted.starts_with("torch.")) wanted.remove_prefix(6);
    if (wanted == "float") wanted = "float64";
    if (wanted == "int") wanted = "int64";
    if (wanted == "bool_") wanted = "bool";
    for (int d = HOLOGRAM_BOOL; d <= HOLOGRAM_UINT64 && !found; ++d) {
      found = wanted == hologram_dtype_name(d);
      if (found) *dtype = d;
    }
  }
  PyErr_Clear();
  Py_XDECREF(name);
  return found || refuse(PyExc_TypeError, spec, parameter,
                         "a dtype (bool, uint8 to uint64, int8 to int64, float16, bfloat16, "
                         "float32, float64, complex64, complex128)",
                         given);
}

void Functions::add(const char* name, const char* parameters, const std::string& doc, Fast call,
                    Spec* spec) {
  spec->name = name;
  std::string_view rest(parameters);
  while (!rest.empty()) {
    // A comma between parentheses belongs to a value.
    size_t end = 0;
    for (int depth = 0; end < rest.size() && (depth > 0 || rest[end] != ','); ++end) {
      depth += rest[end] == '(' ? 1 : rest[end] == ')' ? -1 : 0;
    }
    std::string_view one = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 2, rest.size()));
    const size_t equals = one.find('=');
    if (equals == std::string_view::npos) spec->required = spec->parameters.size() + 1;
    one = one.substr(0, equals);
    PyObject* text = PyUnicode_FromStringAndSize(one.data(), static_cast<Py_ssize_t>(one.size()));
    PyUnicode_InternInPlace(&text);
    spec->parameters.push_back(text);
  }
  const std::string whole = std::string(name) + "(" + parameters + ")\n--\n\n" + doc;
  methods_.push_back({name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)),
                      METH_FASTCALL | METH_KEYWORDS, strdup(whole.c_str())});
}

PyMethodDef* Functions::finish() {
  auto* methods = new PyMethodDef[methods_.size() + 1];
  for (size_t i = 0; i < methods_.size(); ++i) methods[i] = methods_[i];
  methods[methods_.size()] = {nullptr, nullptr, 0, nullptr};
  return methods;
}

}  // namespace hologram_ffi
