// SPDX-License-Identifier: MIT
// Refuses dtypes that tensors hold and no kernel computes with, where they would get to one.
#pragma once

#include "hologram/dtype.h"

namespace hologram {

// Throws Error(kTypeMismatch): what ops on tensors work around is none of the functions below them.
[[noreturn]] void refuse_stored_only(const char* function, Dtype dtype);

inline void check_has_kernels(const char* function, Dtype dtype) {
  if (is_stored_only(dtype)) [[unlikely]]
    refuse_stored_only(function, dtype);
}

}  // namespace hologram
