// SPDX-License-Identifier: MIT
// The calls of norms: from the operands of a call to the kernels.
#include "hologram/call_frame.h"
#include "src/cpu/device/dense_view.h"
#include "src/cpu/norm/norm.h"

namespace hologram::cpu {

void run_layer_norm(CallFrame& call) {
  const View in = call.view(), weight = call.view(), bias = call.view();
  const View out = call.view(), mean = call.view(), rstd = call.view();
  const auto axes = static_cast<int>(call.integer());
  const int64_t n = elements_of(in, in.ndim - axes, in.ndim), rows = in.numel() / n;
  hologram::layer_norm(DenseView(in, rows, n), DenseView(weight, n), DenseView(bias, n),
                       call.number(), DenseView(out, rows, n), DenseView(mean, rows),
                       DenseView(rstd, rows), call.threads(in.numel()));
}

void run_layer_norm_backward(CallFrame& call) {
  const View grad = call.view(), in = call.view(), mean = call.view(), rstd = call.view();
  const View weight = call.view(), grad_in = call.view(), grad_weight = call.view();
  const View grad_bias = call.view();
  const auto axes = static_cast<int>(call.integer());
  const int64_t n = elements_of(in, in.ndim - axes, in.ndim), rows = in.numel() / n;
  hologram::layer_norm_backward(DenseView(grad, rows, n), DenseView(in, rows, n),
                                DenseView(mean, rows), DenseView(rstd, rows), DenseView(weight, n),
                                DenseView(grad_in, rows, n), DenseView(grad_weight, n),
                                DenseView(grad_bias, n), call.threads(in.numel()));
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

void run_batch_norm(CallFrame& call) {
  const View in = call.view(), weight = call.view(), bias = call.view();
  const View running_mean = call.view(), running_var = call.view(), out = call.view();
  const View save_mean = call.view(), save_invstd = call.view();
  BatchNormOptions options;
  options.weight = if_given(weight), options.bias = if_given(bias);
  options.running_mean = if_given(running_mean), options.running_var = if_given(running_var);
  options.training = call.flag();
  options.momentum = call.number(), options.eps = call.number();
  options.max_threads = call.threads(in.numel());
  hologram::batch_norm(BatchView(in), BatchView(out), if_given(save_mean), if_given(save_invstd),
                       options);
}

void run_batch_norm_backward(CallFrame& call) {
  const View grad = call.view(), in = call.view(), weight = call.view();
  const View running_mean = call.view(), running_var = call.view();
  const View save_mean = call.view(), save_invstd = call.view();
  const View grad_in = call.view(), grad_weight = call.view(), grad_bias = call.view();
  BatchNormOptions options;
  options.weight = if_given(weight);
  options.running_mean = if_given(running_mean), options.running_var = if_given(running_var);
  options.training = call.flag();
  options.eps = call.number();
  options.max_threads = call.threads(in.numel());
  // An absent gradient has no shape of its own.
  const View grad_in_or_none =
      grad_in.data != nullptr ? grad_in : View{nullptr, in.dtype, in.ndim, in.shape, in.strides};
  hologram::batch_norm_backward(BatchView(grad), BatchView(in), if_given(save_mean),
                                if_given(save_invstd), BatchView(grad_in_or_none),
                                if_given(grad_weight), if_given(grad_bias), options);
}

}  // namespace hologram::cpu
