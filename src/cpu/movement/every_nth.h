// SPDX-License-Identifier: MIT
// Gathers every second, third or fourth element of a row, all of them backward, or one again and
// again.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// to[i] = from[step * i] for i < n, elements of `itemsize` bytes: 1, 2, 4 or 8. Nothing outside of
// these is read. They do not overlap.
using EveryNthKernel = void (*)(const void* from, void* to, int64_t n);

// step: -1, 0, 2, 3 or 4. Null where there is none: of 8 bytes not for 3 and 4.
EveryNthKernel every_nth_kernel(Isa isa, int64_t step, int64_t itemsize);

}  // namespace hologram::cpu
