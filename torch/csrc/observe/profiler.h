// SPDX-License-Identifier: MIT
// Shows circuits to PyTorch's profiler and to hologram_torch's explain and profile.
#pragma once

#include <pybind11/pybind11.h>

namespace hologram_torch {

// Makes every launch an event of whichever PyTorch profiler is active, "hologram::mul_add_relu": of
// the device where the profiler collects those (see kineto.h), else of the thread that runs it.
// Costs a look at PyTorch's list of callbacks per circuit while none is.
void show_launches_to_profilers();

// start_tracing() -> int and stop_tracing(int) -> dict, see hologram/trace.h; profiles_on() -> int:
// how many of PyTorch's profiles collect at this moment.
void bind_tracing(pybind11::module_& m);

}  // namespace hologram_torch
