// SPDX-License-Identifier: MIT
// Compares pooling by means and interpolation with sums over the taps of each output, and gradients
// with the sums turned around; positions are compared with PyTorch's in tests/torch.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "hologram/cpu_info.h"
#include "src/cpu/conv/resampling_taps.h"
#include "src/cpu/device/call_table.h"

namespace hologram {
namespace {

using cpu::ResamplingArgs;

int64_t count(const ConvolutionSizes& s) { return s[0] * s[1] * s[2]; }

ConvolutionStrides strides_of(int64_t channels, const ConvolutionSizes& s, bool last) {
  if (last) return {count(s) * channels, 1, {s[1] * s[2] * channels, s[2] * channels, channels}};
  return {count(s) * channels, count(s), {s[1] * s[2], s[2], 1}};
}

struct Image {
  ConvolutionSizes size;
  ConvolutionStrides strides;
  size_t at(int64_t n, int64_t c, int64_t d, int64_t h, int64_t w) const {
    return static_cast<size_t>(n * strides.batch + c * strides.channel + d * strides.size[0] +
                               h * strides.size[1] + w * strides.size[2]);
  }
};

// Calls f(output, input, weight) for each product of the forward direction.
template <class T, class F>
void for_products(ResamplingArgs a, F&& f) {
  a.is_gradient = false;
  const cpu::AxisTaps<T> axes[] = {cpu::make_axis_taps<T>(a, 0), cpu::make_axis_taps<T>(a, 1),
                                   cpu::make_axis_taps<T>(a, 2)};
  const Image in{a.in_size, a.in_strides}, out{a.out_size, a.out_strides};
  const auto for_taps = [&](size_t axis, int64_t i, auto&& g) {
    const cpu::AxisTaps<T>& t = axes[axis];
    const auto at = static_cast<size_t>(i);
    for (int64_t k = 0; k < t.count[at]; ++k) {
      const auto tap = static_cast<size_t>(i * t.most + k);
      g(t.input[tap], static_cast<double>(t.weight.empty() ? T(1) : t.weight[tap]) /
                          static_cast<double>(t.divisor.empty() ? T(1) : t.divisor[at]));
    }
  };
  for (int64_t n = 0; n < a.batch * a.channels; ++n) {
    const int64_t image = n / a.channels, c = n % a.channels;
    for (int64_t d = 0; d < a.out_size[0]; ++d) {
      for (int64_t h = 0; h < a.out_size[1]; ++h) {
        for (int64_t w = 0; w < a.out_size[2]; ++w) {
          for_taps(0, d, [&](int64_t i, double u) {
            for_taps(1, h, [&](int64_t j, double v) {
              for_taps(2, w, [&](int64_t k, double x) {
                f(out.at(image, c, d, h, w), in.at(image, c, i, j, k), u * v * x);
              });
            });
          });
        }
      }
    }
  }
}

template <class T>
void run(const ResamplingArgs& a, std::vector<T>& x, std::vector<T>& y, int threads) {
  using Five = std::array<int64_t, 5>;
  const auto shape = [&](const ConvolutionSizes& s) {
    return Five{a.batch, a.channels, s[0], s[1], s[2]};
  };
  const auto strides = [](const ConvolutionStrides& s) {
    return Five{s.batch, s.channel, s.size[0], s.size[1], s.size[2]};
  };
  const Five in = shape(a.in_size), out = shape(a.out_size);
  const Five in_steps = strides(a.in_strides), out_steps = strides(a.out_strides);
  const auto view = [](std::vector<T>& values, const Five& sizes, const Five& steps) {
    return View{values.data(), sizeof(T) == 4 ? Dtype::kFloat32 : Dtype::kFloat64, 5, sizes.data(),
                steps.data()};
  };
  const bool back = a.is_gradient;
  cpu::run(calls::Resample<>{.input = back ? view(x, out, out_steps) : view(x, in, in_steps),
                             .kind = static_cast<int64_t>(a.kind),
                             .kernel_size = a.kernel,
                             .stride = a.stride,
                             .padding = a.padding,
                             .flag = a.flag,
                             .divisor = a.divisor,
                             .is_gradient = back,
                             .scale_depth = a.scales[0],
                             .scale_height = a.scales[1],
                             .scale_width = a.scales[2],
                             .out = back ? view(y, in, in_steps) : view(y, out, out_steps)},
           CallThreads(threads));
}

template <class T>
void check(ResamplingArgs a, bool last, const std::string& where) {
  a.in_strides = strides_of(a.channels, a.in_size, last);
  a.out_strides = strides_of(a.channels, a.out_size, last);
  std::mt19937 rng(3);
  std::normal_distribution<double> normal;
  for (const bool gradient : {false, true}) {
    a.is_gradient = gradient;
    const int64_t images = a.batch * a.channels;
    std::vector<T> x(static_cast<size_t>(images * count(gradient ? a.out_size : a.in_size)));
    std::vector<T> y(static_cast<size_t>(images * count(gradient ? a.in_size : a.out_size)), T(7));
    for (T& value : x) value = static_cast<T>(normal(rng));
    std::vector<double> want(y.size()), size(y.size());
    for_products<T>(a, [&](size_t output, size_t input, double weight) {
      const size_t to = gradient ? input : output, from = gradient ? output : input;
      const double product = weight * static_cast<double>(x[from]);
      want[to] += product, size[to] += std::abs(product);
    });
    const double unit = sizeof(T) == 4 ? 1e-6 : 1e-14;
    std::vector<T> first;
    for (const int threads : {1, 2, 5}) {
      y.assign(y.size(), T(7));
      run(a, x, y, threads);
      if (first.empty()) first = y;
      ASSERT_EQ(first, y) << where << ", " << threads << " threads";
    }
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(y[i]), want[i], unit * (size[i] + 1e-3) * 4)
          << where << (gradient ? ", gradient" : "") << ", element " << i;
    }
  }
}

ResamplingArgs random_arguments(std::mt19937& rng) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng);
  };
  ResamplingArgs a;
  a.kind = static_cast<Resampling>(pick(0, 5));
  a.batch = pick(1, 3), a.channels = pick(0, 2) == 0 ? pick(14, 70) : pick(1, 5);
  a.flag = pick(0, 1) == 0;
  if (pick(0, 3) == 0) a.divisor = pick(1, 9);
  const bool deep = pick(0, 3) == 0;
  for (size_t i = deep ? 0 : 1; i < 3; ++i) {
    a.in_size[i] = pick(1, deep ? 9 : 40), a.out_size[i] = pick(1, deep ? 9 : 50);
    if (pick(0, 3) == 0) a.scales[i] = 0.1 * static_cast<double>(pick(3, 30));
    if (a.kind != Resampling::windows) continue;
    a.kernel[i] = pick(1, 5), a.stride[i] = pick(1, 6), a.padding[i] = pick(0, a.kernel[i] / 2);
    // As many windows as begin inside, or in the padding before.
    a.out_size[i] = (a.in_size[i] + a.padding[i] - 1) / a.stride[i] + 1;
  }
  return a;
}

TEST(Resampling, AddsUpTheTapsOnEveryInstructionSet) {
  const Isa best = current_isa();
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_available(isa)) continue;
    force_isa(isa);
    std::mt19937 rng(11);
    for (int i = 0; i < 60; ++i) {
      const ResamplingArgs a = random_arguments(rng);
      const std::string where = std::string(isa_name(isa)) + ", case " + std::to_string(i);
      check<float>(a, i % 2 == 1, where);
      check<double>(a, i % 2 == 1, where + ", float64");
      if (HasFatalFailure()) break;
    }
  }
  force_isa(best);
}

TEST(Resampling, LargeImagesAreTheWorkOfManyThreads) {
  for (const bool last : {false, true}) {
    ResamplingArgs a;
    a.kind = Resampling::linear;
    a.batch = 2, a.channels = 24, a.in_size = {1, 60, 70}, a.out_size = {1, 121, 90};
    check<float>(a, last, "linear");
    a.kind = Resampling::nearest;
    check<float>(a, last, "nearest");
  }
}

}  // namespace
}  // namespace hologram
