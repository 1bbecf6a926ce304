// SPDX-License-Identifier: MIT
// What a Python object of this module holds, and how C++ code gets at it and makes one.
//
// Operators and other short calls are functions in type slots, which know their objects by type
// and skip the dispatch of overloads. They run inside guarded(), which turns C++ exceptions into
// Python's.
//
// nb::cast<std::string> is another function where nanobind/stl/string.h is not included, and the
// linker takes either one, so that every file includes it here.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>  // IWYU pragma: keep

#include <array>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "hologram/buffer.h"
#include "hologram/error.h"
#include "hologram/executor.h"
#include "hologram/tensor.h"

namespace hologram::python {

namespace nb = nanobind;

struct ExecutorObject {
  std::shared_ptr<Executor> executor;
};

struct BufferObject {
  BufferRef buffer;  // null once freed
  Shape shape;
  Dtype dtype = Dtype::kFloat32;

  // Throws Error(kState) naming `operation` when freed.
  void check_alive(const char* operation) const {
    if (!buffer) {
      fail(ErrorKind::kState, "Buffer.", operation, ": the buffer was freed; allocate a new one");
    }
  }
  Tensor tensor(const char* operation) const {
    check_alive(operation);
    return Tensor(buffer, shape, dtype);
  }
};

// An element of any dtype.
struct Element {
  Dtype dtype = Dtype::kFloat64;
  alignas(8) char bytes[16] = {};
};

// A tensor. Most scalars are only computed with and looked at: one whose value is known holds it
// here, and has memory from the first time that someone asks for its tensor.
class TensorObject {
 public:
  TensorObject() = default;
  TensorObject(Tensor tensor, bool is_readonly = false)  // NOLINT(google-explicit-constructor)
      : readonly(is_readonly), tensor_(std::move(tensor)) {}
  // A scalar.
  explicit TensorObject(const Element& value) : is_scalar(true), is_known_(true), value_(value) {}

  bool readonly = false;   // made from memory that its owner does not let others write
  bool is_scalar = false;  // one of NumPy's scalars: no one writes its memory
  bool is_locked = false;  // readonly by setflags() alone, which may take it back
  bool is_whole = false;   // made in another order than row-major, and no view of its memory

  // The reference is valid as long as the object, and another tensor after set_tensor().
  const Tensor& tensor() const {
    if (is_known_ && !tensor_.buffer()) [[unlikely]]
      give_memory();
    return tensor_;
  }
  Dtype dtype() const { return is_known_ ? value_.dtype : tensor_.dtype(); }
  void set_tensor(Tensor tensor) {
    tensor_ = std::move(tensor);
    is_known_ = false;
  }
  // The value of a scalar; null while it is not known without running anything.
  const Element* value() const {
    if (!is_known_ && is_scalar) note_value();
    return is_known_ ? &value_ : nullptr;
  }

  void check_writable(const char* operation) const {
    if (is_scalar) {
      fail(ErrorKind::kTypeMismatch, operation,
           ": a Scalar is a number and cannot be written; hologram.array(x) is a Tensor of its "
           "value");
    }
    if (readonly) {
      fail(ErrorKind::kInvalidArgument, operation,
           ": the Tensor is read-only, as the memory that it was made from is; write to a copy()");
    }
  }

 private:
  void give_memory() const;
  void note_value() const;

  mutable bool is_known_ = false;
  mutable Element value_;
  mutable Tensor tensor_;
};

// The classes of scalars, by what numbers they are: numbers.Integral and so on.
enum class ScalarKind : uint8_t { kBool, kInteger, kFloat, kComplex };
inline constexpr size_t kScalarKinds = 4;
struct ScalarObject : TensorObject {
  using TensorObject::TensorObject;
};
template <ScalarKind kind>
struct ScalarOf : ScalarObject {
  using ScalarObject::ScalarObject;
};

// Set by the register_... functions below.
extern PyTypeObject* executor_type;
extern PyTypeObject* buffer_type;
extern PyTypeObject* tensor_type;
extern std::array<PyTypeObject*, kScalarKinds> scalar_types;
// What `object` holds, or null where it is of another type. The types have no other subclasses.
template <class T>
T* held(PyObject* object, PyTypeObject* type) {
  return Py_TYPE(object) == type && nb::inst_ready(object) ? nb::inst_ptr<T>(object) : nullptr;
}
inline bool is_scalar_type(const PyTypeObject* type) {
  return type == scalar_types[0] || type == scalar_types[1] || type == scalar_types[2] ||
         type == scalar_types[3];
}
inline bool is_tensor_type(const PyTypeObject* type) {
  return type == tensor_type || is_scalar_type(type);
}
inline ExecutorObject* executor_of(PyObject* object) {
  return held<ExecutorObject>(object, executor_type);
}
inline BufferObject* buffer_of(PyObject* object) { return held<BufferObject>(object, buffer_type); }
inline TensorObject* tensor_of(PyObject* object) {
  return is_tensor_type(Py_TYPE(object)) && nb::inst_ready(object)
             ? nb::inst_ptr<TensorObject>(object)
             : nullptr;
}

// The value of a scalar, where it is one and known.
inline const Element* scalar_value(PyObject* object) {
  return is_scalar_type(Py_TYPE(object)) && nb::inst_ready(object)
             ? nb::inst_ptr<TensorObject>(object)->value()
             : nullptr;
}

// The object that a method or slot is called on, which need not have gone through its class's
// __init__.
template <class T>
T& checked_self(T* self, bool is_type, const PyTypeObject* type) {
  if (self == nullptr) {
    fail(ErrorKind::kTypeMismatch,
         is_type ? "the object holds nothing, as __new__ alone leaves it; it is no "
                 : "the method wants a ",
         type->tp_name);
  }
  return *self;
}
template <class T>
T& self_as(PyObject* object, PyTypeObject* type) {
  return checked_self(held<T>(object, type), Py_TYPE(object) == type, type);
}
inline TensorObject& self_of(PyObject* object) {
  return checked_self(tensor_of(object), is_tensor_type(Py_TYPE(object)), tensor_type);
}
inline BufferObject& buffer_self(nb::handle object) {
  return self_as<BufferObject>(object.ptr(), buffer_type);
}

template <class T>
nb::object wrap_as(PyTypeObject* type, T value) {
  nb::object object = nb::inst_alloc(reinterpret_cast<PyObject*>(type));
  new (nb::inst_ptr<T>(object)) T(std::move(value));
  nb::inst_mark_ready(object);
  return object;
}
inline nb::object wrap(Tensor tensor, bool readonly = false) {
  return wrap_as(tensor_type, TensorObject{std::move(tensor), readonly});
}
// A tensor of all elements of its memory, in an order that is not row-major.
inline nb::object wrap_whole(Tensor tensor) {
  TensorObject whole(std::move(tensor));
  whole.is_whole = true;
  return wrap_as(tensor_type, std::move(whole));
}
// A tensor without dimensions on memory that no one else will write.
nb::object wrap_scalar(Tensor tensor);
nb::object wrap_element(const Element& value);
// Wraps what was computed: without dimensions it is a scalar, as NumPy's results are.
inline nb::object wrap_result(Tensor tensor) {
  return tensor.ndim() == 0 ? wrap_scalar(std::move(tensor)) : wrap(std::move(tensor));
}
// Wraps a view of the memory of `self`. A view of a scalar is a scalar, or a copy where it gets
// dimensions.
nb::object view_of(const TensorObject& self, Tensor view);

// Lets other Python threads run; as long as it lives nothing of Python may be touched.
class Unlocked {
 public:
  explicit Unlocked(bool unlock = true) : state_(unlock ? PyEval_SaveThread() : nullptr) {}
  ~Unlocked() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};
// Ops on this many elements may run at their call, long enough for other threads to gain.
inline constexpr int64_t kUnlockElements = 16384;

// Sets Python's error from the exception that is being handled.
void set_python_error() noexcept;
// f(), or null with Python's error set.
template <class F>
PyObject* guarded(F&& f) noexcept {
  try {
    return f();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}
template <class F>
int guarded_int(F&& f) noexcept {
  try {
    return f();
  } catch (...) {
    set_python_error();
    return -1;
  }
}
// Throws a Python exception of this type.
[[noreturn]] void raise(PyObject* type, const std::string& message);
// Throws the Python error that is set.
[[noreturn]] inline void raise_set() { throw nb::python_error(); }

// Calls a function of one of the package's modules, which hold what needs NumPy.
template <class... Args>
nb::object helper(const char* module, const char* function, Args&&... args) {
  return nb::module_::import_(module).attr(function)(std::forward<Args>(args)...);
}

// Of arguments that are taken as any object; TypeError, or what the object raises.
bool to_bool(nb::handle object);
int to_int(nb::handle object);
double to_double(nb::handle object);

// Reads a size or a sequence of sizes; TypeError for anything else.
Shape parse_shape(nb::handle shape);
nb::tuple to_tuple(const Shape& values);
// As a tuple of Python is written.
std::string text(const Shape& values);
std::string name_of_type(nb::handle object);

void register_errors();
void register_executor(nb::module_& m);
void register_buffer(nb::module_& m);
void register_tensor(nb::module_& m);
void register_scalars(nb::module_& m);
void register_making(nb::module_& m);
void register_random(nb::module_& m);
void register_orders(nb::module_& m);
void register_rows(nb::module_& m);
void register_array_function(nb::module_& m);
void register_losses(nb::module_& m);
void register_calls(nb::module_& m);
void register_tracing(nb::module_& m);

}  // namespace hologram::python
