// SPDX-License-Identifier: MIT
// Kernels of the one-operand rows in float32.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/elementwise/elementwise_unary_float.cc"
#define HOLOGRAM_COMPILE_UNARY
#define HOLOGRAM_ELEMENT_TYPES float
#define HOLOGRAM_ADD_KERNELS add_unary_float_kernels
#include "src/cpu/elementwise/elementwise_rows-inl.h"
