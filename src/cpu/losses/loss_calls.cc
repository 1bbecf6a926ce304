// SPDX-License-Identifier: MIT
// The calls of losses: from the operands of a call to the kernels.
#include "hologram/loss.h"
#include "src/cpu/device/call_table.h"

namespace hologram::cpu {
namespace {

template <class Call>
PointLossOptions point_options(const Call& call, CallThreads threads) {
  PointLossOptions options;
  options.reduction = static_cast<LossReduction>(call.reduction);
  options.param = call.parameter;
  options.weight = if_given(call.weight), options.pos_weight = if_given(call.pos_weight);
  options.max_threads = threads(call.input.numel());
  return options;
}

template <class Call>
ClassLossOptions class_options(const Call& call, int threads) {
  ClassLossOptions options;
  options.reduction = static_cast<LossReduction>(call.reduction);
  options.ignore_index = call.ignore_index;
  options.weight = if_given(call.weight);
  options.max_threads = threads;
  return options;
}

}  // namespace

void run(const calls::PointLoss<>& call, CallThreads threads) {
  hologram::point_loss(static_cast<PointLoss>(call.loss), call.input, call.target, call.out,
                       point_options(call, threads));
}

void run(const calls::PointLossBackward<>& call, CallThreads threads) {
  hologram::point_loss_backward(static_cast<PointLoss>(call.loss), call.grad, call.input,
                                call.target, call.grad_input, point_options(call, threads));
}

void run(const calls::NllLoss<>& call, CallThreads threads) {
  hologram::nll_loss(call.input, call.target, call.out, call.total_weight,
                     class_options(call, threads(call.input.numel())));
}

void run(const calls::NllLossBackward<>& call, CallThreads threads) {
  hologram::nll_loss_backward(call.grad, call.target, call.total_weight, call.grad_input,
                              class_options(call, threads(call.grad_input.numel())));
}

void run(const calls::CrossEntropy<>& call, CallThreads threads) {
  ClassLossOptions options = class_options(call, threads(call.logits.numel()));
  options.label_smoothing = call.label_smoothing;
  hologram::cross_entropy(call.logits, call.target, call.out, nullptr, call.total_weight, options);
}

}  // namespace hologram::cpu
