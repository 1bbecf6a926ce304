// SPDX-License-Identifier: MIT
// Math functions as operations of AVX2.
#define HOLOGRAM_SYMBOLIC_MATH N_SYMBOLS_AVX2
#define HOLOGRAM_SYMBOLIC_TARGET HWY_AVX2
#define HOLOGRAM_SYMBOLIC_BYTES 32
#define HOLOGRAM_SYMBOLIC_FUNCTION write_math_avx2
#include "src/cpu/jit/math-inl.h"
