// SPDX-License-Identifier: MIT
// Losses on host memory.
#pragma once

#include "hologram/loss.h"

namespace hologram {

// input, target and out (or, with a reduction, a one-element out) are floating; input and target
// have one shape. Computed in float64 where one is, else in float32. Sums have a fixed order and
// the accuracy of Reduction::sum.
void point_loss(PointLoss loss, const View& input, const View& target, const View& out,
                const PointLossOptions& options = {});

// grad_input = grad_out * d loss / d input; grad_out has one element where there was a reduction,
// else input's shape.
void point_loss_backward(PointLoss loss, const View& grad_out, const View& input,
                         const View& target, const View& grad_input,
                         const PointLossOptions& options = {});

// log_prob is [C], [N, C] or [N, C, d...]; target is int64 (or uint8) of that shape without C. out
// has target's shape for LossReduction::none, else one element. total_weight, one element, receives
// the sum of the weights of the targets (0 for none). A target outside [0, C) that is not
// ignore_index throws kIndex.
void nll_loss(const View& log_prob, const View& target, const View& out, const View& total_weight,
              const ClassLossOptions& options = {});

void nll_loss_backward(const View& grad_out, const View& target, const View& total_weight,
                       const View& grad_input, const ClassLossOptions& options = {});

// log_softmax over the classes and nll_loss in one pass.
void cross_entropy(const View& logits, const View& target, const View& out,
                   const View& total_weight, const ClassLossOptions& options = {});

}  // namespace hologram
