// SPDX-License-Identifier: MIT
// Optimizer steps over lists of parameters, cut into pieces that threads share out.
#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/parallel.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/optimizer/optimizer_kernels.h"

namespace hologram::cpu {
namespace {

// Elements of one kernel call: operands of the half types in float32 fit L1.
constexpr int64_t kPiece = 2048;
// Elements a thread claims at a time.
constexpr int64_t kOptimizerUnit = 8192;

struct Target {
  std::array<void*, kStepOperands> operands{};
  int64_t numel = 0;
  StepConstants constants;
};

// Elements [begin, end) of a target.
void step_range(const Target& target, int operands, Dtype dtype, StepKernel kernel, int64_t begin,
                int64_t end) {
  const int64_t size = static_cast<int64_t>(itemsize(dtype));
  std::array<void*, kStepOperands> at{};
  const auto place = [&](int64_t i) {
    for (int k = 0; k < operands; ++k) {
      char* const data = static_cast<char*>(target.operands[static_cast<size_t>(k)]);
      at[static_cast<size_t>(k)] = data != nullptr ? data + i * size : nullptr;
    }
  };
  if (dtype == compute_dtype(dtype)) {
    place(begin);
    kernel(at.data(), end - begin, target.constants);
    return;
  }
  alignas(64) float wide[kStepOperands][kPiece];
  for (int64_t i = begin; i < end; i += kPiece) {
    const int64_t n = std::min(kPiece, end - i);
    place(i);
    std::array<void*, kStepOperands> in_float{};
    for (size_t k = 0; k < static_cast<size_t>(operands); ++k) {
      if (at[k] == nullptr) continue;
      in_float[k] = wide[k];
      convert(dtype, at[k], Dtype::kFloat32, wide[k], n);
    }
    kernel(in_float.data(), n, target.constants);
    for (size_t k = 0; k < static_cast<size_t>(operands); ++k) {
      const bool written = k != 1 || target.constants.grad_divisor != 0;
      if (at[k] != nullptr && written) convert(Dtype::kFloat32, wide[k], dtype, at[k], n);
    }
  }
}

void run_steps(const std::vector<Target>& targets, int operands, StepRule rule, Dtype dtype,
               int max_threads) {
  const StepKernel kernel = step_kernel(current_isa(), rule, dtype);
  // Units of kOptimizerUnit elements of all targets laid end to end.
  std::vector<int64_t> starts(targets.size() + 1, 0);
  for (size_t i = 0; i < targets.size(); ++i) starts[i + 1] = starts[i] + targets[i].numel;
  const int64_t total = starts.back();
  parallel_for((total + kOptimizerUnit - 1) / kOptimizerUnit, max_threads,
               [&](int64_t first, int64_t last, int) {
                 int64_t at = first * kOptimizerUnit;
                 const int64_t end = std::min(total, last * kOptimizerUnit);
                 size_t i = static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), at) -
                                                starts.begin()) -
                            1;
                 for (; at < end; ++i) {
                   const int64_t stop = std::min(end, starts[i + 1]);
                   if (stop > at) {
                     step_range(targets[i], operands, dtype, kernel, at - starts[i],
                                stop - starts[i]);
                   }
                   at = std::max(at, stop);
                 }
               });
}

// A step of a call's tensors; lists: the kernel's operands, of which those behind the first may be
// empty; constants(i): what a tensor's step is computed with.
template <class Call, class Constants>
void step(const Call& call, CallThreads threads, StepRule rule,
          std::initializer_list<calls::InOutList<calls::CallView>> lists, Constants&& constants) {
  if (call.params.empty()) return;
  if (call.found_inf.has_data() && *static_cast<const float*>(call.found_inf.data) != 0) return;
  std::vector<Target> targets(call.params.size());
  int operands = 0;
  for (const auto& list : lists) {
    if (list.empty()) break;
    for (size_t i = 0; i < targets.size(); ++i) {
      targets[i].operands[static_cast<size_t>(operands)] = list[i].data;
    }
    ++operands;
  }
  int64_t total = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    Target& target = targets[i];
    target.numel = call.params[i].numel();
    total += target.numel;
    target.constants = constants(i);
    target.constants.sign = call.maximize ? -1 : 1;
    target.constants.grad_divisor =
        call.grad_scale.has_data() ? *static_cast<const float*>(call.grad_scale.data) : 0.0;
  }
  run_steps(targets, operands, rule, call.params[0].dtype, threads(total));
}

}  // namespace

void run(const calls::Adam<>& call, CallThreads threads) {
  const double lr = call.lr.value;
  // Parameters commonly are at one step.
  double known_step = std::numeric_limits<double>::quiet_NaN(), step_size = 0, correction = 0;
  const auto maxima = call.amsgrad ? call.max_exp_avg_sqs : calls::InOutList<calls::CallView>();
  step(call, threads, StepRule::kAdam,
       {call.params, call.grads, call.exp_avgs, call.exp_avg_sqs, maxima}, [&](size_t i) {
         StepConstants c;
         if (call.decoupled_weight_decay) {
           c.shrink = 1 - lr * call.weight_decay;
         } else {
           c.weight_decay = call.weight_decay;
         }
         if (const double now = call.steps[i].value; now != known_step) {
           known_step = now;
           step_size = lr / (1 - std::pow(call.beta1, now));
           correction = 1 / std::sqrt(1 - std::pow(call.beta2, now));
         }
         c.step_size = step_size;
         c.inverse_correction = correction;
         c.eps = call.eps;
         c.beta1 = call.beta1, c.beta2 = call.beta2;
         c.amsgrad = call.amsgrad;
         return c;
       });
}

void run(const calls::Sgd<>& call, CallThreads threads) {
  const auto buffers =
      call.momentum != 0 ? call.momentum_buffers : calls::InOutList<calls::CallView>();
  step(call, threads, StepRule::kSgd, {call.params, call.grads, buffers}, [&](size_t) {
    StepConstants c;
    c.weight_decay = call.weight_decay;
    c.step_size = call.lr.value;
    c.momentum = call.momentum, c.dampening = call.dampening;
    c.nesterov = call.nesterov, c.first = call.is_first_step;
    return c;
  });
}

void run(const calls::Adagrad<>& call, CallThreads threads) {
  step(call, threads, StepRule::kAdagrad, {call.params, call.grads, call.state_sums},
       [&](size_t i) {
         StepConstants c;
         c.weight_decay = call.weight_decay;
         c.step_size = call.lr.value / (1 + (call.steps[i].value - 1) * call.lr_decay);
         c.eps = call.eps;
         return c;
       });
}

}  // namespace hologram::cpu
