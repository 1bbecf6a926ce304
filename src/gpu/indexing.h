// SPDX-License-Identifier: MIT
// Calls that read at positions which lie in memory: take, gather, nll_loss_backward. A position
// outside its dimension is found by the kernel, which goes on with another one and writes the fault
// word (fault_word.h).
#pragma once

#include <optional>

#include "src/gpu/kernel_text.h"
#include "src/gpu/recipes/recipe.h"

namespace hologram::gpu {

bool has_indexing(CallNumber kind);

// Nothing for other calls, complex numbers, and operands that are not row-major. Slots are those of
// the recipe, and kFaultSlot.
std::optional<KernelText> indexing_text(const circuit::KernelCall& call, Recipe& recipe,
                                        const Traits& traits);

}  // namespace hologram::gpu
