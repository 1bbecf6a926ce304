// SPDX-License-Identifier: MIT
// Methods of tensors that reduce, sort out rows or multiply.
#pragma once

#include "objects.h"

namespace hologram::python {

void add_reduction_methods(nb::class_<TensorObject>& type);
// The same as functions: the module `reductions`.
void register_reductions(nb::module_& m);

}  // namespace hologram::python
