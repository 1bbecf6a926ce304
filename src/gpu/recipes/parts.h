// SPDX-License-Identifier: MIT
// What recipes have in common, and their functions: each writes a call as records, false where it
// has no recipe.
#pragma once

#include "hologram/call_structs.h"
#include "src/gpu/recipes/recipe.h"

namespace hologram::gpu {

// With the dimensions of `mask` last, as one. Where they are not one run in memory they are copied.
Array rows_of(Recipe& recipe, const Array& x, uint64_t mask);
inline Array flat(const Array& x) { return x.merged(0, x.ndim); }

// The means of rows, and the sums of squares around them.
struct Moments {
  Array mean, squares;
};
Moments moments_of(Recipe& recipe, const Array& rows, Dtype compute);

bool write(const calls::LayerNorm<Array>& call, Recipe& recipe);
bool write(const calls::LayerNormBackward<Array>& call, Recipe& recipe);
bool write(const calls::BatchNorm<Array>& call, Recipe& recipe);
bool write(const calls::BatchNormBackward<Array>& call, Recipe& recipe);
bool write(const calls::GroupNorm<Array>& call, Recipe& recipe);
bool write(const calls::GroupNormBackward<Array>& call, Recipe& recipe);

bool write(const calls::PointLoss<Array>& call, Recipe& recipe);
bool write(const calls::PointLossBackward<Array>& call, Recipe& recipe);
bool write(const calls::NllLoss<Array>& call, Recipe& recipe);

bool write(const calls::Adam<Array>& call, Recipe& recipe);
bool write(const calls::Sgd<Array>& call, Recipe& recipe);
bool write(const calls::Adagrad<Array>& call, Recipe& recipe);

bool write(const calls::Attention<Array>& call, Recipe& recipe);
bool write(const calls::AttentionBackward<Array>& call, Recipe& recipe);

bool write(const calls::LstmRecurrence<Array>& call, Recipe& recipe);
bool write(const calls::LstmForward<Array>& call, Recipe& recipe);
bool write(const calls::LstmBackward<Array>& call, Recipe& recipe);
bool write(const calls::GruForward<Array>& call, Recipe& recipe);
bool write(const calls::GruBackward<Array>& call, Recipe& recipe);
bool write(const calls::RnnForward<Array>& call, Recipe& recipe);
bool write(const calls::RnnBackward<Array>& call, Recipe& recipe);

}  // namespace hologram::gpu
