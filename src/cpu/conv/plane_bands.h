// SPDX-License-Identifier: MIT
// Bands of the output rows of planes, each from a copy of what its windows read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/cpu/conv/convolution_work.h"
#include "src/cpu/conv/depthwise_kernels.h"

namespace hologram::cpu {

// Whether each image is a plane, and the windows are those of a plane.
inline bool is_flat(const ConvolutionArgs& a) {
  return a.in_size[0] == 1 && a.out_size[0] == 1 && a.kernel[0] == 1 && a.padding[0] == 0;
}

// Cuts the planes of flat images, which have columns of step 1.
template <class T>
class PlaneBands {
 public:
  explicit PlaneBands(const ConvolutionArgs& args)
      : a_(args),
        kernel_(depthwise_kernel(current_isa(), T())),
        reach_(args.dilation[1] * (args.kernel[1] - 1) + 1),
        length_(args.out_size[2] + args.dilation[2] * (args.kernel[2] - 1) / args.stride[2]),
        pitch_(length_ * args.stride[2]),
        rows_(std::clamp<int64_t>((kElements / pitch_ - reach_) / args.stride[1] + 1, 1,
                                  args.out_size[1])) {
    for (int64_t h = 0; h < a_.kernel[1]; ++h) {
      for (int64_t w = 0; w < a_.kernel[2]; ++w) {
        const int64_t column = w * a_.dilation[2];
        taps_.push_back(h * a_.dilation[1] * pitch_ + column % a_.stride[2] * length_ +
                        column / a_.stride[2]);
      }
    }
  }

  // Of a plane.
  int64_t count() const { return ceil_div(a_.out_size[1], rows_); }

  // f(i, plane, first row, band) for each band i of [begin, end), counted over the planes, of which
  // `plane_at(plane)` is the first element. The windows find `outside` beyond the plane. What
  // becomes of the band is for f to set and to compute.
  template <class PlaneAt, class F>
  void run(int64_t begin, int64_t end, T outside, PlaneAt&& plane_at, F&& f) const {
    const int64_t bands = count(), most = ((rows_ - 1) * a_.stride[1] + reach_) * pitch_;
    // The last vectors of rows read on, at most four; they are written on by less than one.
    const int64_t behind = 8 * kernel_.lanes;
    T* const copy = conv_scratch().panels.get<T>(most + behind);
    std::fill_n(copy, most + behind, outside);
    DepthwiseRows<T> inside{nullptr,      a_.x_strides.size[1], 0,       a_.in_size[2],
                            a_.stride[2], a_.padding[2],        length_, outside};
    DepthwiseBand<T> band;
    band.copy = copy, band.row = a_.stride[1] * pitch_;
    band.tap = taps_.data(), band.taps = static_cast<int64_t>(taps_.size());
    band.width = a_.out_size[2];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % bands * rows_;
      band.rows = std::min(rows_, a_.out_size[1] - first);
      // Padding is in other rows of this band than of the one before: clear what that one left.
      if (bands > 1 && i > begin) std::fill_n(copy, most + behind, outside);
      const int64_t top = first * a_.stride[1] - a_.padding[1];
      const int64_t bottom = top + (band.rows - 1) * a_.stride[1] + reach_;
      const int64_t from = std::max<int64_t>(top, 0), to = std::min(bottom, a_.in_size[1]);
      inside.x = plane_at(i / bands) + from * a_.x_strides.size[1];
      inside.rows = std::max<int64_t>(to - from, 0);
      kernel_.spread(inside, copy + (from - top) * pitch_, pitch_);
      f(i, i / bands, first, band);
    }
  }

 private:
  // Elements of a copy that stays near.
  static constexpr int64_t kElements = 16384;

  const ConvolutionArgs& a_;
  const DepthwiseKernel<T>& kernel_;
  const int64_t reach_, length_, pitch_;  // pitch: of the rows of the copy
  const int64_t rows_;                    // of outputs, of a band
  std::vector<int64_t> taps_;
};

}  // namespace hologram::cpu
