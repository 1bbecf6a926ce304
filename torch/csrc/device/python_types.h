// SPDX-License-Identifier: MIT
// What a Python type of tensors asks of calls.
#pragma once

#include <Python.h>

namespace hologram_torch {

// Whether a subclass of tensors has a function of its own that calls must go through.
bool has_own_functions(PyTypeObject* type);

}  // namespace hologram_torch
