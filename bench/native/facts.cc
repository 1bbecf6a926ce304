// SPDX-License-Identifier: MIT
// Says which provider of float32 products the library chose in this process.
//
// bench/facts.py compiles it against the headers of the installed package.
#include "hologram/dtype.h"
#include "hologram/gemm.h"

extern "C" const char* hologram_bench_gemm() {
  return hologram::gemm_provider_name(hologram::Dtype::kFloat32);
}
