// SPDX-License-Identifier: MIT
// Functions of tensors that were captured once and run as one circuit at each call.
#pragma once

#include <pybind11/pybind11.h>

namespace hologram_torch {

// Adds GraphFunction to the module; _replay.py uses it.
void bind_graph_function(pybind11::module_& m);

}  // namespace hologram_torch
