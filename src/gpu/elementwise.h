// SPDX-License-Identifier: MIT
// Kernels of elementwise instructions: a work item computes one element of the domain.
#pragma once

#include "src/gpu/kernel_text.h"

namespace hologram::gpu {

// What kernel_text() gives for a kernel of ops and conversions that the device has.
KernelText elementwise_text(const circuit::Kernel& kernel, const Traits& traits);

}  // namespace hologram::gpu
