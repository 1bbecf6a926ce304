// SPDX-License-Identifier: MIT
// The SIMD math vocabulary of the CPU kernels: F(x) for vectors of float32 and float64, per target.

// Use it like Highway itself. A kernel file that is compiled once per target writes
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "src/cpu/kernels.cc"
//   #include "hwy/foreach_target.h"
//   #include "hwy/highway.h"
//   #include "src/cpu/simd/math-inl.h"
//   HWY_BEFORE_NAMESPACE();
//   namespace hologram::HWY_NAMESPACE { ... Exp(hn::Load(d, x)) ... }
//   HWY_AFTER_NAMESPACE();
//
// and is compiled with -ffp-contract=off: the double-word arithmetic counts every rounding.
//
// Every function covers its whole range: denormals in and out, huge arguments, infinities, signed
// zeros and NaN as C99 Annex F has them. A lane's result depends on that lane alone. The accuracy
// each function states is measured by tools/accuracy against its reference.h.
//
// The algorithms are the classical ones: argument reduction to a short interval with constants
// split in two or three words, a minimax polynomial there, reconstruction. The coefficients come
// from tools/accuracy/fit_polynomials.py, which names each fit.

#if defined(HOLOGRAM_SRC_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_SRC_CPU_MATH_INL_H_
#undef HOLOGRAM_SRC_CPU_MATH_INL_H_
#else
#define HOLOGRAM_SRC_CPU_MATH_INL_H_
#endif

#include "src/cpu/simd/math-activation-inl.h"
#include "src/cpu/simd/math-core-inl.h"
#include "src/cpu/simd/math-division-inl.h"
#include "src/cpu/simd/math-erf-inl.h"
#include "src/cpu/simd/math-exp-inl.h"
#include "src/cpu/simd/math-inverse-inl.h"
#include "src/cpu/simd/math-log-inl.h"
#include "src/cpu/simd/math-pow-inl.h"
#include "src/cpu/simd/math-special-inl.h"
#include "src/cpu/simd/math-trig-inl.h"

#endif
