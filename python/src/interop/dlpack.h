// SPDX-License-Identifier: MIT
// Capsules of DLPack, in which array libraries of Python pass each other memory.
#pragma once

#include <nanobind/nanobind.h>

#include "objects.h"

namespace hologram::python {

// From a capsule, or from what an object's __dlpack__ gives; a copy only where that is asked for.
TensorObject import_dlpack(nb::handle object, bool copy);

// Gives a class __dlpack__ and __dlpack_device__.
void add_dlpack_methods(nb::handle type);

}  // namespace hologram::python
