// SPDX-License-Identifier: MIT
// Copies strided pieces of memory into contiguous scratch of another dtype, and back.
#pragma once

#include <cstdint>

#include "hologram/dtype.h"

namespace hologram::cpu {

// Elements of scratch (8 bytes each) the callers below work in; small enough for L1.
inline constexpr int64_t kScratchElements = 2048;

// dst[r * n + i] = src[r * row_stride + i * stride], converted. Strides count elements.
void gather_rows(const void* src, Dtype src_dtype, int64_t rows, int64_t row_stride, int64_t n,
                 int64_t stride, Dtype dst_dtype, void* dst);

// The other way round: dst[r * row_stride + i * stride] = src[r * n + i].
void scatter_rows(const void* src, Dtype src_dtype, int64_t rows, int64_t row_stride, int64_t n,
                  int64_t stride, Dtype dst_dtype, void* dst);

}  // namespace hologram::cpu
