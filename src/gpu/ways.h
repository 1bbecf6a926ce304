// SPDX-License-Identifier: MIT
// How each call of the catalogue runs on a GPU.
#pragma once

#include "hologram/call_structs.h"

namespace hologram::gpu {

enum class Way {
  kKernel,  // a generated kernel of its own
  kRecipe,  // records on a tape of its own, which are planned as kernels
  kHost,    // the CPU's kernel on copies
};

// Of kinds that are no call of the catalogue: the host. Some dtypes, shapes and attributes of the
// others are the host's, too: complex numbers, and what the kernel or the recipe says.
constexpr Way way_of(CallNumber call) {
  switch (call) {
    case CallNumber::gemm:
    case CallNumber::matmul:
    case CallNumber::linear_int8:
    case CallNumber::uniform:
    case CallNumber::normal:
    case CallNumber::bernoulli:
    case CallNumber::integers:
    case CallNumber::dropout:
      return Way::kKernel;
    case CallNumber::reduce:
    case CallNumber::reduce_with_mean:
    case CallNumber::softmax:
    case CallNumber::softmax_backward:
    case CallNumber::layer_norm:
    case CallNumber::layer_norm_backward:
    case CallNumber::batch_norm:
    case CallNumber::batch_norm_backward:
    case CallNumber::group_norm:
    case CallNumber::group_norm_backward:
    case CallNumber::join:
    case CallNumber::place:
    case CallNumber::copy:
    case CallNumber::point_loss:
    case CallNumber::point_loss_backward:
    case CallNumber::elementwise:
    case CallNumber::dropout_backward:
    case CallNumber::adam:
    case CallNumber::sgd:
    case CallNumber::adagrad:
      return Way::kRecipe;
    default:
      return Way::kHost;
  }
}

}  // namespace hologram::gpu
