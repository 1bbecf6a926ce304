// SPDX-License-Identifier: MIT
// The calls of reductions and softmax: from the operands of a call to the kernels.
#include <span>

#include "hologram/reduction.h"
#include "hologram/softmax.h"
#include "src/cpu/device/call_table.h"

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
  View settled(View result) const {
    if (count_ == 0) result.ndim = 0;
    return result;
  }

 private:
  int dims_[kMaskDims];
  size_t count_ = 0;
};

template <class Call>
ReduceOptions reduce_options(const Call& call, CallThreads threads) {
  ReduceOptions options;
  options.p = options.correction = call.parameter;
  options.max_threads = threads(call.input.numel());
  return options;
}

}  // namespace

void run(const calls::Reduce<>& call, CallThreads threads) {
  const MaskedDims dims(static_cast<uint64_t>(call.dims));
  hologram::reduce(static_cast<Reduction>(call.op), call.input, dims.span(), dims.settled(call.out),
                   reduce_options(call, threads));
}

void run(const calls::ReduceWithIndex<>& call, CallThreads threads) {
  ReduceOptions options;
  options.max_threads = threads(call.input.numel());
  hologram::reduce_with_index(static_cast<Reduction>(call.op), call.input,
                              static_cast<int>(call.dim), call.out, call.indices, options);
}

void run(const calls::ReduceWithMean<>& call, CallThreads threads) {
  const MaskedDims dims(static_cast<uint64_t>(call.dims));
  hologram::reduce_with_mean(static_cast<Reduction>(call.op), call.input, dims.span(),
                             dims.settled(call.out), dims.settled(call.mean),
                             reduce_options(call, threads));
}

void run(const calls::Cumsum<>& call, CallThreads threads) {
  hologram::cumsum(call.input, static_cast<int>(call.dim), call.out, threads(call.input.numel()));
}

void run(const calls::Softmax<>& call, CallThreads threads) {
  (call.function == 1 ? hologram::log_softmax : hologram::softmax)(
      call.input, static_cast<int>(call.dim), call.out, threads(call.input.numel()));
}

void run(const calls::SoftmaxBackward<>& call, CallThreads threads) {
  (call.function == 3 ? hologram::log_softmax_backward : hologram::softmax_backward)(
      call.grad, call.output, static_cast<int>(call.dim), call.grad_input,
      threads(call.grad.numel()));
}

}  // namespace hologram::cpu
