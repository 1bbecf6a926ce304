// SPDX-License-Identifier: MIT
// The inner loops of the losses on contiguous float32 or float64.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"
#include "hologram/loss.h"

namespace hologram::cpu {

// One tile: pointers to n elements each, null where an operand is absent.
struct LossTile {
  const void* input;
  const void* target;
  const void* weight;
  const void* pos_weight;
  const void* grad;  // backward: n elements, or null for grad_scalar everywhere
  double grad_scalar;
  double param;
  void* out;  // losses or gradients; null when only the sum is wanted
  int64_t n;
};

struct LossKernel {
  // Returns the sum of the losses; sets *bad when bce meets an input outside [0, 1].
  double (*forward)(const LossTile& tile, bool* bad);
  void (*backward)(const LossTile& tile);
};
const LossKernel& loss_kernel(Isa isa, PointLoss loss, Dtype dtype);

}  // namespace hologram::cpu
