// SPDX-License-Identifier: MIT
// What the passes of convolution share: sizes, checks, copies of tensors that lie otherwise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "hologram/cpu_info.h"
#include "hologram/parallel.h"
#include "src/cpu/conv/convolution.h"
#include "src/cpu/conv/convolution_columns.h"
#include "src/cpu/conv/convolution_kernels.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/blocking.h"
#include "src/cpu/gemm/gemm_kernels.h"
#include "src/cpu/gemm/pack_buffer.h"

namespace hologram::cpu {

inline int64_t volume(const ConvolutionSizes& sizes) { return sizes[0] * sizes[1] * sizes[2]; }

// Panels of a block.
inline constexpr int64_t kConvPanels = 16;
// Rows are packed where more panels than this read them.
inline constexpr int64_t kFewPanels = 8;

// Scratch of up to these bytes is kept from call to call.
inline constexpr int64_t kKeptBytes = int64_t{8} << 20;

inline int threads_of(const ConvolutionArgs& args) { return threads_of(args.max_threads); }

// Scratch that a thread keeps. Only a pointer to it is thread-local, because a library that is
// loaded late has little space for thread-local variables.
struct ConvScratch {
  PackBuffer panels, rows, results, columns;
  PackBuffer weights, filters, images;  // of the calling thread; other threads read them
  ConvPanels<float> float_plans[2];
  ConvPanels<double> double_plans[2];

  template <class T>
  ConvPanels<T>& plans(size_t i) {
    if constexpr (sizeof(T) == 4) {
      return float_plans[i];
    } else {
      return double_plans[i];
    }
  }
};
ConvScratch& conv_scratch();

// Columns that are left over when a vector of them is full and are computed without one, which
// takes a quarter or a third of another vector's time. Images of 7 x 7 have a column more than
// three vectors of 16.
inline constexpr int64_t kFewColumns = 2;

// What kernel.panel() does, where the rows of A lie along k at `rows`, g.row apart; g.a may be a
// packed copy. The bits of an element do not depend on which columns are left over.
template <class T>
void multiply_panel(const GemmKernel<T>& kernel, GemmPanel<T> g, const T* rows) {
  const int64_t lanes = kernel.cols / 2, rest = g.n % lanes;
  if (rest == 0 || rest > kFewColumns || g.m < lanes) return kernel.panel(g);
  GemmPanel<T> last = g;
  g.n -= rest;
  if (g.n > 0) kernel.panel(g);
  last.a = rows, last.packed = false;
  last.c += g.n, last.n = rest;
  // Each block of rows reads the columns again: side by side they stay in the first-level cache.
  T* const columns = conv_scratch().columns.template get<T>(g.k * rest + kernel.cols);
  for (int64_t p = 0; p < g.k; ++p) std::copy_n(g.b + p * g.ldb + g.n, rest, columns + p * rest);
  last.b = columns, last.ldb = rest;
  kernel.columns(last);
}

// Rows x columns of tasks.
struct ConvGrid {
  int64_t rows = 1, cols = 1;
};
// Cuts `rows` rows by `panels` panels, `work` multiplications in all, for `groups` products side by
// side. pack_cost: what making a panel costs, in rows.
ConvGrid choose_conv_grid(int64_t rows, int64_t tile_rows, int64_t panels, int64_t widest,
                          int64_t groups, int64_t work, double pack_cost, int threads);

// Throws where the arguments are wrong.
void check_convolution(const ConvolutionArgs& args);
[[noreturn]] void fail_missing_operand(const char* which);

// Whether the columns of x, which is read, have step 1.
inline bool has_columns(const ConvolutionArgs& args) {
  return args.in_size[2] <= 1 || args.x_strides.size[2] == 1;
}

// Whether output i reads place i alone.
inline bool reads_each_once(const ConvolutionArgs& args) {
  const ConvolutionSizes ones{1, 1, 1}, none{};
  return args.kernel == ones && args.stride == ones && args.padding == none &&
         args.in_size == args.out_size;
}

// Images as the products take them: x with columns of step 1, y with channels that are contiguous.
// Others are copied, some images at a time. `run` gets the arguments for these and the images.
struct ConvImages {
  void* data = nullptr;
  bool reads = false;  // by run, else written
};
void with_dense_images(const ConvolutionArgs& args, ConvImages x, ConvImages y,
                       const std::function<void(const ConvolutionArgs&, void*, void*)>& run);

// Of turned weights, those of output channels [o0, o1) of a group and its input channels [c0, c1),
// as they would lie if they were not turned: rows of output channels, `row` apart, in each the taps
// of a channel side by side, or, channels last, the channels of a tap.
template <class T>
void turn_weights(const ConvolutionArgs& args, const T* w, int64_t group, int64_t o0, int64_t o1,
                  int64_t c0, int64_t c1, T* to, int64_t row);

// y = w x + bias for images that lie as the products take them; paddings may be negative. Hands
// over blocks where there is an epilogue; then y is contiguous, and false means that nothing is
// done.
template <class T>
bool convolve(const ConvolutionArgs& args, const T* x, const T* w, const T* bias, T* y,
              const CallEpilogue* epilogue = nullptr);

// Calls f with a zero of the dtype, float32 or float64.
template <class F>
void for_dtype(Dtype dtype, F&& f) {
  dtype == Dtype::kFloat32 ? f(float()) : f(double());
}

}  // namespace hologram::cpu
