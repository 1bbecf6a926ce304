// SPDX-License-Identifier: MIT
// __array_function__: the functions of NumPy that are called most are answered here where their
// arguments are plain, the others by hologram._array_function.
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "convert.h"
#include "dtype.h"
#include "hologram/functions.h"
#include "objects.h"
#include "operators.h"

namespace hologram::python {
namespace {

// The arguments of a call: positional ones, and keywords, of which there may be none.
struct Given {
  PyObject* const* args;
  Py_ssize_t count;
  PyObject* options;  // a dict

  Py_ssize_t named() const { return PyDict_GET_SIZE(options); }
  // The value of the argument at this place, or with this name; null where it is not given.
  PyObject* at(Py_ssize_t place, const char* name) const {
    if (count > place) return args[place];
    return named() != 0 ? PyDict_GetItemString(options, name) : nullptr;
  }
};

// A new reference; null without an error where the arguments are not plain.
using Answer = PyObject* (*)(const Given& given);

// Arrays alone: what functions make of scalars is told there.
const TensorObject* array_of(PyObject* object) {
  return Py_TYPE(object) == tensor_type ? tensor_of(object) : nullptr;
}

PyObject* dot(const Given& given) {
  if (given.count != 2 || given.named() != 0) return nullptr;
  const TensorObject *x = tensor_of(given.args[0]), *y = tensor_of(given.args[1]);
  const bool is_product = x != nullptr && y != nullptr && x->tensor().ndim() != 0 &&
                          (y->tensor().ndim() == 1 || y->tensor().ndim() == 2);
  return is_product ? matmul_slot(given.args[0], given.args[1]) : nullptr;
}

// Tensors of the first argument's shape.
template <int value>
PyObject* like(const Given& given) {
  const TensorObject* x = given.count != 0 ? array_of(given.args[0]) : nullptr;
  PyObject* const wanted = given.at(1, "dtype");
  if (x == nullptr || given.count + given.named() != (wanted != nullptr ? 2 : 1)) return nullptr;
  const Dtype own = x->tensor().dtype();
  const Dtype dtype = wanted == nullptr || wanted == Py_None ? own : parse_dtype(wanted);
  Device& device = default_device();
  return wrap(value < 0 ? empty(x->tensor().shape(), dtype, device)
                        : full(x->tensor().shape(), Scalar(int64_t{value}), dtype, device))
      .release()
      .ptr();
}

PyObject* flip(const Given& given) {
  const TensorObject* x = given.count != 0 ? array_of(given.args[0]) : nullptr;
  PyObject* const axis = given.at(1, "axis");
  if (x == nullptr || given.count + given.named() != (axis != nullptr ? 2 : 1)) return nullptr;
  const int ndim = x->tensor().ndim();
  std::optional<int64_t> only;
  if (axis != nullptr && axis != Py_None) {
    if (!PyLong_CheckExact(axis)) return nullptr;
    only = PyLong_AsLong(axis);
    if (*only < 0) *only += ndim;
    if (*only < 0 || *only >= ndim) {
      PyErr_Clear();
      return nullptr;
    }
  }
  if (ndim == 0 || !x->tensor().buffer()) return nullptr;
  Shape strides = x->tensor().strides();
  int64_t offset = x->tensor().offset();
  for (int i = 0; i < ndim; ++i) {
    if ((only && *only != i) || x->tensor().numel() == 0) continue;
    offset += (x->tensor().size(i) - 1) * strides[static_cast<size_t>(i)];
    strides[static_cast<size_t>(i)] *= -1;
  }
  return view_of(*x, Tensor(x->tensor().buffer(), x->tensor().shape(), std::move(strides),
                            x->tensor().dtype(), offset))
      .release()
      .ptr();
}

PyObject* concatenate(const Given& given) {
  PyObject* const axis = given.at(1, "axis");
  if (given.count == 0 || given.count + given.named() != (axis != nullptr ? 2 : 1)) return nullptr;
  PyObject* const list = given.args[0];
  if (!PyTuple_Check(list) && !PyList_Check(list)) return nullptr;
  if (axis != nullptr && !PyLong_CheckExact(axis)) return nullptr;
  std::vector<Tensor> parts;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); ++i) {
    const TensorObject* part = array_of(PySequence_Fast_GET_ITEM(list, i));
    if (part == nullptr) return nullptr;
    parts.push_back(part->tensor());
  }
  if (parts.empty()) return nullptr;
  const int dim = axis != nullptr ? to_int(axis) : 0;
  Tensor joined;
  {
    const Unlocked unlocked(std::ranges::any_of(parts, is_long));
    joined = cat(parts, dim, Rules::numpy);
  }
  return wrap(std::move(joined)).release().ptr();
}

PyObject* where(const Given& given) {
  if (given.count != 3 || given.named() != 0) return nullptr;
  const bool is_plain = std::all_of(given.args, given.args + 3, [](PyObject* operand) {
    return tensor_of(operand) != nullptr || PyBool_Check(operand) != 0 ||
           PyLong_CheckExact(operand) != 0 || PyFloat_CheckExact(operand) != 0;
  });
  return is_plain ? where_of(given.args) : nullptr;
}

// np.linalg.norm(x, ord=None, axis=None): the root of the sum of squares of all elements, or along
// one axis.
PyObject* norm(const Given& given) {
  const TensorObject* x = given.count != 0 ? array_of(given.args[0]) : nullptr;
  PyObject *const order = given.at(1, "ord"), *const axis = given.at(2, "axis");
  const Py_ssize_t known = 1 + (order != nullptr ? 1 : 0) + (axis != nullptr ? 1 : 0);
  if (x == nullptr || given.count + given.named() != known) return nullptr;
  const Dtype dtype = x->tensor().dtype();
  if (dtype != Dtype::kFloat32 && dtype != Dtype::kFloat64) return nullptr;
  const bool is_one = axis != nullptr && axis != Py_None;
  if (is_one && !PyLong_CheckExact(axis)) return nullptr;
  if (order != nullptr && order != Py_None) {
    // The norm of order 2 of a matrix is its largest singular value, which NumPy computes.
    const bool is_two = PyLong_CheckExact(order) != 0 && PyLong_AsLong(order) == 2;
    if (!is_two) PyErr_Clear();
    if (!is_two || (!is_one && x->tensor().ndim() != 1)) return nullptr;
  }
  PyObject* const values[] = {given.args[0], is_one ? axis : Py_None};
  static PyObject* const name = PyUnicode_InternFromString("norm");
  return PyObject_VectorcallMethod(name, values, 2, nullptr);
}

// --- Methods of the same name --------------------------------------------------------------------

// A method takes these arguments by NumPy's names and with NumPy's meaning.
constexpr std::array<const char*, 4> kKeywords = {"axis", "dtype", "keepdims", "ddof"};

bool is_keyword(PyObject* name) {
  return PyUnicode_Check(name) != 0 && std::ranges::any_of(kKeywords, [&](const char* known) {
           return PyUnicode_CompareWithASCIIString(name, known) == 0;
         });
}

// None, bools, numbers, strings, classes and tuples: what says how, not on what.
bool is_setting(PyObject* value) {
  return value == Py_None || PyBool_Check(value) != 0 || PyLong_CheckExact(value) != 0 ||
         PyFloat_CheckExact(value) != 0 || PyTuple_CheckExact(value) != 0 ||
         PyType_Check(value) != 0 || PyUnicode_CheckExact(value) != 0;
}

PyObject* call_method(PyObject* name, const Given& given) {
  constexpr Py_ssize_t kMost = 6;
  if (given.count == 0 || given.count + given.named() > kMost ||
      array_of(given.args[0]) == nullptr) {
    return nullptr;
  }
  std::array<PyObject*, kMost + 1> values{};  // the first place is the callee's
  values[1] = given.args[0];
  for (Py_ssize_t i = 1; i < given.count; ++i) {
    if (!is_setting(given.args[i])) return nullptr;
    values[static_cast<size_t>(i) + 1] = given.args[i];
  }
  nb::object names;
  if (given.named() != 0) {
    names = nb::steal(PyTuple_New(given.named()));
    if (!names.is_valid()) raise_set();
    PyObject *key, *value;
    Py_ssize_t place = 0;
    for (Py_ssize_t i = 0; PyDict_Next(given.options, &place, &key, &value) != 0; ++i) {
      if (!is_keyword(key) || !is_setting(value)) return nullptr;
      values[static_cast<size_t>(given.count + i) + 1] = value;
      PyTuple_SET_ITEM(names.ptr(), i, Py_NewRef(key));
    }
  }
  const size_t flags = static_cast<size_t>(given.count) | PY_VECTORCALL_ARGUMENTS_OFFSET;
  return PyObject_VectorcallMethod(name, values.data() + 1, flags, names.ptr());
}

PyObject* get_attribute(PyObject* name, const Given& given) {
  if (given.count != 1 || given.named() != 0 || array_of(given.args[0]) == nullptr) return nullptr;
  return PyObject_GetAttr(given.args[0], name);
}

// --- The table -----------------------------------------------------------------------------------

struct Function {
  Answer answer = nullptr;
  PyObject* method = nullptr;     // the name of a method, where there is no answer
  PyObject* attribute = nullptr;  // or of an attribute
};
// They are few and live as long as the process.
std::unordered_map<PyObject*, Function>& functions() {
  static auto& known = *new std::unordered_map<PyObject*, Function>;
  return known;
}

void note_function(nb::handle function, const char* name, bool is_attribute) {
  struct Named {
    const char* name;
    Answer answer;
  };
  constexpr std::array<Named, 8> kAnswers = {{{"dot", &dot},
                                              {"norm", &norm},
                                              {"zeros_like", &like<0>},
                                              {"ones_like", &like<1>},
                                              {"empty_like", &like<-1>},
                                              {"flip", &flip},
                                              {"where", &where},
                                              {"concatenate", &concatenate}}};
  Function known;
  for (const Named& named : kAnswers) {
    if (std::string_view(named.name) == name) known.answer = named.answer;
  }
  if (known.answer == nullptr) {
    PyObject* const interned = PyUnicode_InternFromString(name);
    if (interned == nullptr) raise_set();
    (is_attribute ? known.attribute : known.method) = interned;
  }
  functions().emplace(function.inc_ref().ptr(), known);
}

bool are_plain(PyObject* types) {
  if (!PyTuple_Check(types)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); ++i) {
    if (!is_tensor_type(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(types, i)))) return false;
  }
  return true;
}

// The result of a function that is known, or null, without an error, where Python is to answer.
PyObject* try_function(PyObject* function, PyObject* types, PyObject* args, PyObject* options) {
  const auto found = functions().find(function);
  if (found == functions().end() || !are_plain(types) || !PyTuple_Check(args) ||
      !PyDict_Check(options)) {
    return nullptr;
  }
  const Function& known = found->second;
  const Given given{&PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args), options};
  PyObject* const result = guarded([&] {
    if (known.answer != nullptr) return known.answer(given);
    return known.method != nullptr ? call_method(known.method, given)
                                   : get_attribute(known.attribute, given);
  });
  if (result != nullptr || PyErr_Occurred() == nullptr) return result;
  // Python tells what is wrong as NumPy does.
  for (PyObject* refusal :
       {PyExc_TypeError, PyExc_ValueError, PyExc_IndexError, PyExc_OverflowError}) {
    if (PyErr_ExceptionMatches(refusal) == 0) continue;
    PyErr_Clear();
    return nullptr;
  }
  raise_set();
}

PyObject* array_function(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 4) {
      fail(ErrorKind::kTypeMismatch,
           "__array_function__ takes a function, types, arguments and keywords; ", count,
           " arguments were given");
    }
    if (PyObject* result = try_function(args[0], args[1], args[2], args[3])) return result;
    return helper("hologram._array_function", "call", nb::handle(self), nb::handle(args[0]),
                  nb::handle(args[1]), nb::handle(args[2]), nb::handle(args[3]))
        .release()
        .ptr();
  });
}

PyMethodDef function_method = {
    "__array_function__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&array_function)),
    METH_FASTCALL,
    "__array_function__($self, func, types, args, kwargs, /)\n--\n\n"
    "Answer a function of NumPy: recorded where hologram has it, else run by NumPy on this "
    "memory."};

}  // namespace

void add_function_method(nb::handle type) {
  nb::object descriptor =
      nb::steal(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &function_method));
  if (!descriptor.is_valid()) raise_set();
  nb::setattr(type, function_method.ml_name, descriptor);
}

void register_array_function(nb::module_& m) {
  m.def("_note_function", &note_function, nb::arg("function"), nb::arg("name"),
        nb::arg("is_attribute") = false,
        "Let a function of NumPy's be answered without Python where its arguments are plain: by\n"
        "one that is known here by this name, or by the method or the attribute of Tensors that\n"
        "has it.");
}

}  // namespace hologram::python
