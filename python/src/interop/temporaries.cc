// SPDX-License-Identifier: MIT
// How a temporary is told from an array that something still refers to.
//
// An argument of a call has one reference where an expression made it: the one on the caller's
// stack. It has one as well where an argument tuple or a functools.partial holds it, which lend it.
// The caller's instruction tells them apart: CALL takes the arguments from the stack, as many as it
// says, CALL_FUNCTION_EX takes them from a tuple, and a partial adds to those on the stack.
#include "interop/temporaries.h"

#include <nanobind/nanobind.h>

#include "interop/numpy_classes.h"

namespace hologram::python {

namespace nb = nanobind;

namespace {

// A smaller array is copied in less time than it takes to find out.
constexpr Py_ssize_t kFewestBytes = 65536;

// Instructions of this Python that take arguments from the stack; -1: it has none of that name.
struct Opcodes {
  int call = -1;
  int call_kw = -1;
};
Opcodes opcodes() {
  static const Opcodes known = [] {
    const nb::object map = nb::module_::import_("opcode").attr("opmap");
    const auto find = [&](const char* name) { return nb::cast<int>(map.attr("get")(name, -1)); };
    return Opcodes{find("CALL"), find("CALL_KW")};
  }();
  return known;
}

// True where the frame that runs is at a call with that many arguments.
bool is_at_call(Py_ssize_t arguments) {
  PyFrameObject* const frame = PyEval_GetFrame();
  if (frame == nullptr) return false;
  const int at = PyFrame_GetLasti(frame);
  const nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  const nb::object bytes = nb::steal(PyCode_GetCode(reinterpret_cast<PyCodeObject*>(code.ptr())));
  if (!bytes.is_valid()) nb::raise_python_error();
  if (at < 0 || at + 1 >= PyBytes_GET_SIZE(bytes.ptr())) return false;
  const auto* const word =
      reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(bytes.ptr())) + at;
  const Opcodes known = opcodes();
  return (word[0] == known.call || word[0] == known.call_kw) && word[1] == arguments;
}

bool has_weak_references(PyObject* object) {
  const Py_ssize_t offset = Py_TYPE(object)->tp_weaklistoffset;
  return offset <= 0 ||
         *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset) != nullptr;
}

}  // namespace

bool is_temporary_array(PyObject* object, Py_ssize_t arguments) {
  if (Py_REFCNT(object) != 1 || !is_ndarray(object) || has_weak_references(object)) return false;
  const nb::handle array(object);
  const nb::object flags = array.attr("flags");
  return nb::cast<Py_ssize_t>(array.attr("nbytes")) >= kFewestBytes &&
         array.attr("base").is_none() && nb::cast<bool>(flags.attr("owndata")) &&
         nb::cast<bool>(flags.attr("writeable")) && is_at_call(arguments);
}

}  // namespace hologram::python
