// SPDX-License-Identifier: MIT
// Finds where in its input the columns of a convolution's product lie.
#include "src/cpu/conv/convolution_columns.h"

#include <algorithm>

namespace hologram::cpu {
namespace {

constexpr int64_t kMostColumns = 32;

// The least n for which n * step >= x.
int64_t first_reaching(int64_t x, int64_t step) {
  return x >= 0 ? (x + step - 1) / step : -(-x / step);
}

}  // namespace

ConvTaps::ConvTaps(const ConvolutionArgs& args) {
  for (size_t i = 0; i < 3; ++i) {
    for (int64_t k = 0; k < args.kernel[i]; ++k) {
      // Output o reads o * stride - before.
      const int64_t before = args.padding[i] - k * args.dilation[i];
      const int64_t end = std::clamp<int64_t>(
          first_reaching(args.in_size[i] + before, args.stride[i]), 0, args.out_size[i]);
      ranges_[i].push_back(
          {std::clamp<int64_t>(first_reaching(before, args.stride[i]), 0, end), end});
    }
  }
  const ConvolutionSizes& steps = args.x_strides.size;
  for (int64_t d = 0; d < args.kernel[0]; ++d) {
    for (int64_t h = 0; h < args.kernel[1]; ++h) {
      for (int64_t w = 0; w < args.kernel[2]; ++w) {
        positions_.push_back(d * args.dilation[0] * steps[0] + h * args.dilation[1] * steps[1] +
                             w * args.dilation[2]);
      }
    }
  }
}

void ConvTaps::add_reach(const Run& run, uint32_t* reach) const {
  const size_t widths = ranges_[2].size();
  for (const Range& d : ranges_[0]) {
    for (const Range& h : ranges_[1]) {
      if (run.d >= d.begin && run.d < d.end && run.h >= h.begin && run.h < h.end) {
        for (size_t k = 0; k < widths; ++k) {
          const Range& w = ranges_[2][k];
          const int64_t begin = std::max<int64_t>(w.begin - run.w, 0);
          const int64_t count = std::min(w.end - run.w, run.count) - begin;
          if (count <= 0) continue;
          reach[k] |= static_cast<uint32_t>(((uint64_t{1} << count) - 1) << (run.lane + begin));
        }
      }
      reach += widths;
    }
  }
}

template <class T>
void ConvPanels<T>::reset(const ConvolutionArgs& args, const ConvTaps& taps, int64_t count) {
  args_ = &args, taps_ = &taps;
  segments_.clear(), reach_.clear(), columns_.clear();
  // Columns point into these: they must not move.
  segments_.reserve(static_cast<size_t>(count * kMostColumns));
  reach_.reserve(static_cast<size_t>(count * taps.count()));
}

template <class T>
void ConvPanels<T>::add(int64_t first, int64_t n, int64_t lanes) {
  const ConvolutionArgs& a = *args_;
  const ConvolutionSizes& out = a.out_size;
  const size_t taps = static_cast<size_t>(taps_->count());
  reach_.resize(reach_.size() + taps);
  uint32_t* const reach = reach_.data() + reach_.size() - taps;

  int64_t w = first % out[2], rest = first / out[2];
  int64_t h = rest % out[1];
  rest /= out[1];
  int64_t d = rest % out[0], image = rest / out[0];
  int64_t at[kMostColumns];
  for (int64_t lane = 0; lane < n;) {
    const int64_t count = std::min(out[2] - w, n - lane);
    taps_->add_reach({lane, count, d, h, w}, reach);
    const int64_t start =
        image * a.x_strides.batch + (d * a.stride[0] - a.padding[0]) * a.x_strides.size[0] +
        (h * a.stride[1] - a.padding[1]) * a.x_strides.size[1] + w * a.stride[2] - a.padding[2];
    for (int64_t i = 0; i < count; ++i) at[lane + i] = start + i * a.stride[2];
    lane += count;
    w = 0;
    if (++h == out[1]) {
      h = 0;
      if (++d == out[0]) d = 0, ++image;
    }
  }

  ConvColumns<T> columns;
  columns.segments = segments_.data() + segments_.size();
  columns.counts[0] = add_segments(at, std::min(n, lanes), lanes);
  columns.counts[1] = n > lanes ? add_segments(at + lanes, n - lanes, lanes) : 0;
  columns.reach = reach;
  columns_.push_back(columns);
}

template <class T>
int ConvPanels<T>::add_segments(const int64_t* at, int64_t n, int64_t lanes) {
  int64_t straight = 1;
  while (straight < n && at[straight] == at[0] + straight) ++straight;
  if (straight == n) {
    segments_.emplace_back();
    segments_.back().base = at[0];
    segments_.back().lanes = static_cast<uint32_t>((uint64_t{1} << n) - 1);
    return 1;
  }
  int count = 0;
  for (int64_t l = 0; l < n; ++count) {
    ConvSegment<T>& segment = segments_.emplace_back();
    segment.base = at[l];
    segment.linear = false;
    for (; l < n && at[l] >= segment.base && at[l] < segment.base + 2 * lanes; ++l) {
      segment.lanes |= uint32_t{1} << l;
      segment.lane[l] = static_cast<typename ConvSegment<T>::Index>(at[l] - segment.base);
    }
  }
  return count;
}

template class ConvPanels<float>;
template class ConvPanels<double>;

}  // namespace hologram::cpu
