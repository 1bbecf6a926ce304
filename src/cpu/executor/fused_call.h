// SPDX-License-Identifier: MIT
// Calls of a plan, and the instructions that run on blocks of their results.
#pragma once

#include <atomic>

#include "src/cpu/executor/frame.h"

namespace hologram::cpu {

// kernel.call with the kernel's instructions, of which there are some, behind it. The kernel must
// outlive it, and `grown`, which is set when it takes more memory.
std::shared_ptr<FusedCall> make_fused(const circuit::Kernel& kernel, const KernelCode& code,
                                      Isa isa, bool jit, std::atomic<bool>& grown);
// The same for a kernel with other sizes, with the programs that serve these.
std::shared_ptr<FusedCall> make_fused(const circuit::Kernel& kernel, const KernelCode& code,
                                      FusedCall& other, std::atomic<bool>& grown);
size_t fused_bytes(FusedCall& fused);

void run_call(const circuit::KernelCall& call, const circuit::Bindings& bindings, int max_threads);
void run_fused(FusedCall& fused, const circuit::Bindings& bindings, int max_threads);

}  // namespace hologram::cpu
