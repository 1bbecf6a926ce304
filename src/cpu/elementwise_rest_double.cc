// SPDX-License-Identifier: MIT
// Kernels of the three- and four-operand rows in float64.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/elementwise_rest_double.cc"
#define HOLOGRAM_COMPILE_REST
#define HOLOGRAM_ELEMENT_TYPES double
#define HOLOGRAM_ADD_KERNELS add_rest_double_kernels
#include "src/cpu/elementwise_rows-inl.h"
