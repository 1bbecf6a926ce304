// SPDX-License-Identifier: MIT
// Copies between any two tensors of which at least one is ours.
#pragma once

#include <ATen/core/Tensor.h>

namespace hologram_torch {

// dst = src with broadcasting and conversion; either may be on the CPU, overlap is as in PyTorch.
void copy_into(const at::Tensor& dst, const at::Tensor& src, bool non_blocking = false);

}  // namespace hologram_torch
