// SPDX-License-Identifier: MIT
// Fused optimizer steps: all parameters of a group in one call, each element read and written once.
#pragma once

#include <cstdint>
#include <span>

#include "hologram/dtype.h"

namespace hologram {

// What torch.amp.GradScaler passes. A null pointer means "not given".
struct GradScaling {
  const float* scale = nullptr;      // grad is divided by it, and the quotient stored in grad
  const float* found_inf = nullptr;  // the whole call does nothing when it is not 0
};

// Every pointer has numel contiguous elements of the list's dtype; state may not overlap other
// state. Elements are independent, so results do not depend on the list or the thread count. The
// half types are computed in float32 and every state is rounded where it is stored.

struct AdamTensor {
  void* param = nullptr;
  void* grad = nullptr;  // written only with GradScaling::scale
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* max_exp_avg_sq = nullptr;  // amsgrad only
  int64_t numel = 0;
  double step = 1;  // counts this step: 1 at the first
};
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool amsgrad = false;
  bool maximize = false;
  bool decoupled_weight_decay = false;  // AdamW
  GradScaling scaling;
  int max_threads = 0;
};
void adam_step(std::span<const AdamTensor> tensors, Dtype dtype, const AdamOptions& options);

struct SgdTensor {
  void* param = nullptr;
  void* grad = nullptr;
  void* momentum_buffer = nullptr;  // with momentum only
  int64_t numel = 0;
};
struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  bool maximize = false;
  bool is_first_step = false;  // momentum_buffer is not read but becomes the gradient
  GradScaling scaling;
  int max_threads = 0;
};
void sgd_step(std::span<const SgdTensor> tensors, Dtype dtype, const SgdOptions& options);

struct AdagradTensor {
  void* param = nullptr;
  void* grad = nullptr;
  void* state_sum = nullptr;
  int64_t numel = 0;
  double step = 1;
};
struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0.0;
  double weight_decay = 0.0;
  double eps = 1e-10;
  bool maximize = false;
  GradScaling scaling;
  int max_threads = 0;
};
void adagrad_step(std::span<const AdagradTensor> tensors, Dtype dtype,
                  const AdagradOptions& options);

}  // namespace hologram
