// SPDX-License-Identifier: MIT
// Which calls have recipes.
#pragma once

#include "src/gpu/recipes/recipe.h"

namespace hologram::gpu {

// Whether there is a function write() for the call's struct.
bool has_recipe(CallNumber kind);
// Writes a call as records. False where it has no recipe, which follows from its kind, dtypes and
// attributes alone.
bool write_recipe(const circuit::KernelCall& call, Recipe& recipe);

}  // namespace hologram::gpu
