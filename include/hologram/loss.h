// SPDX-License-Identifier: MIT
// Which losses there are, elementwise and over class indices, and what they take beside tensors.
#pragma once

#include <cstdint>

#include "hologram/view.h"

namespace hologram {

// Numbered as at::Reduction.
enum class LossReduction : uint8_t { none = 0, mean = 1, sum = 2 };

// x is the input, y the target.
enum class PointLoss : uint8_t {
  mse = 0,              // (x - y)^2
  l1 = 1,               // |x - y|
  smooth_l1 = 2,        // z^2 / (2 param) where z = |x - y| < param, else z - param / 2
  huber = 3,            // z^2 / 2 where z <= param, else param (z - param / 2)
  bce = 4,              // -(y log x + (1 - y) log(1 - x)), logarithms not below -100
  bce_with_logits = 5,  // bce of sigmoid(x), without overflow
  kl_div = 6,           // y (log y - x), 0 where y is 0
  kl_div_log = 7,       // exp(y) (y - x)
};
inline constexpr int kPointLossCount = 8;

struct PointLossOptions {
  LossReduction reduction = LossReduction::mean;
  double param = 1.0;  // beta or delta
};

struct ClassLossOptions {
  LossReduction reduction = LossReduction::mean;
  const View* weight = nullptr;  // one factor per class
  int64_t ignore_index = -100;
  double label_smoothing = 0.0;
};

}  // namespace hologram
