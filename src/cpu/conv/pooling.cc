// SPDX-License-Identifier: MIT
// Max pooling along the columns that convolutions read.
#include "src/cpu/conv/pooling.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "hologram/error.h"
#include "src/cpu/conv/convolution_work.h"
#include "src/cpu/conv/plane_bands.h"

namespace hologram {
namespace cpu {
namespace {

// Elements of windows, or of results, that make a task.
constexpr int64_t kTaskReads = int64_t{1} << 17;

// The planes as images of one channel.
ConvolutionArgs images_of(const MaxPoolArgs& args) {
  ConvolutionArgs a;
  a.dtype = args.dtype;
  a.batch = args.planes;
  a.in_size = args.in_size, a.out_size = args.out_size, a.kernel = args.kernel;
  a.stride = args.stride, a.padding = args.padding, a.dilation = args.dilation;
  a.x_strides.batch = volume(args.in_size);
  a.x_strides.size = {args.in_size[1] * args.in_size[2], args.in_size[2], 1};
  return a;
}

void check(const MaxPoolArgs& a, bool has_operands) {
  if (a.dtype != Dtype::kFloat32 && a.dtype != Dtype::kFloat64) {
    fail(ErrorKind::kNotSupported, "max_pool is for float32 and float64, not ",
         dtype_name(a.dtype));
  }
  if (a.planes < 0) {
    fail(ErrorKind::kInvalidArgument, "max_pool: the number of planes is ", a.planes);
  }
  check_windows("max_pool", images_of(a));
  for (size_t i = 0; i < 3; ++i) {
    // Where the first window with a tap inside begins, and the last one.
    const int64_t reach = a.dilation[i] * (a.kernel[i] - 1);
    const int64_t last = (a.out_size[i] - 1) * a.stride[i] - a.padding[i];
    const bool gap = a.dilation[i] > std::max<int64_t>(1, a.in_size[i]) && a.kernel[i] > 1;
    if (a.out_size[i] > 0 &&
        (a.padding[i] > reach || last >= a.in_size[i] || gap || a.in_size[i] == 0)) {
      fail(ErrorKind::kInvalidArgument, "max_pool: dimension ", i, " has ", a.out_size[i],
           " windows of which some lie outside ", a.in_size[i], " elements: kernel ", a.kernel[i],
           ", stride ", a.stride[i], ", padding ", a.padding[i], ", dilation ", a.dilation[i]);
    }
  }
  if (!has_operands) {
    fail(ErrorKind::kInvalidArgument, "max_pool: an operand that has elements is null");
  }
}

// Of planes, without positions.
template <class T>
void largest_of_planes(const MaxPoolArgs& args, const T* x, T* y) {
  const ConvolutionArgs a = images_of(args);
  const DepthwiseKernel<T>& kernel = depthwise_kernel(current_isa(), T());
  const PlaneBands<T> cut(a);
  const int64_t places = volume(args.out_size), size = volume(args.in_size);
  const int64_t all = args.planes * cut.count();
  const int64_t reads = args.planes * places * volume(args.kernel);
  const int64_t chunk = std::clamp<int64_t>(kTaskReads * all / reads, 1, all);
  parallel_for(ceil_div(all, chunk), threads_of(args.max_threads),
               [&](int64_t begin, int64_t end, int) {
                 cut.run(
                     begin * chunk, std::min(all, end * chunk), -std::numeric_limits<T>::infinity(),
                     [&](int64_t plane) { return x + plane * size; },
                     [&](int64_t, int64_t plane, int64_t first, DepthwiseBand<T>& band) {
                       band.y = y + plane * places + first * band.width;
                       kernel.largest(band);
                     });
               });
}

template <class T>
void forward(const MaxPoolArgs& args, const T* x, T* y, int64_t* positions) {
  const ConvolutionArgs a = images_of(args);
  if (positions == nullptr && is_flat(a)) return largest_of_planes(args, x, y);
  const ConvTaps taps(a);
  const ConvKernel<T>& kernel = conv_kernel(current_isa(), T());
  const int64_t cols = gemm_kernel(current_isa(), T()).cols;
  const int64_t places = volume(args.out_size), size = volume(args.in_size);
  const int64_t panels = ceil_div(places, cols), blocks = ceil_div(panels, kConvPanels);
  const int64_t reads = places * taps.count();
  const int64_t chunk = std::clamp<int64_t>(kTaskReads * blocks / reads, 1, args.planes);
  const int64_t chunks = ceil_div(args.planes, chunk);
  parallel_for(chunks * blocks, threads_of(args.max_threads), [&](int64_t begin, int64_t end, int) {
    ConvPanels<T>& plan = conv_scratch().plans<T>(0);
    ConvSource<T> source;
    source.low = x, source.high = x + args.planes * size;
    source.taps = taps.count();
    source.tap = taps.positions();
    for (int64_t task = begin; task < end; ++task) {
      const int64_t block = task / chunks, first = task % chunks * chunk;
      const int64_t f0 = panels * block / blocks, f1 = panels * (block + 1) / blocks;
      plan.reset(a, taps, f1 - f0);
      for (int64_t f = f0; f < f1; ++f) {
        plan.add(f * cols, std::min(cols, places - f * cols), cols / 2);
      }
      for (int64_t i = first; i < std::min(args.planes, first + chunk); ++i) {
        source.x = x + i * size;
        for (int64_t f = f0; f < f1; ++f) {
          const int64_t at = i * places + f * cols;
          kernel.max_pool(source, plan[f - f0], std::min(cols, places - f * cols), y + at,
                          positions != nullptr ? positions + at : nullptr);
        }
      }
    }
  });
}

template <class T>
void backward(const MaxPoolArgs& args, const T* grad_y, const int64_t* positions, T* grad_x) {
  const int64_t places = volume(args.out_size), size = volume(args.in_size);
  const int64_t chunk =
      std::clamp<int64_t>(kTaskReads / 4 / std::max<int64_t>(1, size), 1, args.planes);
  std::atomic<bool> all_inside{true};
  parallel_for(ceil_div(args.planes, chunk), threads_of(args.max_threads),
               [&](int64_t begin, int64_t end, int) {
                 bool inside = true;
                 for (int64_t i = begin * chunk; i < std::min(args.planes, end * chunk); ++i) {
                   T* const to = grad_x + i * size;
                   std::fill_n(to, size, T(0));
                   for (int64_t j = i * places; j < (i + 1) * places; ++j) {
                     const int64_t position = positions[j];
                     if (position < 0 || position >= size) [[unlikely]] {
                       inside = false;
                     } else {
                       to[position] += grad_y[j];
                     }
                   }
                 }
                 if (!inside) all_inside.store(false, std::memory_order_relaxed);
               });
  if (!all_inside.load(std::memory_order_relaxed)) {
    fail(ErrorKind::kIndex, "max_pool_backward: a position is outside of the plane of ", size,
         " elements that was pooled; pass the positions that max_pool gave");
  }
}

}  // namespace
}  // namespace cpu

void max_pool(const MaxPoolArgs& args, const void* x, void* y, int64_t* positions) {
  const int64_t results = args.planes * cpu::volume(args.out_size);
  cpu::check(args, results <= 0 || (x != nullptr && y != nullptr));
  if (results == 0) return;
  cpu::for_dtype(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    cpu::forward(args, static_cast<const T*>(x), static_cast<T*>(y), positions);
  });
}

void max_pool_backward(const MaxPoolArgs& args, const void* grad_y, const int64_t* positions,
                       void* grad_x) {
  const int64_t results = args.planes * cpu::volume(args.out_size);
  const int64_t inputs = args.planes * cpu::volume(args.in_size);
  cpu::check(args, (results <= 0 || (grad_y != nullptr && positions != nullptr)) &&
                       (inputs <= 0 || grad_x != nullptr));
  if (inputs == 0) return;
  cpu::for_dtype(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    cpu::backward(args, static_cast<const T*>(grad_y), positions, static_cast<T*>(grad_x));
  });
}

namespace cpu {

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

}  // namespace cpu

}  // namespace hologram
