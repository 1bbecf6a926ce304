// SPDX-License-Identifier: MIT
// Pooling by means, interpolation, and the gradients of both: rows of inputs are added up, then the
// elements of the sum. Of images with channels last, the pixels.
#include <algorithm>

#include "src/cpu/conv/convolution_work.h"
#include "src/cpu/conv/resampling_kernels.h"

namespace hologram::cpu {
namespace {

// Elements read and written that make a task.
constexpr int64_t kTaskElements = int64_t{1} << 15;
// Vectors of channels from which pixels pay for calls of their own.
constexpr int64_t kJoined = 4;
// Elements of a row's sum that are kept for its pixels.
constexpr int64_t kMostSums = int64_t{1} << 18;

// The rows that each row of results is made of, as places in an image; rows of depth and height.
template <class T>
struct RowSources {
  std::vector<size_t> first;  // of row r: [first[r], first[r + 1])
  std::vector<int64_t> place;
  std::vector<T> weight;  // empty: all are 1
  std::vector<T> divisor;
  std::vector<bool> repeats;  // the row before

  RowSources(const AxisTaps<T>& depth, const AxisTaps<T>& height, const ConvolutionSizes& steps) {
    const bool weighted = !depth.weight.empty() || !height.weight.empty();
    const size_t rows = depth.count.size() * height.count.size();
    first.reserve(rows + 1), divisor.reserve(rows), repeats.reserve(rows);
    place.reserve(rows * static_cast<size_t>(depth.most * height.most));
    const auto factor = [](const std::vector<T>& list, size_t at) {
      return list.empty() ? T(1) : list[at];
    };
    for (size_t d = 0; d < depth.count.size(); ++d) {
      for (size_t h = 0; h < height.count.size(); ++h) {
        const size_t begin = place.size(), before = first.empty() ? 0 : first.back();
        first.push_back(begin);
        for (int64_t k = 0; k < depth.count[d]; ++k) {
          const size_t near = d * static_cast<size_t>(depth.most) + static_cast<size_t>(k);
          for (int64_t j = 0; j < height.count[h]; ++j) {
            const size_t at = h * static_cast<size_t>(height.most) + static_cast<size_t>(j);
            place.push_back(depth.input[near] * steps[0] + height.input[at] * steps[1]);
            if (weighted) {
              weight.push_back(factor(depth.weight, near) * factor(height.weight, at));
            }
          }
        }
        divisor.push_back(factor(depth.divisor, d) * factor(height.divisor, h));
        const auto at = [&](size_t i) { return place.begin() + static_cast<int64_t>(i); };
        repeats.push_back(!weighted && divisor.size() > 1 && divisor.back() == divisor.end()[-2] &&
                          std::equal(at(before), at(begin), at(begin), place.end()));
      }
    }
    first.push_back(place.size());
  }
  int64_t count(int64_t row) const {
    const auto r = static_cast<size_t>(row);
    return static_cast<int64_t>(first[r + 1] - first[r]);
  }
  const int64_t* places(int64_t row) const {
    return place.data() + first[static_cast<size_t>(row)];
  }
  const T* weights(int64_t row) const {
    return weight.empty() ? nullptr : weight.data() + first[static_cast<size_t>(row)];
  }
};

// Where channels lie side by side, the elements of a row as those of an axis.
template <class T>
AxisTaps<T> with_channels(const AxisTaps<T>& axis, int64_t channels) {
  AxisTaps<T> all;
  all.inputs = axis.inputs * channels, all.outputs = axis.outputs * channels;
  all.most = axis.most;
  const auto most = static_cast<size_t>(axis.most);
  for (size_t i = 0; i < axis.count.size(); ++i) {
    for (int64_t c = 0; c < channels; ++c) {
      for (size_t k = i * most; k < (i + 1) * most; ++k) {
        all.input.push_back(axis.input[k] * channels + c);
        if (!axis.weight.empty()) all.weight.push_back(axis.weight[k]);
      }
      all.count.push_back(axis.count[i]);
      if (!axis.divisor.empty()) all.divisor.push_back(axis.divisor[i]);
    }
  }
  return all;
}

template <class T>
class Resampled {
 public:
  Resampled(const ResamplingArgs& a, const T* x, T* y, bool pixels)
      : a_(a),
        pixels_(pixels),
        kernel_(resampling_kernel(current_isa(), T())),
        x_(x),
        y_(y),
        from_(a.is_gradient ? a.out_size : a.in_size),
        to_(a.is_gradient ? a.in_size : a.out_size),
        x_strides_(a.is_gradient ? a.out_strides : a.in_strides),
        y_strides_(a.is_gradient ? a.in_strides : a.out_strides),
        axes_{make_axis_taps<T>(a, 0), make_axis_taps<T>(a, 1), make_axis_taps<T>(a, 2)} {}

  void run() const {
    // Rows of few channels are computed as rows of elements, others pixel by pixel.
    const bool joined = pixels_ && a_.channels < kJoined * kernel_.lanes &&
                        x_strides_.size[2] == a_.channels && y_strides_.size[2] == a_.channels;
    const int64_t side = pixels_ ? a_.channels : 1;
    const int64_t images = pixels_ ? a_.batch : a_.batch * a_.channels;
    const int64_t rows = to_[0] * to_[1], elements = (from_[2] + to_[2]) * side;
    // Rows of an image that a task computes, and images that it does together.
    const int64_t height = std::clamp<int64_t>(kTaskElements / elements, 1, rows);
    const int64_t together = std::clamp<int64_t>(kTaskElements / (elements * height), 1, images);
    const int64_t parts = ceil_div(rows, height), groups = ceil_div(images, together);
    const RowSources<T> sources(axes_[0], axes_[1], x_strides_.size);
    RowTable<T> table;
    if (joined) {
      table = make_row_table(with_channels(axes_[2], a_.channels), kernel_.lanes);
    } else if (!pixels_) {
      table = make_row_table(axes_[2], kernel_.lanes);
    }
    parallel_for(parts * groups, threads_of(a_.max_threads), [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t r0 = task % parts * height, r1 = std::min(rows, r0 + height);
        const int64_t i0 = task / parts * together, i1 = std::min(images, i0 + together);
        for (int64_t i = i0; i < i1; ++i) {
          if (pixels_ && !joined) {
            of_pixels(sources, i, r0, r1);
          } else {
            of_rows(sources, table, i, side, r0, r1);
          }
        }
      }
    });
  }

 private:
  // Row r of image i, or of plane i, counted over images and channels.
  T* row_of(int64_t i, int64_t r) const {
    T* const row = y_ + r / to_[1] * y_strides_.size[0] + r % to_[1] * y_strides_.size[1];
    return row + (pixels_
                      ? i * y_strides_.batch
                      : i / a_.channels * y_strides_.batch + i % a_.channels * y_strides_.channel);
  }

  // Rows [r0, r1), of `side` elements a place.
  void of_rows(const RowSources<T>& sources, const RowTable<T>& table, int64_t i, int64_t side,
               int64_t r0, int64_t r1) const {
    const int64_t width = from_[2] * side;
    T* const sum = conv_scratch().rows.template get<T>(width + kRowSlack);
    std::fill_n(sum + width, kRowSlack, T(0));
    const T* const image =
        x_ + (pixels_ ? i * x_strides_.batch
                      : i / a_.channels * x_strides_.batch + i % a_.channels * x_strides_.channel);
    std::vector<const T*> rows;
    for (int64_t r = r0; r < r1; ++r) {
      T* const to = row_of(i, r);
      if (r > r0 && sources.repeats[static_cast<size_t>(r)]) {
        std::copy_n(row_of(i, r - 1), to_[2] * side, to);
        continue;
      }
      const int64_t count = sources.count(r);
      rows.resize(static_cast<size_t>(count));
      for (size_t k = 0; k < rows.size(); ++k) rows[k] = image + sources.places(r)[k];
      kernel_.combine(rows.data(), sources.weights(r), count, T(1), width, sum);
      kernel_.spread(table, sum, sources.divisor[static_cast<size_t>(r)], to);
    }
  }

  // Rows [r0, r1) of an image with channels last.
  void of_pixels(const RowSources<T>& sources, int64_t image, int64_t r0, int64_t r1) const {
    const AxisTaps<T>& axis = axes_[2];
    const bool weighted = !sources.weight.empty() || !axis.weight.empty();
    const int64_t pixel = x_strides_.size[2], width = from_[2] * a_.channels;
    // Rows are added up first where most of the sum is used more than once and it stays near.
    const bool sums =
        pixel == a_.channels && 2 * to_[2] > from_[2] && axis.most > 1 && width <= kMostSums;
    T* const sum = conv_scratch().rows.template get<T>(sums ? width : 0);
    std::vector<const T*> pixels;
    std::vector<T> weights;
    for (int64_t r = r0; r < r1; ++r) {
      size_t rows = static_cast<size_t>(sources.count(r));
      const T* const from = x_ + image * x_strides_.batch;
      const int64_t* places = sources.places(r);
      const T* of_row = sources.weights(r);
      const T* base = from;
      constexpr int64_t kHere[] = {0};
      if (sums && rows > 1) {
        pixels.resize(rows);
        for (size_t p = 0; p < rows; ++p) pixels[p] = from + places[p];
        kernel_.combine(pixels.data(), of_row, static_cast<int64_t>(rows), T(1), width, sum);
        rows = 1, places = kHere, of_row = nullptr, base = sum;
      }
      for (int64_t v = 0; v < to_[2]; ++v) {
        const auto at = static_cast<size_t>(v), first = at * static_cast<size_t>(axis.most);
        const auto taps = static_cast<size_t>(axis.count[at]);
        pixels.resize(rows * taps);
        weights.resize(weighted ? rows * taps : 0);
        for (size_t p = 0; p < rows; ++p) {
          for (size_t k = 0; k < taps; ++k) {
            pixels[p * taps + k] = base + places[p] + axis.input[first + k] * pixel;
            if (!weighted) continue;
            weights[p * taps + k] = (of_row != nullptr ? of_row[p] : T(1)) *
                                    (axis.weight.empty() ? T(1) : axis.weight[first + k]);
          }
        }
        const T divisor = sources.divisor[static_cast<size_t>(r)] *
                          (axis.divisor.empty() ? T(1) : axis.divisor[at]);
        kernel_.combine(pixels.data(), weighted ? weights.data() : nullptr,
                        static_cast<int64_t>(pixels.size()), divisor, a_.channels,
                        row_of(image, r) + v * y_strides_.size[2]);
      }
    }
  }

  const ResamplingArgs& a_;
  const bool pixels_;  // channels last
  const ResamplingKernel<T>& kernel_;
  const T* const x_;
  T* const y_;
  const ConvolutionSizes from_, to_;
  const ConvolutionStrides x_strides_, y_strides_;
  const std::array<AxisTaps<T>, 3> axes_;
};

bool has_contiguous_planes(const ConvolutionStrides& s, const ConvolutionSizes& size) {
  int64_t step = 1;
  for (size_t i = 3; i-- > 0;) {
    if (size[i] != 1 && s.size[i] != step) return false;
    step *= size[i];
  }
  return true;
}

ResamplingArgs arguments_of(const calls::Resample<>& call, CallThreads threads) {
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
  args.batch = x.shape[0], args.channels = x.shape[1];
  args.in_size = places_of(in.shape, in.ndim, 1), args.out_size = places_of(out.shape, out.ndim, 1);
  args.in_strides = convolution_strides(in), args.out_strides = convolution_strides(out);
  args.max_threads = threads(in.numel() + out.numel());
  return args;
}

}  // namespace

// Planes are contiguous, or channels lie side by side in both images. The same bits for any number
// of threads.
void run(const calls::Resample<>& call, CallThreads threads) {
  if (call.input.numel() == 0) return;
  const ResamplingArgs args = arguments_of(call, threads);
  const bool pixels = !has_contiguous_planes(args.in_strides, args.in_size) ||
                      !has_contiguous_planes(args.out_strides, args.out_size);
  for_dtype(call.input.dtype, [&](auto zero) {
    using T = decltype(zero);
    Resampled<T>(args, static_cast<const T*>(call.input.data), static_cast<T*>(call.out.data),
                 pixels)
        .run();
  });
}

}  // namespace hologram::cpu
