// SPDX-License-Identifier: MIT
// Random numbers: uniform, normal, bernoulli, integers, dropout. The words are those of Philox
// 4x32-10 that the CPU draws (include/hologram/random.h), element by element, and what is made of
// them is the same but for normal, whose logarithm, sine and cosine are the driver's.
// J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <optional>

#include "src/gpu/kernel_text.h"
#include "src/gpu/recipes/recipe.h"

namespace hologram::gpu {

bool has_random(CallNumber kind);

// Nothing for other calls, and on devices without float64. Slots are those of the recipe.
std::optional<KernelText> random_text(const circuit::KernelCall& call, Recipe& recipe,
                                      const Traits& traits);

}  // namespace hologram::gpu
