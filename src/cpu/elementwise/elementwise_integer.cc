// SPDX-License-Identifier: MIT
// Kernels of the rows of every arity in the wide integers.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/elementwise/elementwise_integer.cc"
#define HOLOGRAM_COMPILE_UNARY
#define HOLOGRAM_COMPILE_BINARY
#define HOLOGRAM_COMPILE_TERNARY
#define HOLOGRAM_ELEMENT_TYPES int32_t, int64_t
#define HOLOGRAM_ADD_KERNELS add_integer_kernels
#include "src/cpu/elementwise/elementwise_rows-inl.h"
