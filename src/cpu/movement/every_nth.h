// SPDX-License-Identifier: MIT
// Gathers every second, third or fourth element of a row.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// to[i] = from[step * i] for i < n, elements of `itemsize` bytes: 1, 2, 4 or 8. Nothing behind the
// last of these is read. They do not overlap.
using EveryNthKernel = void (*)(const void* from, void* to, int64_t n);

// Null where there is none for the step: of 8 bytes every second is gathered only.
EveryNthKernel every_nth_kernel(Isa isa, int64_t step, int64_t itemsize);

}  // namespace hologram::cpu
