// SPDX-License-Identifier: MIT
// The calls of norms: from the operands of a call to the kernels.
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/dense_view.h"
#include "src/cpu/norm/norm.h"

namespace hologram::cpu {

void run(const calls::LayerNorm<>& call, CallThreads threads) {
  const View& in = call.input;
  const auto axes = static_cast<int>(call.axes);
  const int64_t n = elements_of(in, in.ndim - axes, in.ndim), rows = in.numel() / n;
  hologram::layer_norm(DenseView(in, rows, n), DenseView(call.weight, n), DenseView(call.bias, n),
                       call.eps, DenseView(call.out, rows, n), DenseView(call.mean, rows),
                       DenseView(call.rstd, rows), threads(in.numel()));
}

void run(const calls::LayerNormBackward<>& call, CallThreads threads) {
  const View& in = call.input;
  const auto axes = static_cast<int>(call.axes);
  const int64_t n = elements_of(in, in.ndim - axes, in.ndim), rows = in.numel() / n;
  hologram::layer_norm_backward(
      DenseView(call.grad, rows, n), DenseView(in, rows, n), DenseView(call.mean, rows),
      DenseView(call.rstd, rows), DenseView(call.weight, n), DenseView(call.grad_input, rows, n),
      DenseView(call.grad_weight, n), DenseView(call.grad_bias, n), threads(in.numel()));
}

namespace {

// A dense [batch, channels, ...] as [batch, channels, size], whether its channels lie last or not.
class BatchView {
 public:
  explicit BatchView(const View& view)
      : sizes_{view.shape[0], view.shape[1], elements_of(view, 2, view.ndim)},
        view_{view.data, view.dtype, 3, sizes_, strides_} {
    const int64_t whole = sizes_[1] * sizes_[2];
    strides_[0] = whole, strides_[1] = sizes_[2], strides_[2] = 1;
    if (!is_row_major(view)) strides_[1] = 1, strides_[2] = sizes_[1];
  }
  BatchView(const BatchView&) = delete;
  BatchView& operator=(const BatchView&) = delete;

  operator const View&() const { return view_; }                                     // NOLINT
  operator const View*() const { return view_.data != nullptr ? &view_ : nullptr; }  // NOLINT

 private:
  static bool is_row_major(const View& view) {
    int64_t step = 1;
    for (int d = view.ndim - 1; d >= 0; --d) {
      if (view.shape[d] != 1 && view.strides[d] != step) return false;
      step *= view.shape[d];
    }
    return true;
  }

  int64_t sizes_[3], strides_[3];
  View view_;
};

}  // namespace

void run(const calls::BatchNorm<>& call, CallThreads threads) {
  BatchNormOptions options;
  options.weight = if_given(call.weight), options.bias = if_given(call.bias);
  options.running_mean = if_given(call.running_mean);
  options.running_var = if_given(call.running_var);
  options.training = call.training;
  options.momentum = call.momentum, options.eps = call.eps;
  options.max_threads = threads(call.input.numel());
  hologram::batch_norm(BatchView(call.input), BatchView(call.out), if_given(call.save_mean),
                       if_given(call.save_invstd), options);
}

void run(const calls::BatchNormBackward<>& call, CallThreads threads) {
  const View& in = call.input;
  BatchNormOptions options;
  options.weight = if_given(call.weight);
  options.running_mean = if_given(call.running_mean);
  options.running_var = if_given(call.running_var);
  options.training = call.training;
  options.eps = call.eps;
  options.max_threads = threads(in.numel());
  // An absent gradient has no shape of its own.
  const View grad_in = call.grad_input.has_data()
                           ? View(call.grad_input)
                           : View{nullptr, in.dtype, in.ndim, in.shape, in.strides};
  hologram::batch_norm_backward(BatchView(call.grad), BatchView(in), if_given(call.save_mean),
                                if_given(call.save_invstd), BatchView(grad_in),
                                if_given(call.grad_weight), if_given(call.grad_bias), options);
}

}  // namespace hologram::cpu
