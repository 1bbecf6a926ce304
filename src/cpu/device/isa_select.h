// SPDX-License-Identifier: MIT
// Restricts Highway to our three instruction sets and picks a function among its per-target
// namespaces.
#pragma once

// Newer Highway releases know more x86 targets than we build kernels for.
#include "hwy/detect_targets.h"
#if defined(__x86_64__)
#undef HWY_TARGETS
#define HWY_TARGETS (HWY_SSE4 | HWY_AVX2 | HWY_AVX3)
#endif

#include "hologram/cpu_info.h"

// HOLOGRAM_FOR_ISA(isa, f): f of the namespace compiled for that instruction set. For use in the
// HWY_ONCE part.
#if defined(__x86_64__)
#define HOLOGRAM_FOR_ISA(isa, f)                 \
  ((isa) == ::hologram::Isa::kAvx512 ? N_AVX3::f \
   : (isa) == ::hologram::Isa::kAvx2 ? N_AVX2::f \
                                     : N_SSE4::f)
#else
#define HOLOGRAM_FOR_ISA(isa, f) (static_cast<void>(isa), HWY_STATIC_DISPATCH(f))
#endif
