// SPDX-License-Identifier: MIT
// What the norms share: which parameter dtypes PyTorch's cpu takes beside an input, and dense
// operands.
#pragma once

#include "ops/reduce/reduce.h"
#include "ops/shape/host_copy.h"
#include "recording/record_call.h"

namespace hologram_torch {

// The dtype of the given parameters, which must agree and be the input's or, beside a half input,
// float32; the input's where there is none. False for anything else.
inline bool param_type(at::ScalarType input,
                       std::initializer_list<const std::optional<at::Tensor>*> params,
                       at::ScalarType* type) {
  *type = input;
  bool first = true;
  for (const auto* param : params) {
    if (!is_given(*param)) continue;
    if (!is_dense(**param)) return false;
    const at::ScalarType own = (*param)->scalar_type();
    if (!first && own != *type) return false;
    *type = own;
    first = false;
  }
  return *type == input || (*type == at::kFloat && is_half_type(input));
}

// t itself, or its elements in row-major order.
inline at::Tensor dense_rows(const at::Tensor& t) {
  if (C10_LIKELY(t.is_contiguous())) return t;
  at::Tensor rows = new_empty(t, t.sizes());
  TORCH_INTERNAL_ASSERT(native_copy(rows, t));
  return rows;
}

// The same of a parameter that may be absent.
inline std::optional<at::Tensor> dense_param(const std::optional<at::Tensor>& t) {
  return is_given(t) ? dense_rows(*t) : t;
}

}  // namespace hologram_torch
