// SPDX-License-Identifier: MIT
// Products of matrices: gemm, matmul, linear_int8. A group computes a tile of one product from
// tiles of the operands in local memory, each item some elements of it in registers. An element is
// summed in the order of the inner dimension, with one rounding a step (fma), in float32 for the
// half types: its bits do not depend on the tile.
#pragma once

#include <optional>

#include "src/gpu/kernel_text.h"
#include "src/gpu/recipes/recipe.h"

namespace hologram::gpu {

bool has_product(CallNumber kind);

// Nothing for other calls, and for dtypes that the device lacks. Slots are those of the recipe.
std::optional<KernelText> product_text(const circuit::KernelCall& call, Recipe& recipe,
                                       const Traits& traits, const circuit::NativeOps& native);

}  // namespace hologram::gpu
