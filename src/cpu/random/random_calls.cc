// SPDX-License-Identifier: MIT
// The calls of random fills and dropout: from the operands of a call to the kernels.
#include "hologram/call_frame.h"
#include "hologram/random.h"

namespace hologram::cpu {
namespace {

PhiloxStream stream_of(CallFrame& call) {
  const auto seed = call.number<uint64_t>();
  return {seed, call.number<uint64_t>()};
}

}  // namespace

void run_uniform(CallFrame& call) {
  const View self = call.view();
  const PhiloxStream stream = stream_of(call);
  const double low = call.number(), high = call.number();
  fill_uniform(stream, low, high, self.dtype, self.data, self.numel(), call.threads(self.numel()));
}

void run_normal(CallFrame& call) {
  const View self = call.view();
  const PhiloxStream stream = stream_of(call);
  const double mean = call.number(), std = call.number();
  fill_normal(stream, mean, std, self.dtype, self.data, self.numel(), call.threads(self.numel()));
}

void run_bernoulli(CallFrame& call) {
  const View self = call.view();
  const PhiloxStream stream = stream_of(call);
  fill_bernoulli(stream, call.number(), self.dtype, self.data, self.numel(),
                 call.threads(self.numel()));
}

void run_integers(CallFrame& call) {
  const View self = call.view();
  const PhiloxStream stream = stream_of(call);
  const auto low = call.number<int64_t>();
  const auto count = call.number<uint64_t>();
  fill_integers(stream, low, count, self.dtype, self.data, self.numel(),
                call.threads(self.numel()));
}

void run_dropout(CallFrame& call) {
  const View in = call.view(), out = call.view(), mask = call.view();
  const PhiloxStream stream = stream_of(call);
  const double p = call.number();
  hologram::dropout(stream, 1 - p, 1 / (1 - p), in.dtype, in.data, out.data,
                    static_cast<uint8_t*>(mask.data), in.numel(), call.threads(in.numel()));
}

void run_dropout_backward(CallFrame& call) {
  const View grad = call.view(), mask = call.view(), out = call.view();
  apply_dropout(grad.dtype, grad.data, static_cast<const uint8_t*>(mask.data), call.number(),
                out.data, grad.numel(), call.threads(grad.numel()));
}

}  // namespace hologram::cpu
