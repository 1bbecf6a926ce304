// SPDX-License-Identifier: MIT
// The fallback: any op with a CPU kernel, run on the very bytes of hologram tensors.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace hologram_torch {

// Boxed kernel for an op of the dense (sparse, quantized, nested) keys of the device: runs the
// CPU's kernel of the same kind on aliases and gives its results to the device.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Makes the fallback serve operators for which PyTorch has both a CPU kernel and a composite of
// smaller ops: without it the composite would win. Call it once, after all other registrations.
void register_fallback_over_composites();

// HOLOGRAM_FALLBACK: with 'error' a call that would fall back raises instead. Throws
// std::invalid_argument where it is anything but that, 'allow' or unset.
void read_fallback_setting();

// The same as a kernel to register under one op's name.
torch::CppFunction fallback_kernel();

}  // namespace hologram_torch
