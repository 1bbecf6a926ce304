// SPDX-License-Identifier: MIT
// Convolutions of 3 x 3 weights with fewer multiplications.
#pragma once

#include <optional>

#include "hologram/call.h"
#include "src/cpu/conv/convolution.h"

namespace hologram::cpu {

// What convolve() does, where this way is open and pays; elsewhere nothing is done and there is no
// answer. It is open to weights of 3 x 3 and steps of 1 over planes. A result depends on the places
// that its definition names and on no others; where an infinity is among them, it may be NaN. Its
// error is some roundings of the sum over channels of the largest input times the sum of the
// weights' sizes.
template <class T>
std::optional<bool> winograd(const ConvolutionArgs& args, const T* x, const T* w, const T* bias,
                             T* y, const CallEpilogue* epilogue);

}  // namespace hologram::cpu
