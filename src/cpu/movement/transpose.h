// SPDX-License-Identifier: MIT
// Transposes matrices of elements of 4 and 8 bytes.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// to[p * ld_to + i] = from[i * ld + p] for i < rows, p < cols. They do not overlap.
template <class T>
using TransposeKernel = void (*)(const T* from, int64_t ld, int64_t rows, int64_t cols, T* to,
                                 int64_t ld_to);

TransposeKernel<float> transpose_kernel(Isa isa, float);
TransposeKernel<double> transpose_kernel(Isa isa, double);
TransposeKernel<uint32_t> transpose_kernel(Isa isa, uint32_t);
TransposeKernel<uint64_t> transpose_kernel(Isa isa, uint64_t);

}  // namespace hologram::cpu
