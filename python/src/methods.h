// SPDX-License-Identifier: MIT
// Methods of tensors that are written in Python.
#pragma once

#include "objects.h"

namespace hologram::python {

void add_scalar_methods(nb::class_<ScalarObject, TensorObject>& type);
void add_python_methods(nb::class_<TensorObject>& type);

}  // namespace hologram::python
