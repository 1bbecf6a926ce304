// SPDX-License-Identifier: MIT
// The gradient of a convolution's input: a convolution of the output's gradient with the weights
// turned around where the stride is 1, else a product whose results are added to what they came
// from.
#include <algorithm>
#include <vector>

#include "src/cpu/conv/channels_last.h"
#include "src/cpu/conv/convolution_work.h"
#include "src/cpu/gemm/pack_buffer.h"

namespace hologram {
namespace cpu {
namespace {

// Columns of a block, panels of a block, rows that a task computes of each block, and elements of
// the weights that it packs: all of it stays in L2.
constexpr int64_t kColumns = 256;
constexpr int64_t kRows = 192;
constexpr int64_t kWeights = int64_t{1} << 16;

// grad_x for dense images.
template <class T>
class Scattered {
 public:
  Scattered(const ConvolutionArgs& args, const T* grad_y, const T* w, const T* bias, T* grad_x)
      : a_(args),
        product_(gemm_kernel(current_isa(), T())),
        columns_(conv_kernel(current_isa(), T())),
        taps_(args),
        grad_(as_input(args)),
        grad_taps_(grad_),
        grad_y_(grad_y),
        w_(w),
        bias_(bias),
        grad_x_(grad_x),
        channels_(args.in_channels / args.groups),
        depth_(args.out_channels / args.groups),
        places_(volume(args.out_size)) {
    images_ = std::max<int64_t>(1, kColumns / std::max<int64_t>(1, places_));
    block_ = std::clamp<int64_t>(
        std::min(kRows / taps_.count(), kWeights / (taps_.count() * std::max<int64_t>(1, depth_))),
        1, channels_);
  }

  // A task computes a block of channels of some images. Which images are joined in panels, and with
  // that the order of additions, does not depend on how many tasks there are.
  void run() const {
    const int threads = threads_of(a_);
    const int64_t blocks = ceil_div(channels_, block_) * a_.groups;
    const int64_t units = ceil_div(a_.batch, images_);
    const int64_t work = a_.groups * channels_ * taps_.count() * (depth_ + 8) * a_.batch * places_;
    const int64_t wish = std::min<int64_t>(4 * threads, work / kTaskWork);
    const int64_t parts =
        threads <= 1 || wish <= 1 ? 1 : std::clamp<int64_t>(ceil_div(wish, blocks), 1, units);
    const int64_t per_group = ceil_div(channels_, block_);
    parallel_for(blocks * parts, wish <= 1 ? 1 : threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t block = task / parts, part = task % parts;
        const int64_t c0 = block % per_group * block_;
        channels(block / per_group, c0, std::min(channels_, c0 + block_), units * part / parts,
                 units * (part + 1) / parts);
      }
    });
  }

 private:
  // The gradient of y as the input of a convolution of one tap.
  static ConvolutionArgs as_input(const ConvolutionArgs& args) {
    ConvolutionArgs g = args;
    g.in_size = args.out_size, g.kernel = {1, 1, 1};
    g.stride = g.dilation = {1, 1, 1}, g.padding = {};
    g.x_strides = args.y_strides;
    g.x_strides.size[2] = 1;
    return g;
  }

  // Channels [c0, c1) of a group, of the images in units [u0, u1).
  void channels(int64_t group, int64_t c0, int64_t c1, int64_t u0, int64_t u1) const {
    const int64_t count = c1 - c0, taps = taps_.count(), rows = count * taps;
    T* const weights = conv_scratch().weights.get<T>(std::max<int64_t>(1, rows * depth_));
    // Of weights that lie channels last, the rows of each tap are a piece.
    const int64_t pieces = a_.weight_channels_last ? taps : 1, height = rows / pieces;
    const int64_t step = taps * channels_;
    for (int64_t o0 = 0; o0 < depth_; o0 += kPanelDepth) {
      const int64_t k = std::min(kPanelDepth, depth_ - o0);
      for (int64_t piece = 0; piece < pieces; ++piece) {
        const T* w = w_ + (group * depth_ + o0) * step +
                     (a_.weight_channels_last ? piece * channels_ + c0 : c0 * taps);
        product_.pack_a(w, 1, step, height, k, weights + o0 * rows + piece * height * k);
      }
    }
    const T* const bias = bias_ != nullptr ? bias_ + group * channels_ + c0 : nullptr;
    for (int64_t u = u0; u < u1; ++u) {
      const int64_t image = u * images_, images = std::min(images_, a_.batch - image);
      T* const to =
          grad_x_ + image * a_.x_strides.batch + (group * channels_ + c0) * a_.x_strides.channel;
      for (int64_t n = 0; n < images; ++n) {
        for (int64_t c = 0; c < count; ++c) {
          std::fill_n(to + n * a_.x_strides.batch + c * a_.x_strides.channel, volume(a_.in_size),
                      bias != nullptr ? bias[c] : T(0));
        }
      }
      const T* const from =
          grad_y_ + image * a_.y_strides.batch + group * depth_ * a_.y_strides.channel;
      for (int64_t q = 0; q < images * places_; q += kColumns) {
        columns(weights, pieces, height, count, from, q, std::min(kColumns, images * places_ - q),
                to);
      }
    }
  }

  // Adds what columns [q, q + n), counted over the images at `from`, give to the images at `to`.
  void columns(const T* weights, int64_t pieces, int64_t height, int64_t count, const T* from,
               int64_t q, int64_t n, T* to) const {
    ConvScratch& scratch = conv_scratch();
    ConvPanels<T>& sources = scratch.plans<T>(0);
    ConvPanels<T>& targets = scratch.plans<T>(1);
    const int64_t cols = product_.cols, panels = ceil_div(n, cols), rows = pieces * height;
    T* const packed = scratch.panels.get<T>(panels * cols * std::min(kPanelDepth, depth_));
    // Rows of results lie apart by no power of two, or they would meet in the same cache sets.
    const int64_t ld = panels * cols + cols / 2;
    T* const results = scratch.results.get<T>(rows * ld);
    sources.reset(grad_, grad_taps_, panels);
    targets.reset(a_, taps_, panels);
    for (int64_t j = 0; j < panels; ++j) {
      const int64_t here = std::min(cols, n - j * cols);
      sources.add(q + j * cols, here, cols / 2);
      targets.add(q + j * cols, here, cols / 2);
    }
    ConvSource<T> source;
    source.x = from;
    source.low = grad_y_;
    source.high = grad_y_ + (a_.batch - 1) * a_.y_strides.batch +
                  (a_.out_channels - 1) * a_.y_strides.channel + places_;
    source.channel = a_.y_strides.channel;
    source.channels = depth_, source.taps = 1;
    source.tap = grad_taps_.positions();
    for (int64_t o0 = 0; o0 < depth_; o0 += kPanelDepth) {
      const int64_t k = std::min(kPanelDepth, depth_ - o0);
      for (int64_t j = 0; j < panels; ++j) {
        columns_.pack(source, sources[j], o0, o0 + k, packed + j * cols * k, cols);
      }
      GemmPanel<T> g;
      g.m = height, g.k = k;
      g.packed = true;
      g.ldb = cols, g.ldc = ld;
      g.beta = o0 == 0 ? T(0) : T(1);
      for (int64_t piece = 0; piece < pieces; ++piece) {
        g.a = weights + o0 * rows + piece * height * k;
        for (int64_t j = 0; j < panels; ++j) {
          g.n = std::min(cols, n - j * cols);
          g.b = packed + j * cols * k;
          g.c = results + piece * height * ld + j * cols;
          product_.panel(g);
        }
      }
    }
    ConvSource<T> target;
    target.x = to;
    target.channel = a_.x_strides.channel;
    target.channels = count, target.taps = taps_.count();
    target.tap = taps_.positions();
    const bool last = a_.weight_channels_last;
    for (int64_t j = 0; j < panels && depth_ > 0; ++j) {
      columns_.unpack(target, targets[j], results + j * cols, last ? ld : target.taps * ld,
                      last ? count * ld : ld);
    }
  }

  const ConvolutionArgs& a_;
  const GemmKernel<T>& product_;
  const ConvKernel<T>& columns_;
  const ConvTaps taps_;
  const ConvolutionArgs grad_;
  const ConvTaps grad_taps_;
  const T* const grad_y_;
  const T* const w_;
  const T* const bias_;
  T* const grad_x_;
  const int64_t channels_, depth_, places_;  // of a group; of an image
  int64_t images_, block_;                   // of a unit; channels of a task
};

// The convolution of grad_y that gives grad_x where the stride is 1.
ConvolutionArgs turned_around(const ConvolutionArgs& args) {
  ConvolutionArgs back = args;
  back.in_channels = args.out_channels, back.out_channels = args.in_channels;
  back.in_size = args.out_size, back.out_size = args.in_size;
  back.x_strides = args.y_strides, back.y_strides = args.x_strides;
  for (size_t i = 0; i < 3; ++i) {
    back.padding[i] = args.dilation[i] * (args.kernel[i] - 1) - args.padding[i];
  }
  back.weight_turned = true;
  return back;
}

}  // namespace
}  // namespace cpu

void convolution_backward_input(const ConvolutionArgs& args, const void* grad_y, const void* w,
                                const void* bias, void* grad_x) {
  cpu::check_convolution(args);
  if (args.batch * args.in_channels * cpu::volume(args.in_size) == 0) return;
  const int64_t channels = args.out_channels * cpu::volume(args.out_size);
  if (grad_y == nullptr && channels > 0) cpu::fail_missing_operand("grad_y");
  if (w == nullptr && args.out_channels > 0) cpu::fail_missing_operand("w");
  if (grad_x == nullptr) cpu::fail_missing_operand("grad_x");
  cpu::for_dtype(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *const weights = static_cast<const T*>(w), *const terms = static_cast<const T*>(bias);
    const bool is_even = args.stride == ConvolutionSizes{1, 1, 1};
    if (is_even &&
        cpu::convolve_channels_last(cpu::turned_around(args), static_cast<const T*>(grad_y),
                                    weights, terms, static_cast<T*>(grad_x))) {
      return;
    }
    const cpu::ConvImages to{grad_x, false}, from{const_cast<void*>(grad_y), true};
    cpu::with_dense_images(args, to, from, [&](const ConvolutionArgs& dense, void* xs, void* ys) {
      const T* const g = static_cast<const T*>(ys);
      if (is_even) {
        cpu::convolve<T>(cpu::turned_around(dense), g, weights, terms, static_cast<T*>(xs));
      } else {
        cpu::Scattered<T>(dense, g, weights, terms, static_cast<T*>(xs)).run();
      }
    });
  });
}

void cpu::run(const calls::ConvolutionBackwardInput<>& call, CallThreads threads) {
  hologram::convolution_backward_input(
      convolution_arguments(call, call.grad_input, call.weight, call.grad, threads), call.grad.data,
      call.weight.data, call.bias.data, call.grad_input.data);
}

}  // namespace hologram
