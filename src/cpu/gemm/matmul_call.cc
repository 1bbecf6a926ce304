// SPDX-License-Identifier: MIT
// The call of a matrix product of any strides: from the operands of a call to the kernel.
#include "hologram/gemm.h"
#include "src/cpu/device/call_table.h"

namespace hologram::cpu {

void run(const calls::Matmul<>& call, CallThreads threads) {
  hologram::matmul(call.a, call.b, call.out, 1.0, 0.0, threads.most());
}

}  // namespace hologram::cpu
