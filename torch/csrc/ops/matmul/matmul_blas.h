// SPDX-License-Identifier: MIT
// The GEMM inside PyTorch as a provider of the library.
#pragma once

#include <cstdint>

namespace hologram_torch {

// Threads the library's GEMM may use for m * n * k multiplications.
int gemm_threads(int64_t multiplications);

// Makes PyTorch's BLAS a GEMM provider of the library: for large products where it is fast.
// HOLOGRAM_GEMM=torch takes it for all products of floating types, HOLOGRAM_GEMM=hologram for none.
// std::invalid_argument for another value.
void register_torch_gemm();

}  // namespace hologram_torch
