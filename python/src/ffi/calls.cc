// SPDX-License-Identifier: MIT
// Calls of the catalogue by name: handles and a dict of parameters in, handles out.
#include <climits>
#include <deque>
#include <vector>

#include "call.h"

namespace hologram_ffi {
namespace {

// The items of a sequence, which it keeps alive.
class Items {
 public:
  explicit Items(PyObject* sequence)
      : list_(sequence == nullptr || sequence == Py_None
                  ? PyTuple_New(0)
                  : PySequence_Fast(sequence, "expected a sequence")) {}
  ~Items() { Py_XDECREF(list_); }
  Items(const Items&) = delete;
  Items& operator=(const Items&) = delete;

  bool ok() const { return list_ != nullptr; }
  Py_ssize_t size() const { return PySequence_Fast_GET_SIZE(list_); }
  PyObject* operator[](Py_ssize_t i) const { return PySequence_Fast_GET_ITEM(list_, i); }

 private:
  PyObject* list_;
};

constexpr size_t kInputs = 1, kArguments = 2;

// A handle, None, or a sequence of handles for the lists of a call.
bool read_input(PyObject* given, const Spec& spec, std::vector<uint64_t>* handles,
                std::vector<int>* counts) {
  uint64_t handle = 0;
  if (given == Py_None || PyIndex_Check(given) != 0) {
    if (given != Py_None && !to_handle(given, spec, kInputs, &handle)) return false;
    handles->push_back(handle);
    counts->push_back(1);
    return true;
  }
  const Items items(given);
  if (!items.ok()) return false;
  for (Py_ssize_t i = 0; i < items.size(); ++i) {
    if (!to_handle(items[i], spec, kInputs, &handle)) return false;
    handles->push_back(handle);
  }
  counts->push_back(static_cast<int>(items.size()));
  return true;
}

// A number, or a sequence of integers, which `integers` holds.
bool read_argument(PyObject* name, PyObject* value, const Spec& spec,
                   std::deque<std::vector<int64_t>>* integers, hologram_argument* argument) {
  argument->name = PyUnicode_AsUTF8(name);
  if (argument->name == nullptr) return false;
  std::vector<int64_t>& list = integers->emplace_back();
  if (PyBool_Check(value)) {
    list.push_back(value == Py_True ? 1 : 0);
  } else if (PyIndex_Check(value) != 0) {
    // Seeds may be any 64 bits.
    PyObject* whole = PyNumber_Index(value);
    if (whole == nullptr) return false;
    list.push_back(static_cast<int64_t>(PyLong_AsUnsignedLongLongMask(whole)));
    Py_DECREF(whole);
    if (PyErr_Occurred() != nullptr) return false;
  } else if (PySequence_Check(value) != 0) {
    const Items items(value);
    if (!items.ok()) return false;
    for (Py_ssize_t i = 0; i < items.size(); ++i) {
      int64_t number = 0;
      if (!to_int(items[i], spec, kArguments, &number)) return false;
      list.push_back(number);
    }
  } else {
    integers->pop_back();
    argument->integers = nullptr;
    return to_double(value, spec, kArguments, &argument->number);
  }
  argument->integers = list.data();
  argument->count = static_cast<int>(list.size());
  return true;
}

PyObject* run_call(const Spec& spec, PyObject* name, PyObject* inputs, PyObject* given) {
  const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (text == nullptr) {
    if (PyErr_Occurred() == nullptr) refuse(PyExc_TypeError, spec, 0, "the name of a call", name);
    return nullptr;
  }
  std::vector<uint64_t> handles;
  std::vector<int> counts;
  const Items operands(inputs);
  if (!operands.ok()) return nullptr;
  for (Py_ssize_t i = 0; i < operands.size(); ++i) {
    if (!read_input(operands[i], spec, &handles, &counts)) return nullptr;
  }
  std::deque<std::vector<int64_t>> integers;
  std::vector<hologram_argument> arguments;
  if (given != nullptr && given != Py_None) {
    if (!PyDict_Check(given)) {
      refuse(PyExc_TypeError, spec, kArguments, "a dict of parameters by name", given);
      return nullptr;
    }
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(given, &at, &key, &value) != 0) {
      if (!read_argument(key, value, spec, &integers, &arguments.emplace_back())) return nullptr;
    }
  }
  constexpr int kMostResults = 16;
  uint64_t results[kMostResults] = {};
  int count = 0;
  const int status = unlocked([&] {
    return hologram_call(text, handles.data(), counts.data(), static_cast<int>(counts.size()),
                         arguments.data(), static_cast<int>(arguments.size()), results,
                         kMostResults, &count);
  });
  if (status != HOLOGRAM_OK) return raise(status);
  PyObject* list = PyList_New(count);
  if (list == nullptr) return nullptr;
  for (int k = 0; k < count; ++k) PyList_SET_ITEM(list, k, to_python(results[k]));
  return list;
}

PyObject* call_info(const Spec&, int64_t index) {
  const char *name = nullptr, *schema = nullptr, *doc = nullptr;
  const int whole = index > INT_MAX || index < 0 ? -1 : static_cast<int>(index);
  const int status = hologram_call_info(whole, &name, &schema, &doc);
  return status == HOLOGRAM_OK ? Py_BuildValue("(sss)", name, schema, doc) : raise(status);
}

}  // namespace

void add_calls(Functions& f) {
  f.add<run_call>(
      "call", "name, inputs, arguments=None",
      "Run a call of the catalogue and return the handles of its results.\n\n"
      "inputs: handles of tensors or buffers in the order of the call's schema, None for "
      "an operand\nthat is not given, a sequence of handles for a list. arguments: "
      "parameters by name.");
  f.add<hologram_call_count>("call_count", "", "Return how many calls the catalogue has.");
  f.add<call_info>("call_info", "index",
                   "Return (name, schema, meaning) of one of the calls of the catalogue.");
}

}  // namespace hologram_ffi
