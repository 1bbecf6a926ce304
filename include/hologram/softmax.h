// SPDX-License-Identifier: MIT
// softmax and log_softmax along any dimension of strided host memory, forward and backward.
#pragma once

#include "hologram/api.h"
#include "hologram/view.h"

namespace hologram {

// All views have one shape and floating dtypes, which may differ (softmax of float16 into float32
// is PyTorch's dtype=). Computed in float64 where any of them is, else in float32; rounded once. A
// view that is written may coincide exactly with one that is read. dim may be negative; zero
// dimensions count as one of size 1. Errors: kIndex, kInvalidArgument (shapes), kNotSupported
// (dtypes).

HOLOGRAM_API void softmax(const View& in, int dim, const View& out, int max_threads = 0);
HOLOGRAM_API void log_softmax(const View& in, int dim, const View& out, int max_threads = 0);

// grad_in = output * (grad - sum(grad * output))
HOLOGRAM_API void softmax_backward(const View& grad, const View& output, int dim,
                                   const View& grad_in, int max_threads = 0);
// grad_in = grad - exp(output) * sum(grad)
HOLOGRAM_API void log_softmax_backward(const View& grad, const View& output, int dim,
                                       const View& grad_in, int max_threads = 0);

}  // namespace hologram
