// SPDX-License-Identifier: MIT
// What happened to memory, and the memory there is, as PyTorch's viewer of memory reads them.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>

namespace hologram_torch {

// Whether the history wants the lines of Python at which ops are recorded.
bool wants_lines_of_results();
// The lines of a marked op, for when its result gets memory.
void remember_result(uint64_t mark, std::shared_ptr<c10::GatheredContext> lines);

// record_memory_history(...), memory_snapshot() -> dict, allocation_lines(address) -> list or None:
// see hologram_torch/memory.py.
void bind_memory_history(pybind11::module_& m);

}  // namespace hologram_torch
