// SPDX-License-Identifier: MIT
// Kernels of the two-operand rows in float64.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/elementwise/elementwise_binary_double.cc"
#define HOLOGRAM_COMPILE_BINARY
#define HOLOGRAM_ELEMENT_TYPES double
#define HOLOGRAM_ADD_KERNELS add_binary_double_kernels
#include "src/cpu/elementwise/elementwise_rows-inl.h"
