// SPDX-License-Identifier: MIT
// The calls of optimizer steps: from the operands of a call to the kernels.
#include <vector>

#include "hologram/call_frame.h"
#include "hologram/optimizer.h"

namespace hologram::cpu {
namespace {

GradScaling scaling_of(CallFrame& call) {
  const View scale = call.view(), found_inf = call.view();
  return {static_cast<const float*>(scale.data), static_cast<const float*>(found_inf.data)};
}

// The lists of a step: how many tensors and their dtype, then for each its elements and what `take`
// reads.
template <class Step>
struct Group {
  Dtype dtype;
  std::vector<Step> tensors;
  int64_t numel = 0;

  template <class Take>
  Group(CallFrame& call, Take&& take) {
    const int64_t count = call.integer();
    dtype = call.value<Dtype>();
    tensors.resize(static_cast<size_t>(count));
    for (Step& tensor : tensors) {
      tensor.numel = call.integer();
      numel += tensor.numel;
      take(tensor);
    }
  }
};

}  // namespace

void run_adam(CallFrame& call) {
  AdamOptions options;
  options.scaling = scaling_of(call);
  options.amsgrad = call.flag(), options.maximize = call.flag();
  options.decoupled_weight_decay = call.flag();
  options.lr = call.scalar();
  options.beta1 = call.number(), options.beta2 = call.number();
  options.weight_decay = call.number(), options.eps = call.number();
  const Group<AdamTensor> group(call, [&](AdamTensor& t) {
    t.param = call.memory(), t.grad = call.memory();
    t.exp_avg = call.memory(), t.exp_avg_sq = call.memory();
    t.max_exp_avg_sq = call.memory();
    t.step = call.scalar();
  });
  options.max_threads = call.threads(group.numel);
  adam_step(group.tensors, group.dtype, options);
}

void run_sgd(CallFrame& call) {
  SgdOptions options;
  options.scaling = scaling_of(call);
  options.nesterov = call.flag(), options.maximize = call.flag();
  options.is_first_step = call.flag();
  options.lr = call.scalar();
  options.momentum = call.number(), options.dampening = call.number();
  options.weight_decay = call.number();
  const Group<SgdTensor> group(call, [&](SgdTensor& t) {
    t.param = call.memory(), t.grad = call.memory();
    t.momentum_buffer = call.memory();
  });
  options.max_threads = call.threads(group.numel);
  sgd_step(group.tensors, group.dtype, options);
}

void run_adagrad(CallFrame& call) {
  AdagradOptions options;
  options.scaling = scaling_of(call);
  options.maximize = call.flag();
  options.lr = call.scalar();
  options.lr_decay = call.number(), options.weight_decay = call.number();
  options.eps = call.number();
  const Group<AdagradTensor> group(call, [&](AdagradTensor& t) {
    t.param = call.memory(), t.grad = call.memory();
    t.state_sum = call.memory();
    t.step = call.scalar();
  });
  options.max_threads = call.threads(group.numel);
  adagrad_step(group.tensors, group.dtype, options);
}

}  // namespace hologram::cpu
