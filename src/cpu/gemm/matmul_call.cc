// SPDX-License-Identifier: MIT
// The call of a matrix product of any strides: from the operands of a call to the kernel.
#include "hologram/call_frame.h"
#include "hologram/gemm.h"

namespace hologram::cpu {

void run_matmul(CallFrame& call) {
  const View a = call.view(), b = call.view(), out = call.view();
  hologram::matmul(a, b, out, 1.0, 0.0, call.threads());
}

}  // namespace hologram::cpu
