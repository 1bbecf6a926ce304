// SPDX-License-Identifier: MIT
// The calls of random fills and dropout: from the operands of a call to the kernels.
#include "hologram/random.h"
#include "src/cpu/device/call_table.h"

namespace hologram::cpu {

void run(const calls::Uniform<>& call, CallThreads threads) {
  const View& self = call.self;
  fill_uniform({call.seed, call.offset}, call.low, call.high, self.dtype, self.data, self.numel(),
               threads(self.numel()));
}

void run(const calls::Normal<>& call, CallThreads threads) {
  const View& self = call.self;
  fill_normal({call.seed, call.offset}, call.mean, call.std, self.dtype, self.data, self.numel(),
              threads(self.numel()));
}

void run(const calls::Bernoulli<>& call, CallThreads threads) {
  const View& self = call.self;
  fill_bernoulli({call.seed, call.offset}, call.p, self.dtype, self.data, self.numel(),
                 threads(self.numel()));
}

void run(const calls::Integers<>& call, CallThreads threads) {
  const View& self = call.self;
  fill_integers({call.seed, call.offset}, static_cast<int64_t>(call.low), call.count, self.dtype,
                self.data, self.numel(), threads(self.numel()));
}

void run(const calls::Dropout<>& call, CallThreads threads) {
  const View& in = call.input;
  hologram::dropout({call.seed, call.offset}, 1 - call.p, 1 / (1 - call.p), in.dtype, in.data,
                    call.out.data, static_cast<uint8_t*>(call.mask.data), in.numel(),
                    threads(in.numel()));
}

void run(const calls::DropoutBackward<>& call, CallThreads threads) {
  const View& grad = call.grad;
  apply_dropout(grad.dtype, grad.data, static_cast<const uint8_t*>(call.mask.data), call.scale,
                call.grad_input.data, grad.numel(), threads(grad.numel()));
}

}  // namespace hologram::cpu
