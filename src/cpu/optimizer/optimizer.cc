// SPDX-License-Identifier: MIT
// Optimizer steps over lists of parameters, cut into pieces that threads share out.
#include "src/cpu/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/cpu/optimizer/optimizer_kernels.h"

namespace hologram {
namespace cpu {
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

// Whether there is anything to do.
bool check(const char* what, Dtype dtype, const GradScaling& scaling) {
  if (!is_floating(dtype)) {
    fail(ErrorKind::kNotSupported, what, " takes floating parameters, not ", dtype_name(dtype));
  }
  return scaling.found_inf == nullptr || *scaling.found_inf == 0;
}

void check_operands(const char* what, const Target& target, size_t index, int operands) {
  if (target.numel < 0) {
    fail(ErrorKind::kInvalidArgument, what, ": tensor ", index, " has ", target.numel, " elements");
  }
  static constexpr const char* kNames[] = {"param", "grad", "its first state", "its second state",
                                           "its third state"};
  for (int k = 0; k < operands && target.numel > 0; ++k) {
    if (target.operands[static_cast<size_t>(k)] == nullptr) {
      fail(ErrorKind::kInvalidArgument, what, ": ", kNames[k], " of tensor ", index, " is null");
    }
  }
}

double divisor(const GradScaling& scaling) {
  return scaling.scale != nullptr ? static_cast<double>(*scaling.scale) : 0.0;
}

}  // namespace
}  // namespace cpu

void adam_step(std::span<const AdamTensor> tensors, Dtype dtype, const AdamOptions& options) {
  const char* what = options.decoupled_weight_decay ? "adamw" : "adam";
  if (!cpu::check(what, dtype, options.scaling)) return;
  const int operands = options.amsgrad ? 5 : 4;
  std::vector<cpu::Target> targets(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const AdamTensor& t = tensors[i];
    cpu::Target& target = targets[i];
    target.operands = {t.param, t.grad, t.exp_avg, t.exp_avg_sq, t.max_exp_avg_sq};
    target.numel = t.numel;
    cpu::check_operands(what, target, i, operands);
    cpu::StepConstants& c = target.constants;
    c.sign = options.maximize ? -1 : 1;
    c.grad_divisor = cpu::divisor(options.scaling);
    if (options.decoupled_weight_decay) {
      c.shrink = 1 - options.lr * options.weight_decay;
    } else {
      c.weight_decay = options.weight_decay;
    }
    c.step_size = options.lr / (1 - std::pow(options.beta1, t.step));
    c.inverse_correction = 1 / std::sqrt(1 - std::pow(options.beta2, t.step));
    c.eps = options.eps;
    c.beta1 = options.beta1, c.beta2 = options.beta2;
    c.amsgrad = options.amsgrad;
  }
  cpu::run_steps(targets, operands, cpu::StepRule::kAdam, dtype, options.max_threads);
}

void sgd_step(std::span<const SgdTensor> tensors, Dtype dtype, const SgdOptions& options) {
  if (!cpu::check("sgd", dtype, options.scaling)) return;
  const int operands = options.momentum != 0 ? 3 : 2;
  std::vector<cpu::Target> targets(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SgdTensor& t = tensors[i];
    cpu::Target& target = targets[i];
    target.operands = {t.param, t.grad, t.momentum_buffer, nullptr, nullptr};
    target.numel = t.numel;
    cpu::check_operands("sgd", target, i, operands);
    cpu::StepConstants& c = target.constants;
    c.sign = options.maximize ? -1 : 1;
    c.grad_divisor = cpu::divisor(options.scaling);
    c.weight_decay = options.weight_decay;
    c.step_size = options.lr;
    c.momentum = options.momentum, c.dampening = options.dampening;
    c.nesterov = options.nesterov, c.first = options.is_first_step;
  }
  cpu::run_steps(targets, operands, cpu::StepRule::kSgd, dtype, options.max_threads);
}

void adagrad_step(std::span<const AdagradTensor> tensors, Dtype dtype,
                  const AdagradOptions& options) {
  if (!cpu::check("adagrad", dtype, options.scaling)) return;
  std::vector<cpu::Target> targets(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const AdagradTensor& t = tensors[i];
    cpu::Target& target = targets[i];
    target.operands = {t.param, t.grad, t.state_sum, nullptr, nullptr};
    target.numel = t.numel;
    cpu::check_operands("adagrad", target, i, 3);
    cpu::StepConstants& c = target.constants;
    c.sign = options.maximize ? -1 : 1;
    c.grad_divisor = cpu::divisor(options.scaling);
    c.weight_decay = options.weight_decay;
    c.step_size = options.lr / (1 + (t.step - 1) * options.lr_decay);
    c.eps = options.eps;
  }
  cpu::run_steps(targets, 3, cpu::StepRule::kAdagrad, dtype, options.max_threads);
}

}  // namespace hologram
