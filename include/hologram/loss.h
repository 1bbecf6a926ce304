// SPDX-License-Identifier: MIT
// Loss functions on strided host memory: elementwise ones and those over class indices, with their
// gradients.
#pragma once

#include <cstdint>

#include "hologram/api.h"
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
  double param = 1.0;                // beta or delta
  const View* weight = nullptr;      // bce, bce_with_logits: factor of each element, broadcast
  const View* pos_weight = nullptr;  // bce_with_logits: factor of the positive term, broadcast
  int max_threads = 0;
};

// input, target and out (or, with a reduction, a one-element out) are floating; input and target
// have one shape. Computed in float64 where one is, else in float32. Sums have a fixed order and
// the accuracy of Reduction::sum.
HOLOGRAM_API void point_loss(PointLoss loss, const View& input, const View& target, const View& out,
                             const PointLossOptions& options = {});

// grad_input = grad_out * d loss / d input; grad_out has one element where there was a reduction,
// else input's shape.
HOLOGRAM_API void point_loss_backward(PointLoss loss, const View& grad_out, const View& input,
                                      const View& target, const View& grad_input,
                                      const PointLossOptions& options = {});

struct ClassLossOptions {
  LossReduction reduction = LossReduction::mean;
  const View* weight = nullptr;  // one factor per class, in input's dtype
  int64_t ignore_index = -100;
  double label_smoothing = 0.0;  // cross_entropy only
  int max_threads = 0;
};

// log_prob is [C], [N, C] or [N, C, d...]; target is int64 (or uint8) of that shape without C. out
// has target's shape for LossReduction::none, else one element. total_weight, one element, receives
// the sum of the weights of the targets (0 for none). A target outside [0, C) that is not
// ignore_index throws kIndex.
HOLOGRAM_API void nll_loss(const View& log_prob, const View& target, const View& out,
                           const View& total_weight, const ClassLossOptions& options = {});
HOLOGRAM_API void nll_loss_backward(const View& grad_out, const View& target,
                                    const View& total_weight, const View& grad_input,
                                    const ClassLossOptions& options = {});

// log_softmax over the classes and nll_loss in one pass. log_prob (null: not wanted) receives the
// log_softmax, which the backward needs.
HOLOGRAM_API void cross_entropy(const View& logits, const View& target, const View& out,
                                const View* log_prob, const View& total_weight,
                                const ClassLossOptions& options = {});
// Gradient with respect to the logits.
HOLOGRAM_API void cross_entropy_backward(const View& grad_out, const View& log_prob,
                                         const View& target, const View& total_weight,
                                         const View& grad_logits,
                                         const ClassLossOptions& options = {});

}  // namespace hologram
