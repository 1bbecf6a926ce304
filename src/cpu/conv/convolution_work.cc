// SPDX-License-Identifier: MIT
// Sizes and checks of convolutions, and copies of tensors that are not contiguous.
#include "src/cpu/conv/convolution_work.h"

#include <limits>
#include <memory>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "src/cpu/gemm/pack_buffer.h"
#include "src/cpu/movement/transpose.h"

namespace hologram::cpu {
namespace {

// Images are copied as many at a time as fit these bytes; a larger buffer, for one, is not kept.
constexpr int64_t kCopyBytes = int64_t{8} << 20;

ConvolutionStrides dense_strides(int64_t channels, const ConvolutionSizes& size) {
  const int64_t n = volume(size);
  return {channels * n, n, {size[1] * size[2], size[2], 1}};
}

struct Images {
  Dtype dtype;
  int64_t channels;
  ConvolutionSizes size;

  void copy(const void* from, const ConvolutionStrides& from_strides, void* to,
            const ConvolutionStrides& to_strides, int64_t batch, int threads) const {
    const int64_t shape[] = {batch, channels, size[0], size[1], size[2]};
    const auto view = [&](void* data, const int64_t* strides) {
      return View{data, dtype, 5, shape, strides};
    };
    const auto list = [](const ConvolutionStrides& s) {
      return std::array<int64_t, 5>{s.batch, s.channel, s.size[0], s.size[1], s.size[2]};
    };
    const auto from_list = list(from_strides), to_list = list(to_strides);
    hologram::copy(view(const_cast<void*>(from), from_list.data()), view(to, to_list.data()),
                   threads);
  }
};

bool is_packed(const ConvolutionStrides& s, const ConvolutionSizes& size) {
  return (size[2] == 1 || s.size[2] == 1) && (size[1] == 1 || s.size[1] == size[2]) &&
         (size[0] == 1 || s.size[0] == size[1] * size[2]);
}

// Rows of `outputs` output channels, `row` apart, get the taps of an input channel, which lie side
// by side for each output channel, in reverse.
template <int64_t kTaps, class T>
void turn_taps(const T* from, int64_t outputs, int64_t taps, T* to, int64_t row) {
  if constexpr (kTaps > 0) taps = kTaps;
  for (int64_t o = 0; o < outputs; ++o, from += taps, to += row) {
    for (int64_t t = 0; t < taps; ++t) to[t] = from[taps - 1 - t];
  }
}

}  // namespace

ConvScratch& conv_scratch() {
  static thread_local std::unique_ptr<ConvScratch> kept;
  if (kept == nullptr) kept = std::make_unique<ConvScratch>();
  return *kept;
}

void fail_missing_operand(const char* which) {
  fail(ErrorKind::kInvalidArgument, "convolution: ", which, " has elements but is null");
}

void check_convolution(const ConvolutionArgs& a) {
  if (a.dtype != Dtype::kFloat32 && a.dtype != Dtype::kFloat64) {
    fail(ErrorKind::kNotSupported, "convolution is for float32 and float64, not ",
         dtype_name(a.dtype));
  }
  if (std::min({a.batch, a.in_channels, a.out_channels}) < 0) {
    fail(ErrorKind::kInvalidArgument, "convolution: a size is negative: batch ", a.batch,
         ", channels ", a.in_channels, " and ", a.out_channels);
  }
  if (a.groups < 1 || a.in_channels % a.groups != 0 || a.out_channels % a.groups != 0) {
    fail(ErrorKind::kInvalidArgument, "convolution: ", a.groups, " groups do not divide ",
         a.in_channels, " and ", a.out_channels, " channels");
  }
  for (size_t i = 0; i < 3; ++i) {
    if (a.kernel[i] < 1 || a.stride[i] < 1 || a.dilation[i] < 1 || a.padding[i] < 0 ||
        a.in_size[i] < 0 || a.out_size[i] < 0) {
      fail(ErrorKind::kInvalidArgument, "convolution: dimension ", i, " has input ", a.in_size[i],
           ", output ", a.out_size[i], ", kernel ", a.kernel[i], ", stride ", a.stride[i],
           ", padding ", a.padding[i], ", dilation ", a.dilation[i],
           "; sizes and paddings must be at least 0, the others at least 1");
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    const int64_t room = a.in_size[i] + 2 * a.padding[i] - a.dilation[i] * (a.kernel[i] - 1) - 1;
    const int64_t most = room < 0 ? 0 : room / a.stride[i] + 1;
    if (a.out_size[i] > most) {
      fail(ErrorKind::kInvalidArgument, "convolution: dimension ", i, " gives ", most,
           " outputs, not ", a.out_size[i]);
    }
  }
}

ConvGrid choose_conv_grid(int64_t rows, int64_t tile_rows, int64_t panels, int64_t widest,
                          int64_t groups, int64_t work, double pack_cost, int threads) {
  const int64_t least = ceil_div(panels, widest);
  const int64_t wish = ceil_div(std::min<int64_t>(4 * threads, work / kTaskWork), groups);
  if (threads <= 1 || wish <= 1) return {1, least};
  // What reading a row's weights costs a task, in panels.
  constexpr double kReadRow = 0.5;
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  ConvGrid best{1, least};
  double best_cost = std::numeric_limits<double>::infinity();
  for (int64_t r = 1; r <= std::min(wish, ceil_div(rows, tile_rows)); ++r) {
    const int64_t most = std::clamp(ceil_div(wish, r), least, std::max(least, panels));
    for (int64_t c = most; c >= least; --c) {
      if (r * c * groups < threads) break;
      const double height = number(ceil_div(rows, r)), width = number(ceil_div(panels, c));
      const double task = width * (height + pack_cost) + kReadRow * height;
      const double cost = task * number(ceil_div(r * c * groups, threads));
      if (cost < best_cost) best = {r, c}, best_cost = cost;
    }
  }
  return best;
}

template <class T>
void turn_weights(const ConvolutionArgs& args, const T* w, int64_t group, int64_t o0, int64_t o1,
                  int64_t c0, int64_t c1, T* to, int64_t row) {
  const int64_t taps = volume(args.kernel), outputs = args.out_channels / args.groups;
  const int64_t inputs = args.in_channels / args.groups, step = outputs * taps;
  const T* const from = w + (group * inputs + c0) * step;
  if (taps == 1 || args.weight_channels_last) {
    const TransposeKernel<T> transpose = transpose_kernel(current_isa(), T());
    for (int64_t t = 0; t < taps; ++t) {
      transpose(from + (taps - 1 - t) * outputs + o0, step, c1 - c0, o1 - o0, to + t * (c1 - c0),
                row);
    }
    return;
  }
  for (int64_t c = 0; c < c1 - c0; ++c) {
    const auto turn = taps == 9 ? turn_taps<9, T> : turn_taps<0, T>;
    turn(from + c * step + o0 * taps, o1 - o0, taps, to + c * taps, row);
  }
}
template void turn_weights(const ConvolutionArgs&, const float*, int64_t, int64_t, int64_t, int64_t,
                           int64_t, float*, int64_t);
template void turn_weights(const ConvolutionArgs&, const double*, int64_t, int64_t, int64_t,
                           int64_t, int64_t, double*, int64_t);

void with_dense_images(const ConvolutionArgs& args, ConvImages x, ConvImages y,
                       const std::function<void(const ConvolutionArgs&, void*, void*)>& run) {
  const bool x_lies = x.reads ? has_columns(args) : is_packed(args.x_strides, args.in_size);
  const bool y_lies = is_packed(args.y_strides, args.out_size);
  if (x_lies && y_lies) return run(args, x.data, y.data);
  const int64_t item = static_cast<int64_t>(itemsize(args.dtype));
  const int threads = threads_of(args);
  const Images xs{args.dtype, args.in_channels, args.in_size};
  const Images ys{args.dtype, args.out_channels, args.out_size};
  const ConvolutionStrides x_dense = dense_strides(xs.channels, xs.size);
  const ConvolutionStrides y_dense = dense_strides(ys.channels, ys.size);
  const int64_t x_bytes = x_lies ? 0 : ceil_div(x_dense.batch * item, 64) * 64;
  const int64_t y_bytes = y_lies ? 0 : ceil_div(y_dense.batch * item, 64) * 64;
  const int64_t images = std::clamp<int64_t>(kCopyBytes / std::max<int64_t>(1, x_bytes + y_bytes),
                                             1, std::max<int64_t>(1, args.batch));
  PackBuffer passing;
  PackBuffer& buffer = images * (x_bytes + y_bytes) <= kCopyBytes ? conv_scratch().images : passing;
  char* const copies = buffer.get<char>(images * (x_bytes + y_bytes));
  ConvolutionArgs dense = args;
  if (!x_lies) dense.x_strides = x_dense;
  if (!y_lies) dense.y_strides = y_dense;
  for (int64_t n = 0; n < args.batch; n += images) {
    dense.batch = std::min(images, args.batch - n);
    char* const x_here = static_cast<char*>(x.data) + n * args.x_strides.batch * item;
    char* const y_here = static_cast<char*>(y.data) + n * args.y_strides.batch * item;
    char* const x_at = x_lies ? x_here : copies;
    char* const y_at = y_lies ? y_here : copies + images * x_bytes;
    if (!x_lies && x.reads) xs.copy(x_here, args.x_strides, x_at, x_dense, dense.batch, threads);
    if (!y_lies && y.reads) ys.copy(y_here, args.y_strides, y_at, y_dense, dense.batch, threads);
    run(dense, x_at, y_at);
    if (!x_lies && !x.reads) xs.copy(x_at, x_dense, x_here, args.x_strides, dense.batch, threads);
    if (!y_lies && !y.reads) ys.copy(y_at, y_dense, y_here, args.y_strides, dense.batch, threads);
  }
}

}  // namespace hologram::cpu
