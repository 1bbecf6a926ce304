// SPDX-License-Identifier: MIT
// Packed sequences, and what stands in the way of nodes of ours in the graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hologram_torch {

// Whether batch_sizes says how many sequences have each step, `batch` at first and `rows` in all.
bool is_packing(const at::Tensor& batch_sizes, int64_t batch, int64_t rows);

// Whether a transform of torch.func is going on: whether nodes such as ours are refused.
bool is_transforming();

}  // namespace hologram_torch
