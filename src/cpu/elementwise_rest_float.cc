// SPDX-License-Identifier: MIT
// Kernels of the three- and four-operand rows in float32.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/elementwise_rest_float.cc"
#define HOLOGRAM_COMPILE_REST
#define HOLOGRAM_ELEMENT_TYPES float
#define HOLOGRAM_ADD_KERNELS add_rest_float_kernels
#include "src/cpu/elementwise_rows-inl.h"
