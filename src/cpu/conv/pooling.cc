// SPDX-License-Identifier: MIT
// Max pooling of one to three dimensions along the columns that convolutions read.
#include <algorithm>
#include <atomic>
#include <limits>

#include "hologram/error.h"
#include "src/cpu/conv/convolution_work.h"
#include "src/cpu/conv/plane_bands.h"

namespace hologram::cpu {
namespace {

// Elements of windows, or of results, that make a task.
constexpr int64_t kTaskReads = int64_t{1} << 17;

// The planes of `in`, images times channels, as images of one channel. `pooled` has an element for
// each window; y[i] is the largest of x[i * stride - padding + t * dilation] over the taps t that
// are inside the plane, of which each window has one at least.
template <class Call>
ConvolutionArgs images_of(const Call& call, const View& in, const View& pooled,
                          CallThreads threads) {
  ConvolutionArgs a;
  a.dtype = in.dtype;
  a.batch = in.shape[0] * in.shape[1];
  a.kernel = last_of<3>(call.kernel_size, 1), a.stride = last_of<3>(call.stride, 1);
  a.padding = last_of<3>(call.padding, 0), a.dilation = last_of<3>(call.dilation, 1);
  a.in_size = places_of(in.shape, in.ndim, 1);
  a.out_size = places_of(pooled.shape, pooled.ndim, 1);
  a.x_strides.batch = volume(a.in_size);
  a.x_strides.size = {a.in_size[1] * a.in_size[2], a.in_size[2], 1};
  a.max_threads = threads(in.numel());
  return a;
}

// Of planes, without positions.
template <class T>
void largest_of_planes(const ConvolutionArgs& a, const T* x, T* y) {
  const DepthwiseKernel<T>& kernel = depthwise_kernel(current_isa(), T());
  const PlaneBands<T> cut(a);
  const int64_t places = volume(a.out_size), size = volume(a.in_size);
  const int64_t all = a.batch * cut.count();
  const int64_t reads = a.batch * places * volume(a.kernel);
  const int64_t chunk = std::clamp<int64_t>(kTaskReads * all / reads, 1, all);
  parallel_for(ceil_div(all, chunk), threads_of(a.max_threads),
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
void forward(const ConvolutionArgs& a, const T* x, T* y, int64_t* positions) {
  if (positions == nullptr && is_flat(a)) return largest_of_planes(a, x, y);
  const ConvTaps taps(a);
  const ConvKernel<T>& kernel = conv_kernel(current_isa(), T());
  const int64_t cols = gemm_kernel(current_isa(), T()).cols;
  const int64_t places = volume(a.out_size), size = volume(a.in_size);
  const int64_t panels = ceil_div(places, cols), blocks = ceil_div(panels, kConvPanels);
  const int64_t reads = places * taps.count();
  const int64_t chunk = std::clamp<int64_t>(kTaskReads * blocks / reads, 1, a.batch);
  const int64_t chunks = ceil_div(a.batch, chunk);
  parallel_for(chunks * blocks, threads_of(a.max_threads), [&](int64_t begin, int64_t end, int) {
    ConvPanels<T>& plan = conv_scratch().plans<T>(0);
    ConvSource<T> source;
    source.low = x, source.high = x + a.batch * size;
    source.taps = taps.count();
    source.tap = taps.positions();
    for (int64_t task = begin; task < end; ++task) {
      const int64_t block = task / chunks, first = task % chunks * chunk;
      const int64_t f0 = panels * block / blocks, f1 = panels * (block + 1) / blocks;
      plan.reset(a, taps, f1 - f0);
      for (int64_t f = f0; f < f1; ++f) {
        plan.add(f * cols, std::min(cols, places - f * cols), cols / 2);
      }
      for (int64_t i = first; i < std::min(a.batch, first + chunk); ++i) {
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
void backward(const ConvolutionArgs& a, const T* grad_y, const int64_t* positions, T* grad_x) {
  const int64_t places = volume(a.out_size), size = volume(a.in_size);
  const int64_t chunk =
      std::clamp<int64_t>(kTaskReads / 4 / std::max<int64_t>(1, size), 1, a.batch);
  std::atomic<bool> all_inside{true};
  parallel_for(ceil_div(a.batch, chunk), threads_of(a.max_threads),
               [&](int64_t begin, int64_t end, int) {
                 bool inside = true;
                 for (int64_t i = begin * chunk; i < std::min(a.batch, end * chunk); ++i) {
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

// The largest of each window and, where they are wanted, its position in the plane: the first among
// equals, or the last NaN if there is one.
void run(const calls::MaxPool<>& call, CallThreads threads) {
  if (call.out.numel() == 0) return;
  for_dtype(call.out.dtype, [&](auto zero) {
    using T = decltype(zero);
    forward(images_of(call, call.input, call.out, threads), static_cast<const T*>(call.input.data),
            static_cast<T*>(call.out.data), static_cast<int64_t*>(call.positions.data));
  });
}

// At each position the sum of the gradients of the windows that chose it.
void run(const calls::MaxPoolBackward<>& call, CallThreads threads) {
  if (call.grad_input.numel() == 0) return;
  for_dtype(call.grad_input.dtype, [&](auto zero) {
    using T = decltype(zero);
    backward(
        images_of(call, call.grad_input, call.grad, threads), static_cast<const T*>(call.grad.data),
        static_cast<const int64_t*>(call.positions.data), static_cast<T*>(call.grad_input.data));
  });
}

}  // namespace hologram::cpu
