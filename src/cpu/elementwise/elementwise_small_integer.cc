// SPDX-License-Identifier: MIT
// Kernels of the rows of every arity in the narrow integers and bool.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/elementwise/elementwise_small_integer.cc"
#define HOLOGRAM_COMPILE_UNARY
#define HOLOGRAM_COMPILE_BINARY
#define HOLOGRAM_COMPILE_TERNARY
#define HOLOGRAM_ELEMENT_TYPES uint8_t, int8_t, int16_t, Bool
#define HOLOGRAM_ADD_KERNELS add_small_integer_kernels
#include "src/cpu/elementwise/elementwise_rows-inl.h"
