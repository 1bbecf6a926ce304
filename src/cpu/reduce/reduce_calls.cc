// SPDX-License-Identifier: MIT
// The calls of reductions and softmax: from the operands of a call to the kernels.
#include <span>

#include "hologram/call_frame.h"
#include "hologram/reduction.h"
#include "hologram/softmax.h"

namespace hologram::cpu {
namespace {

constexpr int kMaskDims = 64;

// The dimensions whose bits are set; none: all of them, and results have one element, whatever
// their shape.
class MaskedDims {
 public:
  explicit MaskedDims(uint64_t mask) {
    for (int d = 0; d < kMaskDims; ++d) {
      if ((mask >> d & 1) != 0) dims_[count_++] = d;
    }
  }
  std::span<const int> span() const { return {dims_, count_}; }
  void settle(View& result) const {
    if (count_ == 0) result.ndim = 0;
  }

 private:
  int dims_[kMaskDims];
  size_t count_ = 0;
};

ReduceOptions reduce_options(CallFrame& call, const View& in) {
  ReduceOptions options;
  options.p = options.correction = call.number();
  options.max_threads = call.threads(in.numel());
  return options;
}

}  // namespace

void run_reduce(CallFrame& call) {
  const View in = call.view();
  View out = call.view();
  const auto op = static_cast<Reduction>(call.integer());
  const MaskedDims dims(static_cast<uint64_t>(call.integer()));
  dims.settle(out);
  hologram::reduce(op, in, dims.span(), out, reduce_options(call, in));
}

void run_reduce_with_index(CallFrame& call) {
  const View in = call.view(), values = call.view(), indices = call.view();
  const auto op = static_cast<Reduction>(call.integer());
  const auto dim = static_cast<int>(call.integer());
  ReduceOptions options;
  options.max_threads = call.threads(in.numel());
  hologram::reduce_with_index(op, in, dim, values, indices, options);
}

void run_reduce_with_mean(CallFrame& call) {
  const View in = call.view();
  View out = call.view(), mean = call.view();
  const auto op = static_cast<Reduction>(call.integer());
  const MaskedDims dims(static_cast<uint64_t>(call.integer()));
  dims.settle(out), dims.settle(mean);
  hologram::reduce_with_mean(op, in, dims.span(), out, mean, reduce_options(call, in));
}

void run_cumsum(CallFrame& call) {
  const View in = call.view(), out = call.view();
  hologram::cumsum(in, static_cast<int>(call.integer()), out, call.threads(in.numel()));
}

void run_softmax(CallFrame& call) {
  const View in = call.view(), out = call.view();
  const auto dim = static_cast<int>(call.integer());
  const bool logarithm = call.integer() == 1;
  (logarithm ? hologram::log_softmax : hologram::softmax)(in, dim, out, call.threads(in.numel()));
}

void run_softmax_backward(CallFrame& call) {
  const View grad = call.view(), output = call.view(), out = call.view();
  const auto dim = static_cast<int>(call.integer());
  const bool logarithm = call.integer() == 3;
  (logarithm ? hologram::log_softmax_backward : hologram::softmax_backward)(
      grad, output, dim, out, call.threads(grad.numel()));
}

}  // namespace hologram::cpu
