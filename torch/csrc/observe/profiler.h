// SPDX-License-Identifier: MIT
// Shows circuits to PyTorch's profiler.
#pragma once

#include <pybind11/pybind11.h>

namespace hologram_torch {

// Makes every launch an event of whichever PyTorch profiler is active, "hologram::mul_add_relu": of
// the device where the profiler collects those (see kineto.h), else of the thread that runs it.
// Costs a look at PyTorch's list of callbacks per circuit while none is.
void show_launches_to_profilers();

// profiles_on() -> int: how many of PyTorch's profiles collect at this moment.
void bind_profiler(pybind11::module_& m);

}  // namespace hologram_torch
