// SPDX-License-Identifier: MIT
// Which calls have recipes.
#pragma once

#include "src/gpu/recipe.h"

namespace hologram::gpu {

// Writes a call as records. False where it has no recipe, which follows from its kind, dtypes and
// attributes alone.
bool write_recipe(const circuit::KernelCall& call, Recipe& recipe, bool has_double);

}  // namespace hologram::gpu
