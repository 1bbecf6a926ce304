// SPDX-License-Identifier: MIT
// Arithmetic of integers that no kernel of the op table computes, on contiguous host memory.
#pragma once

#include <cstdint>

#include "hologram/api.h"
#include "hologram/dtype.h"
#include "hologram/op.h"

namespace hologram {

// out[i] = op(x[i], y[i]) for i in [0, n), contiguous, of a signed or unsigned integer dtype of any
// width, on the calling thread. out may be one of the inputs; otherwise they must not overlap. By
// zero: 0; shifts by a negative number or by all bits and more: 0, or -1 to the right of a negative
// number. pow to a negative exponent: the fraction rounded toward 0.
HOLOGRAM_API void integer_elements(IntegerOp op, Dtype dtype, const void* x, const void* y,
                                   void* out, int64_t n);

}  // namespace hologram
