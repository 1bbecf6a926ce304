// SPDX-License-Identifier: MIT
// NumPy's functions for what complex numbers do not have here.
#include "through_numpy.h"

namespace hologram::python {

const char* complex_in_numpy(OpId op) {
  switch (op) {
    case OpId::exp2:
      return "exp2";
    case OpId::expm1:
      return "expm1";
    case OpId::log2:
      return "log2";
    case OpId::log10:
      return "log10";
    case OpId::log1p:
      return "log1p";
    case OpId::round:
      return "round";
    case OpId::sign:
      return "sign";
    // By the real parts, and by the imaginary ones where those are equal.
    case OpId::lt:
      return "less";
    case OpId::le:
      return "less_equal";
    case OpId::gt:
      return "greater";
    case OpId::ge:
      return "greater_equal";
    case OpId::minimum:
      return "minimum";
    case OpId::maximum:
      return "maximum";
    default:
      return nullptr;
  }
}

nb::object call_numpy(const char* name, PyObject* const* operands, int count, PyObject* out) {
  nb::list arguments;
  for (int i = 0; i < count; ++i) arguments.append(nb::borrow(operands[i]));
  nb::dict options;
  options["out"] = out == nullptr ? nb::none() : nb::borrow(out);
  return nb::module_::import_("hologram._lazy").attr("through_numpy")(name, *arguments, **options);
}

}  // namespace hologram::python
