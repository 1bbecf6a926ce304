// SPDX-License-Identifier: MIT
// Products of matrices: gemm, matmul, linear_int8. A group computes a tile of one product from
// tiles of the operands in local memory, each item some elements of it in registers. An element is
// summed in the order of the inner dimension, with one rounding a step (fma), in float32 for the
// half types: its bits do not depend on the tile. Elementwise instructions on the result come right
// behind it; where nothing else reads the product, it is not stored.
#pragma once

#include <optional>

#include "hologram/call.h"
#include "src/gpu/kernel_text.h"
#include "src/gpu/recipes/recipe.h"

namespace hologram::gpu {

bool has_product(CallNumber kind);

// PlanLimits::call_result: what product_text() lets instructions follow.
bool product_result(uint16_t kind, const uint64_t* attributes, CallResult& result);

// The kernel's call and its instructions. Nothing for other calls, and for dtypes that the device
// lacks.
std::optional<KernelText> product_text(const circuit::Kernel& kernel, const Traits& traits,
                                       const circuit::NativeOps& native);

}  // namespace hologram::gpu
