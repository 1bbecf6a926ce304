// SPDX-License-Identifier: MIT
// The inner loops of optimizer steps on contiguous float32 or float64.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"

namespace hologram::cpu {

enum class StepRule : uint8_t { kAdam, kSgd, kAdagrad };
inline constexpr int kStepRuleCount = 3;
// param, grad and up to three states.
inline constexpr int kStepOperands = 5;

// What a step needs besides its operands; a rule uses those it knows.
struct StepConstants {
  double sign = 1;          // -1 to maximize
  double grad_divisor = 0;  // grad is divided by it and stored, unless 0
  double weight_decay = 0;  // added to grad times param
  double shrink = 1;        // param is multiplied by it first (decoupled weight decay)
  double step_size = 0;
  double eps = 0;
  // Adam: beta1 and beta2; inverse of the square root of the second bias correction.
  double beta1 = 0, beta2 = 0, inverse_correction = 1;
  bool amsgrad = false;
  // SGD
  double momentum = 0, dampening = 0;
  bool nesterov = false, first = false;
};

using StepKernel = void (*)(void* const* operands, int64_t n, const StepConstants& constants);
StepKernel step_kernel(Isa isa, StepRule rule, Dtype dtype);

}  // namespace hologram::cpu
