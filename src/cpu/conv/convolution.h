// SPDX-License-Identifier: MIT
// Convolutions of one to three dimensions, forward and backward, without the unfolded input in
// memory.
#pragma once

#include <array>
#include <cstdint>

#include "hologram/call.h"
#include "hologram/dtype.h"
#include "src/cpu/device/call_table.h"

namespace hologram {

// Sizes and the like of depth, height and width; 1 (padding: 0) where there are fewer dimensions.
using ConvolutionSizes = std::array<int64_t, 3>;

// Steps in elements between images, channels, and along depth, height and width. Any are allowed
// for inputs; results must not overlap themselves. Widths of step 1 (what is read) and images whose
// channels are contiguous (what is written) are computed in place, others on a copy.
struct ConvolutionStrides {
  int64_t batch = 0, channel = 0;
  ConvolutionSizes size{};
};

// The geometry of y = x * w: x is batch x in_channels x in_size, y is batch x out_channels x
// out_size, w is out_channels x (in_channels / groups) x kernel. Output channel o sees the inputs
// of its group, o / (out_channels / groups):
//   y[n, o, i] = bias[o] + sum over c, t of w[o, c, t] x[n, c, i * stride - padding + t * dilation]
// where x is 0 outside its sizes. out_size may be less than what the sizes allow, then the last
// results are left out.
struct ConvolutionArgs {
  Dtype dtype = Dtype::kFloat32;  // or float64
  int64_t batch = 0, groups = 1;
  int64_t in_channels = 0, out_channels = 0;
  ConvolutionSizes in_size{1, 1, 1}, out_size{1, 1, 1}, kernel{1, 1, 1};
  ConvolutionSizes stride{1, 1, 1}, padding{}, dilation{1, 1, 1};
  ConvolutionStrides x_strides, y_strides;
  // w lies contiguous as out_channels x kernel x channels rather than out_channels x channels x
  // kernel.
  bool weight_channels_last = false;
  // w is that of the convolution whose input's gradient this one computes: in_channels x
  // (out_channels / groups) x kernel, each group's inputs among its own, the taps from last to
  // first.
  bool weight_turned = false;
  int max_threads = 0;  // 0: num_threads()
};

// All have the same bits for any number of threads. A result is a sum of products fused with their
// addition, in pieces of 256 that are added up in turn (depthwise convolutions: one piece), so its
// error is bounded by that of a sequential sum; some of 3 x 3 are computed as winograd.h says.
// Results are written whole, whatever they held, and overlap no operand.
//
// Error(kNotSupported) for other dtypes; Error(kInvalidArgument) for sizes below 0, kernels,
// strides and dilations below 1, channels that groups does not divide, out_size beyond what in_size
// gives, and operands that are null but have elements.

// y from x, w and bias (out_channels elements, or null).
void convolution(const ConvolutionArgs& args, const void* x, const void* w, const void* bias,
                 void* y);

// The same, and hands over each element of y once, in blocks of the rows of its images' channels,
// soon after they are computed. y is contiguous; null: blocks are there for as long as the epilogue
// runs. False, with nothing done, where the convolution is not computed in such blocks.
bool convolution_blocks(const ConvolutionArgs& args, const void* x, const void* w, const void* bias,
                        void* y, const CallEpilogue& epilogue);

// The gradient of x from that of y: grad_x[n, c, j] = bias[c] + the sum of w[o, c, t] grad_y[n, o,
// i] over all that see it. bias (in_channels elements) is null for a gradient; with it this is the
// transposed convolution, of which the forward convolution is the gradient.
void convolution_backward_input(const ConvolutionArgs& args, const void* grad_y, const void* w,
                                const void* bias, void* grad_x);

// The gradient of w, which lies as args says w does, from x and the gradient of y.
void convolution_backward_weight(const ConvolutionArgs& args, const void* x, const void* grad_y,
                                 void* grad_w);

namespace cpu {

// What follows the first two dimensions, as the last of three.
inline ConvolutionSizes places_of(const int64_t* list, int ndim, int64_t fill) {
  ConvolutionSizes result{fill, fill, fill};
  for (int d = 2; d < ndim; ++d) result[static_cast<size_t>(d + 3 - ndim)] = list[d];
  return result;
}

inline ConvolutionStrides convolution_strides(const View& view) {
  return {view.strides[0], view.strides[1], places_of(view.strides, view.ndim, 0)};
}

// Whether a dense weight lies in the order of channels last; of no weight that lies in both.
inline bool has_channels_last(const View& weight) {
  int64_t step = 1;
  for (int d = weight.ndim - 1; d >= 0; --d) {
    if (weight.shape[d] != 1 && weight.strides[d] != step) return true;
    step *= weight.shape[d];
  }
  return false;
}

// The kernels' arguments of a call; x, weight and y are the tensors of y = x * weight, whichever of
// them is being computed.
template <class Call>
ConvolutionArgs convolution_arguments(const Call& call, const View& x, const View& weight,
                                      const View& y, CallThreads threads) {
  ConvolutionArgs args;
  args.dtype = x.dtype;
  args.stride = last_of<3>(call.stride, 1), args.padding = last_of<3>(call.padding, 0);
  args.dilation = last_of<3>(call.dilation, 1);
  args.groups = call.groups;
  args.batch = x.shape[0];
  args.in_channels = x.shape[1], args.out_channels = y.shape[1];
  args.in_size = places_of(x.shape, x.ndim, 1), args.out_size = places_of(y.shape, y.ndim, 1);
  args.kernel = places_of(weight.shape, weight.ndim, 1);
  args.x_strides = convolution_strides(x), args.y_strides = convolution_strides(y);
  args.weight_channels_last = has_channels_last(weight);
  args.max_threads = threads.most();
  return args;
}

}  // namespace cpu
}  // namespace hologram
