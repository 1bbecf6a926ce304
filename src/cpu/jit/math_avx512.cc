// SPDX-License-Identifier: MIT
// Math functions as operations of AVX-512.
#define HOLOGRAM_SYMBOLIC_MATH N_SYMBOLS_AVX512
#define HOLOGRAM_SYMBOLIC_TARGET HWY_AVX3
#define HOLOGRAM_SYMBOLIC_BYTES 64
#define HOLOGRAM_SYMBOLIC_FUNCTION write_math_avx512
#include "src/cpu/jit/math-inl.h"
