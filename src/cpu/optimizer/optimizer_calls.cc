// SPDX-License-Identifier: MIT
// The calls of optimizer steps: from the operands of a call to the kernels.
#include <vector>

#include "src/cpu/device/call_table.h"
#include "src/cpu/optimizer/optimizer.h"

namespace hologram::cpu {
namespace {

template <class Call>
GradScaling scaling_of(const Call& call) {
  return {static_cast<const float*>(call.grad_scale.data),
          static_cast<const float*>(call.found_inf.data)};
}

// Null where the list is not given.
template <class List>
void* memory_of(const List& list, size_t i) {
  return list.empty() ? nullptr : list[i].data;
}

template <class Step, class Call>
std::vector<Step> group_of(const Call& call) {
  std::vector<Step> group(call.params.size());
  for (size_t i = 0; i < group.size(); ++i) {
    group[i].numel = call.params[i].numel();
    group[i].param = call.params[i].data, group[i].grad = call.grads[i].data;
  }
  return group;
}

template <class Call>
int threads_of(const Call& call, CallThreads threads) {
  return threads(static_cast<int64_t>(calls::numel(call.params)));
}

}  // namespace

void run(const calls::Adam<>& call, CallThreads threads) {
  if (call.params.empty()) return;
  AdamOptions options;
  options.scaling = scaling_of(call);
  options.amsgrad = call.amsgrad, options.maximize = call.maximize;
  options.decoupled_weight_decay = call.decoupled_weight_decay;
  options.lr = call.lr.value;
  options.beta1 = call.beta1, options.beta2 = call.beta2;
  options.weight_decay = call.weight_decay, options.eps = call.eps;
  options.max_threads = threads_of(call, threads);
  auto group = group_of<AdamTensor>(call);
  for (size_t i = 0; i < group.size(); ++i) {
    group[i].exp_avg = call.exp_avgs[i].data, group[i].exp_avg_sq = call.exp_avg_sqs[i].data;
    group[i].max_exp_avg_sq = memory_of(call.max_exp_avg_sqs, i);
    group[i].step = call.steps[i].value;
  }
  adam_step(group, call.params[0].dtype, options);
}

void run(const calls::Sgd<>& call, CallThreads threads) {
  if (call.params.empty()) return;
  SgdOptions options;
  options.scaling = scaling_of(call);
  options.nesterov = call.nesterov, options.maximize = call.maximize;
  options.is_first_step = call.is_first_step;
  options.lr = call.lr.value;
  options.momentum = call.momentum, options.dampening = call.dampening;
  options.weight_decay = call.weight_decay;
  options.max_threads = threads_of(call, threads);
  auto group = group_of<SgdTensor>(call);
  for (size_t i = 0; i < group.size(); ++i) {
    group[i].momentum_buffer = memory_of(call.momentum_buffers, i);
  }
  sgd_step(group, call.params[0].dtype, options);
}

void run(const calls::Adagrad<>& call, CallThreads threads) {
  if (call.params.empty()) return;
  AdagradOptions options;
  options.scaling = scaling_of(call);
  options.maximize = call.maximize;
  options.lr = call.lr.value;
  options.lr_decay = call.lr_decay, options.weight_decay = call.weight_decay;
  options.eps = call.eps;
  options.max_threads = threads_of(call, threads);
  auto group = group_of<AdagradTensor>(call);
  for (size_t i = 0; i < group.size(); ++i) {
    group[i].state_sum = call.state_sums[i].data;
    group[i].step = call.steps[i].value;
  }
  adagrad_step(group, call.params[0].dtype, options);
}

}  // namespace hologram::cpu
