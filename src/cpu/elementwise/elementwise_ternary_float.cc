// SPDX-License-Identifier: MIT
// Kernels of the three- and four-operand rows in float32.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/elementwise/elementwise_ternary_float.cc"
#define HOLOGRAM_COMPILE_TERNARY
#define HOLOGRAM_ELEMENT_TYPES float
#define HOLOGRAM_ADD_KERNELS add_ternary_float_kernels
#include "src/cpu/elementwise/elementwise_rows-inl.h"
