// SPDX-License-Identifier: MIT
// Kernels of the two-operand rows in float32.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/elementwise/elementwise_binary_float.cc"
#define HOLOGRAM_COMPILE_BINARY
#define HOLOGRAM_ELEMENT_TYPES float
#define HOLOGRAM_ADD_KERNELS add_binary_float_kernels
#include "src/cpu/elementwise/elementwise_rows-inl.h"
