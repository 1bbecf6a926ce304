// SPDX-License-Identifier: MIT
// The calls of convolutions and pooling: from the operands of a call to the kernels.
#include "src/cpu/conv/convolution.h"
#include "src/cpu/conv/pooling.h"
#include "src/cpu/conv/resampling.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/dense_view.h"

namespace hologram::cpu {
namespace {

// What follows the first two dimensions, as the last of three.
ConvolutionSizes places_of(const int64_t* list, int ndim, int64_t fill) {
  ConvolutionSizes result{fill, fill, fill};
  for (int d = 2; d < ndim; ++d) result[static_cast<size_t>(d + 3 - ndim)] = list[d];
  return result;
}

ConvolutionStrides convolution_strides(const View& view) {
  return {view.strides[0], view.strides[1], places_of(view.strides, view.ndim, 0)};
}

// Whether a dense weight lies in the order of channels last; of no weight that lies in both.
bool has_channels_last(const View& weight) {
  int64_t step = 1;
  for (int d = weight.ndim - 1; d >= 0; --d) {
    if (weight.shape[d] != 1 && weight.strides[d] != step) return true;
    step *= weight.shape[d];
  }
  return false;
}

// x, weight and y are the tensors of y = x * weight, whichever of them is being computed.
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

}  // namespace

// The rows of the result are the channels of all images, its columns their places.
bool result_of(const calls::Convolution<>& call, CallResult& result) {
  const View& y = call.out;
  int64_t places = 1;
  for (int d = y.ndim - 1; d > 1; --d) {
    if (y.shape[d] != 1 && y.strides[d] != places) return false;
    places *= y.shape[d];
  }
  const int64_t channels = y.shape[1];
  if ((channels != 1 && y.strides[1] != places) ||
      (y.shape[0] != 1 && y.strides[0] != channels * places)) {
    return false;
  }
  result = {y.dtype, y.shape[0] * channels, places, channels, 3};
  return call.input.shape[1] > 0;
}

bool run_blocks(const calls::Convolution<>& call, CallThreads threads,
                const CallEpilogue& epilogue) {
  return convolution_blocks(convolution_arguments(call, call.input, call.weight, call.out, threads),
                            call.input.data, call.weight.data, call.bias.data, call.out.data,
                            epilogue);
}

void run(const calls::Convolution<>& call, CallThreads threads) {
  hologram::convolution(convolution_arguments(call, call.input, call.weight, call.out, threads),
                        call.input.data, call.weight.data, call.bias.data, call.out.data);
}

void run(const calls::ConvolutionBackwardInput<>& call, CallThreads threads) {
  hologram::convolution_backward_input(
      convolution_arguments(call, call.grad_input, call.weight, call.grad, threads), call.grad.data,
      call.weight.data, call.bias.data, call.grad_input.data);
}

void run(const calls::ConvolutionBackwardWeight<>& call, CallThreads threads) {
  hologram::convolution_backward_weight(
      convolution_arguments(call, call.input, call.grad_weight, call.grad, threads),
      call.input.data, call.grad.data, call.grad_weight.data);
}

namespace {

// `pooled` holds the windows' results, `in` has the planes that they look at.
template <class Call>
MaxPoolArgs pooling_arguments(const Call& call, const View& in, const View& pooled,
                              CallThreads threads) {
  MaxPoolArgs args;
  args.dtype = in.dtype;
  args.kernel = last_of<3>(call.kernel_size, 1), args.stride = last_of<3>(call.stride, 1);
  args.padding = last_of<3>(call.padding, 0), args.dilation = last_of<3>(call.dilation, 1);
  args.in_size = places_of(in.shape, in.ndim, 1);
  args.out_size = places_of(pooled.shape, pooled.ndim, 1);
  args.planes = in.shape[0] * in.shape[1];
  args.max_threads = threads(in.numel());
  return args;
}

}  // namespace

void run(const calls::MaxPool<>& call, CallThreads threads) {
  hologram::max_pool(pooling_arguments(call, call.input, call.out, threads), call.input.data,
                     call.out.data, static_cast<int64_t*>(call.positions.data));
}

void run(const calls::MaxPoolBackward<>& call, CallThreads threads) {
  hologram::max_pool_backward(pooling_arguments(call, call.grad_input, call.grad, threads),
                              call.grad.data, static_cast<const int64_t*>(call.positions.data),
                              call.grad_input.data);
}

void run(const calls::Resample<>& call, CallThreads threads) {
  const View &x = call.input, &y = call.out;
  ResamplingArgs args;
  args.kind = static_cast<Resampling>(call.kind);
  args.kernel = last_of<3>(call.kernel_size, 1), args.stride = last_of<3>(call.stride, 1);
  args.padding = last_of<3>(call.padding, 0);
  args.flag = call.flag;
  args.divisor = call.divisor;
  args.is_gradient = call.is_gradient;
  args.scales = {call.scale_depth, call.scale_height, call.scale_width};
  const View &in = args.is_gradient ? y : x, &out = args.is_gradient ? x : y;
  args.dtype = x.dtype;
  args.batch = x.shape[0], args.channels = x.shape[1];
  args.in_size = places_of(in.shape, in.ndim, 1), args.out_size = places_of(out.shape, out.ndim, 1);
  args.in_strides = convolution_strides(in), args.out_strides = convolution_strides(out);
  args.max_threads = threads(in.numel() + out.numel());
  hologram::resample(args, x.data, y.data);
}

}  // namespace hologram::cpu
