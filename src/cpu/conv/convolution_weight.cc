// SPDX-License-Identifier: MIT
// The gradients of a convolution's weights, a product over all places, and of its bias.
#include <algorithm>

#include "src/cpu/conv/convolution_work.h"
#include "src/cpu/gemm/pack_buffer.h"
#include "src/cpu/movement/transpose.h"

namespace hologram {
namespace cpu {
namespace {

// Places whose products are summed at a time.
constexpr int64_t kPlaces = 256;
// Output channels and rows of the unfolded input that a task has.
constexpr int64_t kOutputs = 256;
constexpr int64_t kMostRows = 1024;
// Rows of tasks that are cut for threads alone.
constexpr int64_t kLeastRows = 28;

// grad_w, transposed while it is summed: rows are channels and taps, columns output channels. It is
// added to what is there if `adds`.
template <class T>
class WeightGradient {
 public:
  WeightGradient(const ConvolutionArgs& args, const T* x, const T* grad_y, T* grad_w, bool adds)
      : a_(args),
        product_(gemm_kernel(current_isa(), T())),
        columns_(conv_kernel(current_isa(), T())),
        taps_(args),
        grad_y_(grad_y),
        grad_w_(grad_w),
        adds_(adds),
        x_(x),
        channels_(args.in_channels / args.groups),
        outputs_(args.out_channels / args.groups),
        rows_(channels_ * taps_.count()),
        places_(volume(args.out_size)) {
    images_ = std::max<int64_t>(1, kPlaces / std::max<int64_t>(1, places_));
    source_.low = x;
    source_.high =
        x + 1 + (a_.batch - 1) * a_.x_strides.batch + (a_.in_channels - 1) * a_.x_strides.channel;
    for (size_t i = 0; i < 3; ++i) source_.high += (a_.in_size[i] - 1) * a_.x_strides.size[i];
    source_.channel = a_.x_strides.channel;
    source_.channels = channels_, source_.taps = taps_.count();
    source_.tap = taps_.positions();
    source_.channels_last = a_.weight_channels_last;
  }

  void run() const {
    const int64_t work = a_.groups * rows_ * outputs_ * a_.batch * places_;
    const int64_t most = work / kTaskWork;
    const int threads = most <= 1 ? 1 : threads_of(a_);
    if (channels_ == 1 && outputs_ == 1) {
      // Enough channels in a task to make a thread worth its start.
      const int64_t chunk = std::clamp<int64_t>(
          ceil_div(kTaskWork / 8, std::max<int64_t>(1, rows_ * a_.batch * places_)), 1, a_.groups);
      parallel_for(ceil_div(a_.groups, chunk), threads_of(a_),
                   [&](int64_t begin, int64_t end, int) {
                     depthwise(begin * chunk, std::min(a_.groups, end * chunk));
                   });
      return;
    }
    const int64_t blocks = ceil_div(outputs_, kOutputs);
    int64_t parts = ceil_div(rows_, kMostRows);
    // As few parts as the threads need, because each packs the gradients of y again.
    const int64_t wish = std::min<int64_t>(threads, most);
    parts = std::max(parts, std::min(ceil_div(wish, blocks * a_.groups), rows_ / kLeastRows));
    parallel_for(a_.groups * blocks * parts, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t part = task % parts, block = task / parts % blocks;
        block_of(task / parts / blocks, rows_ * part / parts, rows_ * (part + 1) / parts,
                 outputs_ * block / blocks, outputs_ * (block + 1) / blocks);
      }
    });
  }

 private:
  // Rows [i0, i1) and columns [o0, o1) of a group.
  void block_of(int64_t group, int64_t i0, int64_t i1, int64_t o0, int64_t o1) const {
    const int64_t ld = o1 - o0;
    T* const results = conv_scratch().results.get<T>((i1 - i0) * ld);
    bool first = true;
    for (int64_t image = 0; image < a_.batch; image += images_) {
      const int64_t all = std::min(images_, a_.batch - image) * places_;
      for (int64_t q = 0; q < all; q += kPlaces, first = false) {
        add_places(group, i0, i1, o0, o1, image, q, std::min(kPlaces, all - q), results, first);
      }
    }
    T* const to = grad_w_ + (group * outputs_ + o0) * rows_ + i0;
    constexpr int64_t kSide = 64;
    const TransposeKernel<T> transpose = transpose_kernel(current_isa(), T());
    for (int64_t i = 0; i < i1 - i0; i += kSide) {
      if (!first && !adds_) {
        transpose(results + i * ld, ld, std::min(kSide, i1 - i0 - i), ld, to + i, rows_);
        continue;
      }
      for (int64_t o = 0; o < ld; ++o) {
        T* row = to + o * rows_;
        const int64_t end = std::min(i1 - i0, i + kSide);
        for (int64_t r = i; r < end; ++r) {
          const T value = first ? T(0) : results[r * ld + o];
          row[r] = adds_ ? row[r] + value : value;
        }
      }
    }
  }

  // Adds the products at places [q, q + n), counted over the images from `image` on.
  void add_places(int64_t group, int64_t i0, int64_t i1, int64_t o0, int64_t o1, int64_t image,
                  int64_t q, int64_t n, T* results, bool first) const {
    ConvScratch& scratch = conv_scratch();
    ConvPanels<T>& plan = scratch.plans<T>(0);
    const int64_t cols = product_.cols, outputs = o1 - o0, panels = ceil_div(outputs, cols);
    T* const packed = scratch.panels.get<T>(panels * cols * n);
    for (int64_t done = 0; done < n;) {
      const int64_t at = (q + done) % places_, count = std::min(places_ - at, n - done);
      const T* g = grad_y_ + (image + (q + done) / places_) * a_.y_strides.batch +
                   (group * outputs_ + o0) * a_.y_strides.channel + at;
      for (int64_t j = 0; j < panels; ++j) {
        product_.pack_b(g + j * cols * a_.y_strides.channel, 1, a_.y_strides.channel, count,
                        std::min(cols, outputs - j * cols), packed + (j * n + done) * cols);
      }
      done += count;
    }
    const int64_t pieces = ceil_div(n, cols);
    plan.reset(a_, taps_, pieces);
    for (int64_t j = 0; j < pieces; ++j) {
      plan.add(q + j * cols, std::min(cols, n - j * cols), cols / 2);
    }
    ConvSource<T> source = source_;
    source.x = x_ + image * a_.x_strides.batch + group * channels_ * a_.x_strides.channel;
    // Rows lie apart by no power of two, or they would meet in the same cache sets.
    const int64_t lda = pieces * cols + cols / 2, height = strip_height(i1 - i0, product_.rows);
    T* const rows = scratch.rows.get<T>(height * lda);
    for (int64_t i = i0; i < i1; i += height) {
      GemmPanel<T> g;
      g.m = std::min(height, i1 - i), g.k = n;
      for (int64_t j = 0; j < pieces; ++j) {
        columns_.pack(source, plan[j], i, i + g.m, rows + j * cols, lda);
      }
      g.a = rows, g.row = lda, g.col = 1;
      g.ldb = cols, g.ldc = outputs;
      g.beta = first ? T(0) : T(1);
      for (int64_t j = 0; j < panels; ++j) {
        g.n = std::min(cols, outputs - j * cols);
        g.b = packed + j * cols * n;
        g.c = results + (i - i0) * outputs + j * cols;
        product_.panel(g);
      }
    }
  }

  // An output channel reads one input channel: sums of vector lanes, added up at the end.
  void depthwise(int64_t c0, int64_t c1) const {
    ConvScratch& scratch = conv_scratch();
    ConvPanels<T>& plan = scratch.plans<T>(0);
    const int64_t cols = product_.cols, lanes = cols / 2, taps = taps_.count();
    const int64_t panels = ceil_div(places_, cols), count = c1 - c0;
    T* const sums = scratch.results.get<T>(count * taps * lanes);
    std::fill_n(sums, count * taps * lanes, T(0));
    ConvSource<T> source = source_;
    for (int64_t f0 = 0; f0 < panels; f0 += kConvPanels) {
      const int64_t f1 = std::min(panels, f0 + kConvPanels);
      plan.reset(a_, taps_, f1 - f0);
      for (int64_t f = f0; f < f1; ++f) {
        plan.add(f * cols, std::min(cols, places_ - f * cols), lanes);
      }
      for (int64_t n = 0; n < a_.batch; ++n) {
        for (int64_t c = c0; c < c1; ++c) {
          source.x = x_ + n * a_.x_strides.batch + c * a_.x_strides.channel;
          const T* g = grad_y_ + n * a_.y_strides.batch + c * a_.y_strides.channel;
          for (int64_t f = f0; f < f1; ++f) {
            columns_.depthwise_products(source, plan[f - f0], g + f * cols,
                                        std::min(cols, places_ - f * cols),
                                        sums + (c - c0) * taps * lanes);
          }
        }
      }
    }
    for (int64_t i = 0; i < count * taps; ++i) {
      T sum = T(0);
      for (int64_t l = 0; l < lanes; ++l) sum += sums[i * lanes + l];
      T& to = grad_w_[c0 * taps + i];
      to = adds_ ? to + sum : sum;
    }
  }

  const ConvolutionArgs& a_;
  const GemmKernel<T>& product_;
  const ConvKernel<T>& columns_;
  const ConvTaps taps_;
  const T* const grad_y_;
  T* const grad_w_;
  const bool adds_;
  const T* const x_;
  const int64_t channels_, outputs_, rows_, places_;  // of a group; of an image
  int64_t images_;                                    // whose places are counted on
  ConvSource<T> source_;
};

}  // namespace
}  // namespace cpu

void convolution_backward_weight(const ConvolutionArgs& args, const void* x, const void* grad_y,
                                 void* grad_w) {
  cpu::check_convolution(args);
  const int64_t count =
      args.out_channels * (args.in_channels / args.groups) * cpu::volume(args.kernel);
  if (count == 0) return;
  if (grad_w == nullptr) cpu::fail_missing_operand("grad_w");
  const bool is_empty = args.batch * cpu::volume(args.out_size) == 0;
  if (!is_empty && x == nullptr && cpu::volume(args.in_size) > 0) cpu::fail_missing_operand("x");
  if (!is_empty && grad_y == nullptr) cpu::fail_missing_operand("grad_y");
  cpu::for_dtype(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const to = static_cast<T*>(grad_w);
    if (is_empty) {
      std::fill_n(to, count, T(0));
      return;
    }
    bool adds = false;
    const cpu::ConvImages xs{const_cast<void*>(x), true}, ys{const_cast<void*>(grad_y), true};
    cpu::with_dense_images(args, xs, ys, [&](const ConvolutionArgs& dense, void* at, void* g) {
      cpu::WeightGradient<T>(dense, static_cast<const T*>(at), static_cast<const T*>(g), to, adds)
          .run();
      adds = true;
    });
  });
}

void cpu::run(const calls::ConvolutionBackwardWeight<>& call, CallThreads threads) {
  hologram::convolution_backward_weight(
      convolution_arguments(call, call.input, call.grad_weight, call.grad, threads),
      call.input.data, call.grad.data, call.grad_weight.data);
}

}  // namespace hologram
