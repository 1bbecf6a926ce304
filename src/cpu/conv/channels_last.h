// SPDX-License-Identifier: MIT
// Convolutions of images whose channels lie side by side, where they lie.
#pragma once

#include "src/cpu/conv/convolution.h"

namespace hologram::cpu {

// What convolve() does, where the channels of x and y have step 1: true, or false with nothing done
// where copies with contiguous channels are better or needed, as for a few outputs.
template <class T>
bool convolve_channels_last(const ConvolutionArgs& args, const T* x, const T* w, const T* bias,
                            T* y);

}  // namespace hologram::cpu
