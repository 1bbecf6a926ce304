// SPDX-License-Identifier: MIT
// The calls of convolutions and pooling: from the operands of a call to the kernels.
#include "hologram/call_frame.h"
#include "src/cpu/conv/convolution.h"
#include "src/cpu/conv/pooling.h"
#include "src/cpu/conv/resampling.h"
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
ConvolutionArgs convolution_arguments(CallFrame& call, const View& x, const View& weight,
                                      const View& y) {
  ConvolutionArgs args;
  args.dtype = x.dtype;
  args.stride = call.integers<3>(1), args.padding = call.integers<3>(0);
  args.dilation = call.integers<3>(1);
  args.groups = call.integer();
  args.batch = x.shape[0];
  args.in_channels = x.shape[1], args.out_channels = y.shape[1];
  args.in_size = places_of(x.shape, x.ndim, 1), args.out_size = places_of(y.shape, y.ndim, 1);
  args.kernel = places_of(weight.shape, weight.ndim, 1);
  args.x_strides = convolution_strides(x), args.y_strides = convolution_strides(y);
  args.weight_channels_last = has_channels_last(weight);
  args.max_threads = call.threads();
  return args;
}

}  // namespace

// The rows of the result are the channels of all images, its columns their places.
bool convolution_result(const uint64_t* attributes, CallResult& result) {
  char* const no_memory[4] = {};
  CallFrame call({no_memory, attributes, nullptr, 1});
  const View x = call.view(), weight = call.view(), bias = call.view(), y = call.view();
  static_cast<void>(weight), static_cast<void>(bias);
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
  return x.shape[1] > 0;
}

bool run_convolution_blocks(const CallArguments& arguments, const CallEpilogue& epilogue) {
  CallFrame call(arguments);
  const View x = call.view(), weight = call.view(), bias = call.view(), y = call.view();
  return convolution_blocks(convolution_arguments(call, x, weight, y), x.data, weight.data,
                            bias.data, y.data, epilogue);
}

void run_convolution(CallFrame& call) {
  const View x = call.view(), weight = call.view(), bias = call.view(), y = call.view();
  hologram::convolution(convolution_arguments(call, x, weight, y), x.data, weight.data, bias.data,
                        y.data);
}

void run_convolution_backward_input(CallFrame& call) {
  const View grad = call.view(), weight = call.view(), bias = call.view(), x = call.view();
  hologram::convolution_backward_input(convolution_arguments(call, x, weight, grad), grad.data,
                                       weight.data, bias.data, x.data);
}

void run_convolution_backward_weight(CallFrame& call) {
  const View x = call.view(), grad = call.view(), weight = call.view();
  hologram::convolution_backward_weight(convolution_arguments(call, x, weight, grad), x.data,
                                        grad.data, weight.data);
}

namespace {

// `pooled` holds the windows' results, `in` has the planes that they look at.
MaxPoolArgs pooling_arguments(CallFrame& call, const View& in, const View& pooled) {
  MaxPoolArgs args;
  args.dtype = in.dtype;
  args.kernel = call.integers<3>(1), args.stride = call.integers<3>(1);
  args.padding = call.integers<3>(0), args.dilation = call.integers<3>(1);
  args.in_size = places_of(in.shape, in.ndim, 1);
  args.out_size = places_of(pooled.shape, pooled.ndim, 1);
  args.planes = in.shape[0] * in.shape[1];
  args.max_threads = call.threads(in.numel());
  return args;
}

}  // namespace

void run_max_pool(CallFrame& call) {
  const View in = call.view(), out = call.view(), positions = call.view();
  hologram::max_pool(pooling_arguments(call, in, out), in.data, out.data,
                     static_cast<int64_t*>(positions.data));
}

void run_max_pool_backward(CallFrame& call) {
  const View grad = call.view(), positions = call.view(), grad_in = call.view();
  hologram::max_pool_backward(pooling_arguments(call, grad_in, grad), grad.data,
                              static_cast<const int64_t*>(positions.data), grad_in.data);
}

void run_resample(CallFrame& call) {
  const View x = call.view(), y = call.view();
  ResamplingArgs args;
  args.kind = static_cast<Resampling>(call.integer());
  args.kernel = call.integers<3>(1), args.stride = call.integers<3>(1);
  args.padding = call.integers<3>(0);
  args.flag = call.flag();
  args.divisor = call.integer();
  args.is_gradient = call.flag();
  for (double& scale : args.scales) scale = call.number();
  const View &in = args.is_gradient ? y : x, &out = args.is_gradient ? x : y;
  args.dtype = x.dtype;
  args.batch = x.shape[0], args.channels = x.shape[1];
  args.in_size = places_of(in.shape, in.ndim, 1), args.out_size = places_of(out.shape, out.ndim, 1);
  args.in_strides = convolution_strides(in), args.out_strides = convolution_strides(out);
  args.max_threads = call.threads(in.numel() + out.numel());
  hologram::resample(args, x.data, y.data);
}

}  // namespace hologram::cpu
