// SPDX-License-Identifier: MIT
// Convolutions of 3 x 3 weights with fewer multiplications.
#pragma once

#include <optional>

#include "hologram/call.h"
#include "src/cpu/conv/convolution.h"

namespace hologram::cpu {

// What convolve() does, where this way is open and faster; nothing is done and there is no answer
// elsewhere. It is open to weights of 3 x 3 and steps of 1 over planes. A result depends on the
// places that its definition names and on no others. Its error is a few roundings of the largest of
// them times the sum of the weights' sizes, for each channel: where that of a sum of products is
// relative to the products themselves.
template <class T>
std::optional<bool> winograd(const ConvolutionArgs& args, const T* x, const T* w, const T* bias,
                             T* y, const CallEpilogue* epilogue);

}  // namespace hologram::cpu
