// SPDX-License-Identifier: MIT
// Copies, casts and fills of host memory by the library's own kernels.
#pragma once

#include "recording/native_common.h"

namespace hologram_torch {

// dst = src, converted and broadcast, either of them ours or the CPU's. False, with nothing done,
// where it takes PyTorch's own copy: lazy bits, overlap, types only PyTorch knows, errors.
bool native_copy(const at::Tensor& dst, const at::Tensor& src);

// Every element becomes value. False, with nothing done, where PyTorch's own fill is needed.
bool native_fill(const at::Tensor& self, const c10::Scalar& value);
bool native_zero(const at::Tensor& self);

}  // namespace hologram_torch
