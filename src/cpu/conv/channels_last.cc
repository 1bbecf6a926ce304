// SPDX-License-Identifier: MIT
// Convolution of images with channels last: rows of outputs times weights, where what the taps of a
// row read for one output lies side by side; the next output's is some channels further. Nothing is
// unfolded; rows are copied only to get their padding.
#include "src/cpu/conv/channels_last.h"

#include <algorithm>
#include <vector>

#include "src/cpu/conv/convolution_work.h"
#include "src/cpu/conv/depthwise_kernels.h"
#include "src/cpu/conv/winograd.h"

namespace hologram::cpu {
namespace {

// Outputs of a block, which share the packed weights while those are near.
constexpr int64_t kBlockPlaces = 256;
// Channels of a depthwise convolution whose rows stay in L1 while the next rows read them.
constexpr int64_t kNearChannels = 128;
// Rows of fewer outputs, or outputs of fewer channels, leave most of a register tile unused. Turned
// weights are packed without being transposed, which makes up for some of that.
constexpr int64_t kFewestPlaces = 6, kFewestPlacesTurned = 4, kFewestChannels = 8;

// A convolution that reads each place once is one long row of outputs.
ConvolutionArgs joined(const ConvolutionArgs& a) {
  if (!reads_each_once(a)) return a;
  ConvolutionArgs all = a;
  for (ConvolutionStrides* s : {&all.x_strides, &all.y_strides}) {
    int64_t step = s->size[2];
    for (size_t i = 3; i-- > 0;) {
      if (a.in_size[i] != 1 && s->size[i] != step) return a;
      step *= a.in_size[i];
    }
    if (a.batch != 1 && s->batch != step) return a;
  }
  all.batch = 1;
  all.in_size = all.out_size = {1, 1, a.batch * volume(a.in_size)};
  return all;
}

template <class T>
class ChannelsLast {
 public:
  ChannelsLast(const ConvolutionArgs& args, const T* x, const T* w, const T* bias, T* y)
      : a_(joined(args)),
        product_(gemm_kernel(current_isa(), T())),
        depthwise_(depthwise_kernel(current_isa(), T())),
        x_(x),
        w_(w),
        bias_(bias),
        y_(y),
        channels_(args.in_channels / args.groups),
        outputs_(args.out_channels / args.groups),
        is_depthwise_(channels_ == 1 && outputs_ == 1),
        // The taps of a row lie side by side, too.
        run_taps_(args.groups == 1 && args.dilation[2] == 1 ? args.kernel[2] : 1),
        depth_(channels_ * volume(args.kernel)),
        panels_(ceil_div(outputs_, product_.cols)),
        wide_(ceil_div(a_.out_size[2], kBlockPlaces)),
        high_(std::clamp<int64_t>(kBlockPlaces / std::max<int64_t>(1, a_.out_size[2]), 1,
                                  std::max<int64_t>(1, a_.out_size[1]))),
        // What lies beyond the rows of x is read from copies, and taps that are not side by side.
        is_copied_(a_.padding[2] > 0 || (run_taps_ > 1 && a_.x_strides.size[2] != a_.in_channels) ||
                   (a_.out_size[2] - 1) * a_.stride[2] + (a_.kernel[2] - 1) * a_.dilation[2] -
                           a_.padding[2] >=
                       a_.in_size[2]) {}

  bool suits() const {
    if (depth_ == 0) return false;
    if (is_depthwise_) return true;
    return outputs_ >= kFewestChannels && (a_.groups == 1 || channels_ >= kFewestChannels) &&
           a_.out_size[2] >= (a_.weight_turned ? kFewestPlacesTurned : kFewestPlaces);
  }

  void run() const {
    const int64_t work = a_.out_channels * depth_ * a_.batch * volume(a_.out_size);
    const int threads = work < 2 * kTaskWork ? 1 : threads_of(a_);
    PackBuffer passing;
    const int64_t count =
        is_depthwise_ ? depth_ * a_.groups : a_.groups * panels_ * depth_ * product_.cols;
    const bool keeps = count * static_cast<int64_t>(sizeof(T)) <= kKeptBytes;
    T* const weights = (keeps ? conv_scratch().filters : passing).template get<T>(count);
    if (is_depthwise_) {
      for (int64_t t = 0; t < depth_; ++t) {
        const int64_t tap = a_.weight_turned ? depth_ - 1 - t : t;
        for (int64_t c = 0; c < a_.groups; ++c) weights[t * a_.groups + c] = w_[c * depth_ + tap];
      }
    } else {
      parallel_for(a_.groups * panels_, threads, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) pack(i / panels_, i % panels_, weights);
      });
    }
    const int64_t high = ceil_div(a_.out_size[1], high_);
    const int64_t blocks = a_.batch * a_.out_size[0] * high * wide_;
    // Threads share a block, each some panels, where blocks do not keep all busy.
    const bool shared = !is_depthwise_ && blocks < 4 * threads && blocks % threads != 0;
    const int64_t shares = shared ? std::min<int64_t>(threads, a_.groups * panels_) : 1;
    parallel_for(blocks * shares, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        int64_t i = task / shares;
        Block b;
        const int64_t part = i % wide_, width = a_.out_size[2];
        b.w0 = width * part / wide_, b.count = width * (part + 1) / wide_ - b.w0;
        i /= wide_;
        b.h0 = i % high * high_, b.h1 = std::min(b.h0 + high_, a_.out_size[1]);
        i /= high;
        b.d = i % a_.out_size[0], b.image = i / a_.out_size[0];
        const int64_t share = task % shares, all = a_.groups * panels_;
        compute(b, weights, all * share / shares, all * (share + 1) / shares);
      }
    });
  }

 private:
  // Outputs [w0, w0 + count) of rows [h0, h1) at depth d of an image.
  struct Block {
    int64_t image, d, h0, h1, w0, count;
  };

  // Where the rows that a block reads begin: the place of its first output's first tap.
  struct Rows {
    const T* data = nullptr;
    int64_t first = 0;            // row of the input
    int64_t step = 0, depth = 0;  // from one to the next, from one tap in depth to the next
    const T* row(int64_t tap, int64_t h) const { return data + tap * depth + (h - first) * step; }
  };

  // Panel j of a group's weights: depth_ rows of product_.cols, in the order of taps and channels.
  void pack(int64_t group, int64_t j, T* to) const {
    const int64_t cols = product_.cols, taps = volume(a_.kernel);
    const int64_t first = j * cols, n = std::min(cols, outputs_ - first);
    T* panel = to + (group * panels_ + j) * depth_ * cols;
    if (a_.weight_turned) {
      const int64_t step = outputs_ * taps;
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t tap = taps - 1 - t;
        const T* const w = w_ + group * channels_ * step +
                           (a_.weight_channels_last ? tap * outputs_ + first : first * taps + tap);
        product_.pack_b(w, step, a_.weight_channels_last ? 1 : taps, channels_, n,
                        panel + t * channels_ * cols);
      }
      return;
    }
    const T* w = w_ + (group * outputs_ + first) * depth_;
    if (a_.weight_channels_last || taps == 1) {
      product_.pack_b(w, 1, depth_, depth_, n, panel);
      return;
    }
    for (int64_t t = 0; t < taps; ++t) {
      product_.pack_b(w + t, taps, depth_, channels_, n, panel + t * channels_ * cols);
    }
  }

  // The rows of input that a block reads, as they lie or copied with zeros beside them.
  Rows rows_of(const Block& b) const {
    const int64_t pixel = a_.x_strides.size[2], channels = a_.in_channels;
    const int64_t top = b.h0 * a_.stride[1] - a_.padding[1];
    const int64_t left = b.w0 * a_.stride[2] - a_.padding[2];
    const T* const image = x_ + b.image * a_.x_strides.batch;
    Rows rows;
    rows.first = top;
    const int64_t near = b.d * a_.stride[0] - a_.padding[0];
    if (!is_copied_) {
      rows.step = a_.x_strides.size[1], rows.depth = a_.dilation[0] * a_.x_strides.size[0];
      rows.data = image + near * a_.x_strides.size[0] + top * rows.step + left * pixel;
      return rows;
    }
    const int64_t height =
        (b.h1 - b.h0 - 1) * a_.stride[1] + (a_.kernel[1] - 1) * a_.dilation[1] + 1;
    const int64_t width = (b.count - 1) * a_.stride[2] + (a_.kernel[2] - 1) * a_.dilation[2] + 1;
    rows.step = width * channels, rows.depth = height * rows.step;
    T* const copy = conv_scratch().panels.get<T>(a_.kernel[0] * rows.depth);
    const int64_t from = std::clamp<int64_t>(-left, 0, width);
    const int64_t to = std::clamp<int64_t>(a_.in_size[2] - left, from, width);
    for (int64_t k = 0; k < a_.kernel[0]; ++k) {
      if (!is_inside(b, k)) continue;
      const int64_t d = near + k * a_.dilation[0];
      for (int64_t h = std::max<int64_t>(top, 0); h < std::min(top + height, a_.in_size[1]); ++h) {
        T* const row = copy + k * rows.depth + (h - top) * rows.step;
        const T* source =
            image + d * a_.x_strides.size[0] + h * a_.x_strides.size[1] + (left + from) * pixel;
        std::fill(row, row + from * channels, T(0));
        std::fill(row + to * channels, row + rows.step, T(0));
        if (pixel == channels) {
          std::copy_n(source, (to - from) * channels, row + from * channels);
          continue;
        }
        for (int64_t v = from; v < to; ++v, source += pixel) {
          std::copy_n(source, channels, row + v * channels);
        }
      }
    }
    rows.data = copy;
    return rows;
  }

  // Whether a tap in depth reads the image.
  bool is_inside(const Block& b, int64_t tap) const {
    const int64_t d = b.d * a_.stride[0] - a_.padding[0] + tap * a_.dilation[0];
    return d >= 0 && d < a_.in_size[0];
  }

  T* output(const Block& b, int64_t h) const {
    return y_ + b.image * a_.y_strides.batch + b.d * a_.y_strides.size[0] +
           h * a_.y_strides.size[1] + b.w0 * a_.y_strides.size[2];
  }

  // Panels [j0, j1), counted over all groups.
  void compute(const Block& b, const T* weights, int64_t j0, int64_t j1) const {
    if (is_depthwise_) return depthwise(b, weights);
    const Rows rows = rows_of(b);
    const int64_t cols = product_.cols, run = run_taps_ * channels_;
    const int64_t pixel = is_copied_ ? a_.in_channels : a_.x_strides.size[2];
    GemmPanel<T> g;
    g.m = b.count;
    g.row = a_.stride[2] * pixel, g.col = 1;
    g.ldb = cols, g.ldc = a_.y_strides.size[2];
    g.beta = T(1);
    for (int64_t j = j0; j < j1; ++j) {
      const int64_t group = j / panels_, first = j % panels_ * cols;
      g.n = std::min(cols, outputs_ - first);
      const T* const panel = weights + j * depth_ * cols;
      const int64_t o = group * outputs_ + first;
      for (int64_t h = b.h0; h < b.h1; ++h) begin(output(b, h) + o, o, b.count, g.n);
      // A piece of the weights stays in L1 while all rows read it.
      const int64_t runs = a_.kernel[2] / run_taps_;
      for (int64_t k = 0; k < a_.kernel[0] * a_.kernel[1] * runs; ++k) {
        const int64_t across = k % runs, tap = k / runs % a_.kernel[1];
        const int64_t depth = k / runs / a_.kernel[1];
        for (int64_t p = 0; p < run; p += kPanelDepth) {
          g.k = std::min(kPanelDepth, run - p);
          g.b = panel + (k * run + p) * cols;
          const int64_t at = across * a_.dilation[2] * pixel + group * channels_ + p;
          for (int64_t h = b.h0; h < b.h1; ++h) {
            const int64_t row = h * a_.stride[1] - a_.padding[1] + tap * a_.dilation[1];
            if (!is_inside(b, depth) || row < 0 || row >= a_.in_size[1]) continue;
            g.a = rows.row(depth, row) + at;
            g.c = output(b, h) + o;
            product_.panel(g);
          }
        }
      }
    }
  }

  // Sets n outputs of `count` places to the bias, to which the products are added.
  void begin(T* to, int64_t o, int64_t count, int64_t n) const {
    for (int64_t i = 0; i < count; ++i, to += a_.y_strides.size[2]) {
      if (bias_ != nullptr) {
        std::copy_n(bias_ + o, n, to);
      } else {
        std::fill_n(to, n, T(0));
      }
    }
  }

  // One weight for each tap and channel; outputs whose taps are not all inside come one by one.
  void depthwise(const Block& b, const T* weights) const {
    const int64_t last = b.w0 + b.count, reach = (a_.kernel[2] - 1) * a_.dilation[2];
    const int64_t inside = std::clamp(ceil_div(a_.padding[2], a_.stride[2]), b.w0, last);
    const int64_t room = a_.in_size[2] + a_.padding[2] - reach - 1;
    const int64_t outside = std::clamp(room < 0 ? inside : room / a_.stride[2] + 1, inside, last);
    const bool has_inside = outside > inside;
    const int64_t pieces = b.count - (has_inside ? outside - inside - 1 : 0);
    std::vector<const T*> taps, factors;  // the pieces point into these
    taps.reserve(static_cast<size_t>((b.h1 - b.h0) * pieces * depth_));
    factors.reserve(taps.capacity());
    std::vector<DepthwisePixels<T>> all;
    for (int64_t h = b.h0; h < b.h1; ++h) {
      for (int64_t w = b.w0; w < last;) {
        DepthwisePixels<T>& p = all.emplace_back();
        p.count = w == inside && has_inside ? outside - inside : 1;
        p.x = taps.data() + taps.size(), p.w = factors.data() + factors.size();
        add_taps(b, h, w, weights, taps, factors);
        p.taps = taps.data() + taps.size() - p.x;
        p.step = a_.stride[2] * a_.x_strides.size[2], p.y_step = a_.y_strides.size[2];
        p.bias = bias_;
        p.y = output(b, h) + (w - b.w0) * p.y_step;
        w += p.count;
      }
    }
    for (int64_t c = 0; c < a_.groups; c += kNearChannels) {
      for (DepthwisePixels<T>& p : all) {
        p.first = c, p.channels = std::min(kNearChannels, a_.groups - c);
        depthwise_.pixels(p);
      }
    }
  }

  // Adds what output (h, w) reads of the first channel, and its weights.
  void add_taps(const Block& b, int64_t h, int64_t w, const T* weights, std::vector<const T*>& taps,
                std::vector<const T*>& factors) const {
    const ConvolutionSizes& steps = a_.x_strides.size;
    const T* const image = x_ + b.image * a_.x_strides.batch;
    const int64_t near = b.d * a_.stride[0] - a_.padding[0];
    const int64_t top = h * a_.stride[1] - a_.padding[1];
    const int64_t left = w * a_.stride[2] - a_.padding[2];
    for (int64_t k = 0; k < a_.kernel[0]; ++k) {
      if (!is_inside(b, k)) continue;
      for (int64_t i = 0; i < a_.kernel[1]; ++i) {
        const int64_t row = top + i * a_.dilation[1];
        if (row < 0 || row >= a_.in_size[1]) continue;
        const T* const from = image + (near + k * a_.dilation[0]) * steps[0] + row * steps[1];
        for (int64_t j = 0; j < a_.kernel[2]; ++j) {
          const int64_t col = left + j * a_.dilation[2];
          if (col < 0 || col >= a_.in_size[2]) continue;
          taps.push_back(from + col * steps[2]);
          factors.push_back(weights + ((k * a_.kernel[1] + i) * a_.kernel[2] + j) * a_.groups);
        }
      }
    }
  }

  const ConvolutionArgs a_;
  const GemmKernel<T>& product_;
  const DepthwiseKernel<T>& depthwise_;
  const T* const x_;
  const T* const w_;
  const T* const bias_;
  T* const y_;
  const int64_t channels_, outputs_;  // of a group
  const bool is_depthwise_;
  const int64_t run_taps_, depth_, panels_;
  const int64_t wide_, high_;  // parts of a row, rows of a block
  const bool is_copied_;
};

}  // namespace

template <class T>
bool convolve_channels_last(const ConvolutionArgs& args, const T* x, const T* w, const T* bias,
                            T* y) {
  if (args.x_strides.channel != 1 || args.y_strides.channel != 1) return false;
  if (winograd<T>(args, x, w, bias, y, nullptr)) return true;
  const ChannelsLast<T> way(args, x, w, bias, y);
  if (!way.suits()) return false;
  way.run();
  return true;
}
template bool convolve_channels_last(const ConvolutionArgs&, const float*, const float*,
                                     const float*, float*);
template bool convolve_channels_last(const ConvolutionArgs&, const double*, const double*,
                                     const double*, double*);

}  // namespace hologram::cpu
