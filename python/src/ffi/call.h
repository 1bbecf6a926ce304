// SPDX-License-Identifier: MIT
// Functions of the C interface as Python functions: arguments in, status checked, result out.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hologram/hologram.h"

namespace hologram_ffi {

// What Python shows of a function: its name and parameters. Trailing ones may be left out where
// `required` is smaller than their number.
struct Spec {
  const char* name = "";
  std::vector<PyObject*> parameters;  // interned names
  size_t required = 0;
};

// Raises what the thread's last error says, as the exception of that status; always null.
PyObject* raise(int status);

// Brings the arguments of a call into the order of the parameters; null for those that were left
// out. False, with an exception, where they do not fit.
bool sort_arguments(const Spec& spec, PyObject* const* args, Py_ssize_t count, PyObject* names,
                    PyObject** sorted);

// "name: parameter: text", raised; always false.
bool refuse(PyObject* exception, const Spec& spec, size_t parameter, const char* text,
            PyObject* given);

bool to_handle(PyObject* given, const Spec& spec, size_t parameter, uint64_t* handle);
bool to_int(PyObject* given, const Spec& spec, size_t parameter, int64_t* number);
bool to_double(PyObject* given, const Spec& spec, size_t parameter, double* number);
// A number of hologram_dtype, a name, or whatever has one: NumPy's and PyTorch's dtypes, types.
bool to_dtype(PyObject* given, const Spec& spec, size_t parameter, int* dtype);

inline bool convert(PyObject* given, const Spec& spec, size_t parameter, uint64_t& handle) {
  return to_handle(given, spec, parameter, &handle);
}
inline bool convert(PyObject* given, const Spec& spec, size_t parameter, int64_t& number) {
  return to_int(given, spec, parameter, &number);
}
inline bool convert(PyObject* given, const Spec& spec, size_t parameter, double& number) {
  return to_double(given, spec, parameter, &number);
}
inline bool convert(PyObject* given, const Spec& spec, size_t parameter, float& number) {
  double wide = 0;
  if (!to_double(given, spec, parameter, &wide)) return false;
  number = static_cast<float>(wide);
  return true;
}

// As given, or null where it was left out.
inline bool convert(PyObject* given, const Spec&, size_t, PyObject*& object) {
  object = given;
  return true;
}
struct DtypeArgument {
  int number = HOLOGRAM_FLOAT32;  // where it was left out
};
inline bool convert(PyObject* given, const Spec& spec, size_t parameter, DtypeArgument& dtype) {
  return given == nullptr || to_dtype(given, spec, parameter, &dtype.number);
}

inline PyObject* to_python(uint64_t value) { return PyLong_FromUnsignedLongLong(value); }
inline PyObject* to_python(int64_t value) { return PyLong_FromLongLong(value); }
inline PyObject* to_python(int value) { return PyLong_FromLong(value); }
inline PyObject* to_python(float value) { return PyFloat_FromDouble(static_cast<double>(value)); }
inline PyObject* to_python(const char* text) { return PyUnicode_FromString(text); }
inline PyObject* to_python(const void* address) {
  return PyLong_FromVoidPtr(const_cast<void*>(address));
}
inline PyObject* to_python(void* address) { return PyLong_FromVoidPtr(address); }

// What a function returns after a call of the interface: None or the value, else an exception.
inline PyObject* none_or_raise(int status) {
  return status == HOLOGRAM_OK ? Py_NewRef(Py_None) : raise(status);
}
template <class T>
PyObject* value_or_raise(int status, T value) {
  return status == HOLOGRAM_OK ? to_python(value) : raise(status);
}

// Whether other Python threads run during the call.
enum class Gil : uint8_t { kHeld, kReleased };

// Calls f() while other Python threads run.
template <class F>
int unlocked(F&& f) {
  PyThreadState* state = PyEval_SaveThread();
  const int status = f();
  PyEval_RestoreThread(state);
  return status;
}

// A function of the interface with parameters of Ins, and an Out through its last where Out is not
// void. Where Out is PyObject, F(spec, Ins...) returns what Python gets.
template <auto F, Gil kGil, class Out, class... Ins>
struct Bound {
  static inline Spec spec;

  static PyObject* call(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    constexpr size_t kCount = sizeof...(Ins);
    PyObject* sorted[kCount + 1];
    if (names != nullptr || count != static_cast<Py_ssize_t>(kCount)) [[unlikely]] {
      if (!sort_arguments(spec, args, count, names, sorted)) return nullptr;
      args = sorted;
    }
    return run(args, std::index_sequence_for<Ins...>());
  }

 private:
  template <size_t... I>
  static PyObject* run([[maybe_unused]] PyObject* const* args, std::index_sequence<I...>) {
    std::tuple<Ins...> in{};
    if (!(convert(args[I], spec, I, std::get<I>(in)) && ...)) return nullptr;
    if constexpr (std::is_same_v<Out, PyObject>) {
      return F(spec, std::get<I>(in)...);
    } else if constexpr (std::is_void_v<Out>) {
      const int status = invoke(std::get<I>(in)...);
      if (status != HOLOGRAM_OK) [[unlikely]]
        return raise(status);
      Py_RETURN_NONE;
    } else {
      Out out{};
      const int status = invoke(std::get<I>(in)..., &out);
      if (status != HOLOGRAM_OK) [[unlikely]]
        return raise(status);
      return to_python(out);
    }
  }
  template <class... A>
  static int invoke(A... arguments) {
    if constexpr (kGil == Gil::kHeld) {
      return F(arguments...);
    } else {
      return unlocked([&] { return F(arguments...); });
    }
  }
};

// Takes the types apart: a pointer at the end is where the result goes.
template <auto F, Gil kGil, class Done, class... Rest>
struct Split;
template <auto F, Gil kGil, class... Done, class Next, class... Rest>
struct Split<F, kGil, std::tuple<Done...>, Next, Rest...>
    : Split<F, kGil, std::tuple<Done..., Next>, Rest...> {};
template <auto F, Gil kGil, class... Done>
struct Split<F, kGil, std::tuple<Done...>> : Bound<F, kGil, void, Done...> {};
template <auto F, Gil kGil, class... Done, class Out>
struct Split<F, kGil, std::tuple<Done...>, Out*> : Bound<F, kGil, Out, Done...> {};

template <auto F, Gil kGil>
struct Wrapped;
template <class... A, int (*F)(A...), Gil kGil>
struct Wrapped<F, kGil> : Split<F, kGil, std::tuple<>, A...> {};
template <class... A, PyObject* (*F)(const Spec&, A...), Gil kGil>
struct Wrapped<F, kGil> : Bound<F, kGil, PyObject, A...> {};

using Fast = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

// The functions of a module. Definitions and texts live as long as the process.
class Functions {
 public:
  // `parameters` is "ex, a, b, n=None"; those with "=" may be left out.
  template <auto F, Gil kGil = Gil::kHeld>
  void add(const char* name, const char* parameters, const std::string& doc) {
    using Function = Wrapped<F, kGil>;
    add(name, parameters, doc, &Function::call, &Function::spec);
  }
  void add(const char* name, const char* parameters, const std::string& doc, Fast call, Spec* spec);
  // Null-terminated.
  PyMethodDef* finish();

 private:
  std::vector<PyMethodDef> methods_;
};

// Functions that are more than their C function, and their type.
void add_transfers(Functions& functions);
void add_ops(Functions& functions);
void add_calls(Functions& functions);
void add_tensors(Functions& functions);
PyObject* make_tensor_type(PyObject* module);

}  // namespace hologram_ffi
