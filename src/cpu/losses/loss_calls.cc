// SPDX-License-Identifier: MIT
// The calls of losses: from the operands of a call to the kernels.
#include "hologram/call_frame.h"
#include "hologram/loss.h"

namespace hologram::cpu {
namespace {

// The parameters of a loss by elements, which follow its operands.
struct PointParameters {
  PointLoss loss;
  PointLossOptions options;

  PointParameters(CallFrame& call, const View& weight, const View& pos_weight, int64_t n) {
    loss = static_cast<PointLoss>(call.integer());
    options.reduction = static_cast<LossReduction>(call.integer());
    options.param = call.number();
    options.weight = if_given(weight), options.pos_weight = if_given(pos_weight);
    options.max_threads = call.threads(n);
  }
};

ClassLossOptions class_options(CallFrame& call, const View& weight, int64_t n) {
  ClassLossOptions options;
  options.reduction = static_cast<LossReduction>(call.integer());
  options.ignore_index = call.integer();
  options.weight = if_given(weight);
  options.max_threads = call.threads(n);
  return options;
}

}  // namespace

void run_point_loss(CallFrame& call) {
  const View input = call.view(), target = call.view();
  const View weight = call.view(), pos_weight = call.view(), out = call.view();
  const PointParameters given(call, weight, pos_weight, input.numel());
  hologram::point_loss(given.loss, input, target, out, given.options);
}

void run_point_loss_backward(CallFrame& call) {
  const View grad = call.view(), input = call.view(), target = call.view();
  const View weight = call.view(), pos_weight = call.view(), out = call.view();
  const PointParameters given(call, weight, pos_weight, input.numel());
  hologram::point_loss_backward(given.loss, grad, input, target, out, given.options);
}

void run_nll_loss(CallFrame& call) {
  const View input = call.view(), target = call.view(), weight = call.view();
  const View out = call.view(), total = call.view();
  hologram::nll_loss(input, target, out, total, class_options(call, weight, input.numel()));
}

void run_nll_loss_backward(CallFrame& call) {
  const View grad = call.view(), target = call.view(), weight = call.view();
  const View total = call.view(), out = call.view();
  hologram::nll_loss_backward(grad, target, total, out, class_options(call, weight, out.numel()));
}

void run_cross_entropy(CallFrame& call) {
  const View logits = call.view(), target = call.view(), weight = call.view();
  const View out = call.view(), total = call.view();
  ClassLossOptions options = class_options(call, weight, logits.numel());
  options.label_smoothing = call.number();
  hologram::cross_entropy(logits, target, out, nullptr, total, options);
}

}  // namespace hologram::cpu
