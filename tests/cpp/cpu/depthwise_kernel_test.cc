// SPDX-License-Identifier: MIT
// The kernels of depthwise convolutions over copies of planes, for every instruction set: what they
// write, and that they write nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "hologram/cpu_info.h"
#include "src/cpu/conv/depthwise_kernels.h"

namespace hologram::cpu {
namespace {

template <class T>
class DepthwiseKernels : public ::testing::Test {
 protected:
  // f(kernel) for each instruction set that there is.
  template <class F>
  static void for_isas(F&& f) {
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
      if (!isa_available(isa)) continue;
      SCOPED_TRACE(isa_name(isa));
      f(depthwise_kernel(isa, T()));
    }
  }
  static std::vector<T> random(int64_t n, std::mt19937& generator) {
    std::vector<T> values(static_cast<size_t>(n));
    std::normal_distribution<double> normal;
    for (T& v : values) v = static_cast<T>(normal(generator));
    return values;
  }
};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DepthwiseKernels, Types);

TYPED_TEST(DepthwiseKernels, CopiesHaveColumnsByTheirRemainder) {
  using T = TypeParam;
  std::mt19937 generator(3);
  for (const T outside : {T(0), -std::numeric_limits<T>::infinity()}) {
    this->for_isas([&](const DepthwiseKernel<T>& kernel) {
      for (const int64_t stride : {1, 2, 3}) {
        for (const int64_t padding : {0, 1, 2, 5}) {
          for (int64_t width = 1; width < 40; ++width) {
            const int64_t rows = 1 + width % 5;
            // Columns 0 to length * stride of the padded row, some of them behind its end.
            const int64_t length = (width + 2 * padding + stride - 1) / stride + width % 3;
            const int64_t pitch = length * stride, behind = 4 * kernel.lanes;
            const std::vector<T> x = this->random(rows * width, generator);
            std::vector<T> copy(static_cast<size_t>(rows * pitch + behind), outside);
            kernel.spread({x.data(), width, rows, width, stride, padding, length, outside},
                          copy.data(), pitch);
            for (int64_t at = 0; at < rows * pitch + behind; ++at) {
              T expected = outside;
              if (at < rows * pitch) {
                const int64_t r = at / pitch, f = at % pitch / length, i = at % length;
                const int64_t column = i * stride + f - padding;
                if (column >= 0 && column < width) {
                  expected = x[static_cast<size_t>(r * width + column)];
                }
              }
              ASSERT_EQ(copy[static_cast<size_t>(at)], expected)
                  << "place " << at << " of " << rows << " rows of " << width << ", stride "
                  << stride << ", padding " << padding;
            }
          }
        }
      }
    });
  }
}

TYPED_TEST(DepthwiseKernels, BandsHaveEveryRowAndNothingBehind) {
  using T = TypeParam;
  std::mt19937 generator(4);
  constexpr T kCanary = T(-77);
  this->for_isas([&](const DepthwiseKernel<T>& kernel) {
    for (int64_t width = 1; width < 75; width += width < 35 ? 1 : 5) {
      for (int64_t rows = 1; rows <= 18; ++rows) {
        const int64_t pitch = width + 4;
        const std::vector<int64_t> taps{0, 1, 4, pitch, pitch + 2, 2 * pitch + 3};
        const std::vector<T> w = this->random(6, generator);
        const std::vector<T> copy = this->random((rows + 2) * pitch + 8 * kernel.lanes, generator);
        for (const bool largest : {false, true}) {
          std::vector<T> y(static_cast<size_t>(rows * width + 2 * kernel.lanes), kCanary);
          DepthwiseBand<T> band;
          band.copy = copy.data(), band.row = pitch;
          band.tap = taps.data(), band.taps = static_cast<int64_t>(taps.size());
          band.w = w.data(), band.bias = T(0.5);
          band.rows = rows, band.width = width, band.y = y.data();
          largest ? kernel.largest(band) : kernel.band(band);
          for (int64_t at = 0; at < static_cast<int64_t>(y.size()); ++at) {
            const T found = y[static_cast<size_t>(at)];
            if (at >= rows * width) {
              ASSERT_EQ(found, kCanary) << "place " << at << ", " << rows << " x " << width;
              continue;
            }
            const int64_t from = at / width * pitch + at % width;
            double sum = 0.5, most = -INFINITY;
            for (size_t t = 0; t < taps.size(); ++t) {
              const double v = copy[static_cast<size_t>(from + taps[t])];
              sum += w[t] * v;
              most = std::max(most, v);
            }
            ASSERT_NEAR(found, largest ? most : sum, largest ? 0 : 1e-5)
                << "place " << at << ", " << rows << " x " << width;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace hologram::cpu
