// SPDX-License-Identifier: MIT
// Winograd's convolution F(2 x 2, 3 x 3): products of transformed weights and inputs, one for each
// of the 16 points of a tile, in blocks of tiles that stay in L2.
#include "src/cpu/conv/winograd.h"

#include <algorithm>
#include <limits>

#include "src/cpu/conv/convolution_work.h"
#include "src/cpu/conv/depthwise_kernels.h"
#include "src/cpu/conv/winograd_kernels.h"
#include "src/cpu/movement/transpose.h"

namespace hologram::cpu {
namespace {

constexpr int64_t kPoints = kWinogradPoints;
constexpr int64_t kTaps = 9;
// Bytes of a block's transformed inputs, and of the points of its results.
constexpr int64_t kInputBytes = int64_t{1} << 20;
constexpr int64_t kResultBytes = int64_t{256} << 10;
// Bytes of weights that are transformed just before they are used, where they are used once.
constexpr int64_t kWeightBytes = int64_t{256} << 10;
// Tiles of a block.
constexpr int64_t kMostTiles = 1024;
// What transforming costs, in multiplications by an input: of a point of a tile, of an input or
// output channel, once for each lane of its vectors and once for each tile; and of an input that is
// unfolded for the product which this replaces. As measured.
constexpr double kTilePoint = 8, kUnfolded = 12;
// The same of a point of a weight, and of one that a block reads from outside L2, in
// multiplications of vectors.
constexpr double kWeightPoint = 2, kReadPoint = 1;

// The tiles of an image.
struct Tiles {
  int64_t height, width;
  explicit Tiles(const ConvolutionArgs& args)
      : height(ceil_div(args.out_size[1], 2)), width(ceil_div(args.out_size[2], 2)) {}
};

// Images whose channels are rows of their own, or whose places have their channels side by side.
bool has_planes(const ConvolutionStrides& s, const ConvolutionSizes& size) {
  return size[2] == 1 || s.size[2] == 1;
}
bool has_pixels(const ConvolutionStrides& s, const ConvolutionSizes& size) {
  return s.channel == 1 && s.size[1] == s.size[2] * size[2];
}

// The same without gaps between the rows.
bool has_packed_planes(const ConvolutionStrides& s, const ConvolutionSizes& size) {
  return has_planes(s, size) && s.size[1] == size[2];
}

bool is_open_to(const ConvolutionArgs& a) {
  const ConvolutionSizes kernel{1, 3, 3}, ones{1, 1, 1};
  if (!has_planes(a.x_strides, a.in_size) && !has_pixels(a.x_strides, a.in_size)) return false;
  if (!has_packed_planes(a.y_strides, a.out_size) && !has_pixels(a.y_strides, a.out_size)) {
    return false;
  }
  return a.kernel == kernel && a.stride == ones && a.dilation == ones && a.padding[0] == 0 &&
         a.in_size[0] == 1 && a.out_size[0] == 1 && a.in_channels > 0;
}

template <class T>
class Winograd {
 public:
  Winograd(const ConvolutionArgs& args, const T* x, const T* w, const T* bias, T* y,
           const CallEpilogue* epilogue)
      : a_(args),
        product_(gemm_kernel(current_isa(), T())),
        rows_of_(depthwise_kernel(current_isa(), T())),
        transform_(winograd_kernel(current_isa(), T())),
        transpose_(transpose_kernel(current_isa(), T())),
        x_(x),
        w_(w),
        bias_(bias),
        y_(y),
        epilogue_(epilogue),
        channels_(args.in_channels / args.groups),
        outputs_(args.out_channels / args.groups),
        lanes_(product_.cols / 2),
        tiles_(args),
        rows_(args.batch * tiles_.height),
        turns_x_(!has_planes(args.x_strides, args.in_size)),
        turns_y_(!has_packed_planes(args.y_strides, args.out_size)),
        depth_(round_up(channels_) + lanes_) {
    const int64_t size = static_cast<int64_t>(sizeof(T));
    block_ = best_rows(std::min(kMostTiles, kInputBytes / (kPoints * channels_ * size)));
    points_ = round_up(block_ * tiles_.width) + lanes_;
    if (points_ / lanes_ % 2 == 0) points_ += lanes_;  // no power of two
    is_one_block_ = block_ >= rows_;
    int64_t strip = kResultBytes / (kPoints * points_ * size);
    if (is_one_block_) strip = std::min(strip, kWeightBytes / (kPoints * depth_ * size));
    strips_ = ceil_div(outputs_, std::max(product_.rows, strip - strip % product_.rows));
    strip_ = ceil_div(outputs_, strips_);
    strips_ = ceil_div(outputs_, strip_);
  }

  // Whether the multiplications that are saved cost more than the transforms. The number of threads
  // does not matter.
  bool pays() const {
    if (kPoints * input_point() * static_cast<int64_t>(sizeof(T)) > kKeptBytes) return false;
    const auto number = [](int64_t n) { return static_cast<double>(n); };
    const double channels = number(channels_), outputs = number(outputs_);
    const double tiles = number(rows_ * tiles_.width);
    const double lanes = number(rows_ * round_up(tiles_.width));
    const double places = number(a_.batch * volume(a_.out_size));
    const double reads = is_one_block_ ? 0 : number(blocks());
    const double weight = number(lanes_) * (kWeightPoint + kReadPoint * reads);
    const double direct = kTaps * channels * places * (outputs + kUnfolded);
    return kPoints * (channels * outputs * (tiles + weight) +
                      (channels + outputs) * kTilePoint * (tiles + lanes)) <
           direct;
  }

  bool run() const {
    const int64_t work = a_.out_channels * channels_ * kPoints * rows_ * tiles_.width;
    const int threads = work < 2 * kTaskWork ? 1 : threads_of(a_);
    const bool whole = epilogue_ != nullptr && epilogue_->whole_rows;
    const int64_t height = whole || is_one_block_ ? block_ : even_rows(threads);
    const int64_t blocks = ceil_div(rows_, height), all = a_.groups * blocks;
    // Threads share a block, each some of its output channels, where blocks do not keep all busy.
    const bool shared = all < 4 * threads && all % threads != 0;
    const int64_t shares = shared ? std::min<int64_t>(threads, strips_) : 1;
    if (whole && (block_ < tiles_.height || block_ % tiles_.height != 0)) return false;
    PackBuffer passing;
    T* weights = nullptr;
    if (!is_one_block_) {
      const int64_t count = a_.groups * strips_ * weights_size();
      const bool keeps = count * static_cast<int64_t>(sizeof(T)) <= kKeptBytes;
      weights = (keeps ? conv_scratch().filters : passing).template get<T>(count);
      transform_all_weights(weights, threads);
    }
    parallel_for(all * shares, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t group = task / (blocks * shares), block = task / shares % blocks;
        const int64_t share = task % shares;
        compute(weights, group, block * height, std::min(rows_, (block + 1) * height),
                strips_ * share / shares, strips_ * (share + 1) / shares);
      }
    });
    return true;
  }

 private:
  int64_t blocks() const { return ceil_div(rows_, block_); }
  int64_t round_up(int64_t n) const { return ceil_div(n, lanes_) * lanes_; }

  // Rows of tiles that fill their vectors best, of about `most` tiles.
  int64_t best_rows(int64_t most) const {
    const int64_t last = std::clamp<int64_t>(std::max(most, lanes_) / tiles_.width, 1, rows_);
    int64_t best = 1, best_cost = 0;
    for (int64_t rows = 1; rows <= last; ++rows) {
      const int64_t tiles = rows * tiles_.width, rest = rows_ % rows * tiles_.width;
      // All blocks but the last, and the last; each also costs a vector.
      const int64_t cost = rows_ / rows * (round_up(tiles) + lanes_) + round_up(rest);
      if (rows == 1 || cost <= best_cost) best = rows, best_cost = cost;
    }
    return best;
  }

  // Rows of tiles of a block, no more than block_, with which threads end together.
  int64_t even_rows(int threads) const {
    int64_t best = block_, best_cost = std::numeric_limits<int64_t>::max();
    for (int64_t rows = block_; rows > 0; --rows) {
      const int64_t turns = ceil_div(a_.groups * ceil_div(rows_, rows), threads);
      // A block also costs a vector, and reading the weights costs about as much.
      const int64_t cost = turns * (round_up(rows * tiles_.width) + 2 * lanes_);
      if (cost < best_cost) best = rows, best_cost = cost;
    }
    return threads > 1 ? best : block_;
  }

  // What lies between the points of a channel. It is no multiple of 4096 bytes, or all 16 would
  // meet in the same sets of a cache.
  int64_t input_point() const { return channels_ * points_ + lanes_; }
  int64_t result_point() const { return strip_ * points_ + lanes_; }
  int64_t weight_point() const { return strip_ * depth_ + lanes_; }
  // Of the output channels of a strip.
  int64_t weights_size() const { return kPoints * weight_point(); }

  struct Strip {
    int64_t first, count;  // output channels of a group
  };
  Strip strip(int64_t i) const {
    const int64_t first = i * strip_;
    return {first, std::min(strip_, outputs_ - first)};
  }

  // For many blocks, once.
  void transform_all_weights(T* to, int threads) const {
    parallel_for(a_.groups * strips_, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        transform_weights(i / strips_, i % strips_, to + i * weights_size());
      }
    });
  }

  void transform_weights(int64_t group, int64_t s, T* to) const {
    const Strip here = strip(s);
    WinogradWeights<T> filters;
    filters.channels = channels_;
    filters.channel = a_.weight_channels_last ? 1 : kTaps;
    filters.tap = a_.weight_channels_last ? channels_ : 1;
    filters.point = weight_point();
    int64_t row = channels_ * kTaps;
    const T* rows = w_ + (group * outputs_ + here.first) * row;
    if (a_.weight_turned) {
      row += lanes_;  // no power of two
      T* const turned = conv_scratch().weights.template get<T>(here.count * row);
      turn_weights(a_, w_, group, here.first, here.first + here.count, 0, channels_, turned, row);
      rows = turned;
    }
    for (int64_t i = 0; i < here.count; ++i) {
      filters.w = rows + i * row;
      filters.to = to + i * depth_;
      transform_.weights(filters);
    }
  }

  // f(image, first row of tiles, rows of tiles, tiles before them) for each image of rows [r0, r1).
  template <class F>
  void for_images(int64_t r0, int64_t r1, F&& f) const {
    for (int64_t r = r0; r < r1;) {
      const int64_t first = r % tiles_.height, n = std::min(tiles_.height - first, r1 - r);
      f(r / tiles_.height, first, n, (r - r0) * tiles_.width);
      r += n;
    }
  }

  // Rows [r0, r1) of tiles, and the output channels of strips [s0, s1) of a group.
  void compute(const T* weights, int64_t group, int64_t r0, int64_t r1, int64_t s0,
               int64_t s1) const {
    ConvScratch& scratch = conv_scratch();
    // Point p of channel c begins at p * input_point() + c * points_; the last vectors of a panel
    // and of a row of tiles reach beyond.
    T* const inputs = scratch.panels.get<T>(kPoints * input_point() + product_.cols);
    transform_inputs(group, r0, r1, inputs);
    T* const results = scratch.results.get<T>(kPoints * result_point() + product_.cols);
    for (int64_t s = s0; s < s1; ++s) {
      const Strip here = strip(s);
      const T* from = nullptr;
      if (is_one_block_) {
        T* const own = scratch.filters.get<T>(weights_size());
        transform_weights(group, s, own);
        from = own;
      } else {
        from = weights + (group * strips_ + s) * weights_size();
      }
      multiply(from, inputs, (r1 - r0) * tiles_.width, here.count, results);
      transform_results(results, group * outputs_ + here.first, here.count, r0, r1);
    }
  }

  void transform_inputs(int64_t group, int64_t r0, int64_t r1, T* to) const {
    const int64_t length = tiles_.width + 1, pitch = 2 * length;
    for_images(r0, r1, [&](int64_t image, int64_t first, int64_t n, int64_t before) {
      const int64_t count = (2 * n + 2) * pitch + 2 * lanes_;
      T* const copy = conv_scratch().rows.get<T>(count);
      std::fill_n(copy, count, T(0));
      const int64_t top = 2 * first - a_.padding[1], bottom = top + 2 * n + 2;
      const int64_t from = std::max<int64_t>(top, 0), to_row = std::min(bottom, a_.in_size[1]);
      DepthwiseRows<T> inside{nullptr,
                              a_.x_strides.size[1],
                              std::max<int64_t>(to_row - from, 0),
                              a_.in_size[2],
                              2,
                              a_.padding[2],
                              length};
      WinogradInput<T> tiles;
      tiles.rows = copy, tiles.pitch = pitch, tiles.odd = length;
      tiles.height = n, tiles.width = tiles_.width;
      tiles.point = input_point();
      const T* x = x_ + image * a_.x_strides.batch + group * channels_ * a_.x_strides.channel;
      x += from * a_.x_strides.size[1];
      int64_t channel = a_.x_strides.channel;
      if (turns_x_ && inside.rows > 0) {
        channel = inside.rows * a_.in_size[2];
        T* const planes = conv_scratch().columns.template get<T>(channels_ * channel);
        transpose_(x, a_.x_strides.size[2], channel, channels_, planes, channel);
        x = planes;
        inside.step = a_.in_size[2];
      }
      for (int64_t c = 0; c < channels_; ++c, x += channel) {
        inside.x = x;
        rows_of_.spread(inside, copy + (from - top) * pitch, pitch);
        tiles.to = to + c * points_ + before;
        transform_.input(tiles);
      }
    });
  }

  // The products of `count` output channels and `tiles` tiles: point p of channel o begins at
  // p * result_point() + o * points_.
  void multiply(const T* weights, const T* inputs, int64_t tiles, int64_t count, T* to) const {
    GemmPanel<T> g;
    g.m = count;
    g.row = depth_, g.col = 1;
    g.ldb = g.ldc = points_;
    for (int64_t p = 0; p < kPoints; ++p) {
      for (int64_t c = 0; c < channels_; c += kPanelDepth) {
        g.k = std::min(kPanelDepth, channels_ - c);
        g.a = weights + p * weight_point() + c;
        g.beta = c == 0 ? T(0) : T(1);
        for (int64_t t = 0; t < tiles; t += product_.cols) {
          g.n = std::min(product_.cols, tiles - t);
          g.b = inputs + p * input_point() + c * points_ + t;
          g.c = to + p * result_point() + t;
          multiply_panel(product_, g, g.a);
        }
      }
    }
  }

  // Output channels [o, o + count) of all groups.
  void transform_results(const T* from, int64_t o, int64_t count, int64_t r0, int64_t r1) const {
    WinogradOutput<T> out;
    out.point = result_point();
    out.width = tiles_.width;
    out.cols = a_.out_size[2];
    for_images(r0, r1, [&](int64_t image, int64_t first, int64_t n, int64_t before) {
      out.height = n;
      out.rows = std::min(2 * n, a_.out_size[1] - 2 * first);
      const int64_t place = 2 * first * out.cols;
      const int64_t places = out.rows * out.cols;
      // An epilogue without y gets the results from scratch.
      const bool kept = turns_y_ || y_ == nullptr;
      const int64_t channel = kept ? places : a_.y_strides.channel;
      const int64_t image_at = image * a_.y_strides.batch + o * a_.y_strides.channel;
      T* const y =
          kept ? conv_scratch().columns.template get<T>(count * places) : y_ + image_at + place;
      for (int64_t i = 0; i < count; ++i) {
        out.points = from + i * points_ + before;
        out.bias = bias_ != nullptr ? bias_[o + i] : T(0);
        out.y = y + i * channel;
        transform_.output(out);
      }
      if (turns_y_) {
        const int64_t pixel = a_.y_strides.size[2];
        transpose_(y, places, count, places, y_ + image_at + place * pixel, pixel);
      }
      if (epilogue_ != nullptr) {
        epilogue_->run(epilogue_->context, {image * a_.out_channels + o, count, place, places,
                                            reinterpret_cast<char*>(y), channel});
      }
    });
  }

  const ConvolutionArgs& a_;
  const GemmKernel<T>& product_;
  const DepthwiseKernel<T>& rows_of_;
  const WinogradKernel<T>& transform_;
  const TransposeKernel<T> transpose_;
  const T* const x_;
  const T* const w_;
  const T* const bias_;
  T* const y_;
  const CallEpilogue* const epilogue_;
  const int64_t channels_, outputs_;  // of a group
  const int64_t lanes_;
  const Tiles tiles_;
  const int64_t rows_;            // of tiles, of all images
  const bool turns_x_, turns_y_;  // channels last
  const int64_t depth_;           // from one row of weights to the next
  int64_t block_;                 // rows of tiles
  int64_t strip_, strips_;        // output channels that are computed at a time
  int64_t points_;                // from a channel's points to the next's
  bool is_one_block_;             // each weight is used once
};

}  // namespace

template <class T>
std::optional<bool> winograd(const ConvolutionArgs& args, const T* x, const T* w, const T* bias,
                             T* y, const CallEpilogue* epilogue) {
  if (!is_open_to(args)) return std::nullopt;
  const Winograd<T> way(args, x, w, bias, y, epilogue);
  if (!way.pays()) return std::nullopt;
  return way.run();
}
template std::optional<bool> winograd(const ConvolutionArgs&, const float*, const float*,
                                      const float*, float*, const CallEpilogue*);
template std::optional<bool> winograd(const ConvolutionArgs&, const double*, const double*,
                                      const double*, double*, const CallEpilogue*);

}  // namespace hologram::cpu
