// SPDX-License-Identifier: MIT
// Compares convolutions with plain loops in wider floats.
#include "src/cpu/conv/convolution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hologram/cpu_info.h"
#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/cpu/conv/winograd.h"

namespace hologram {
namespace {

// kSlice: channels last, some of the channels of a larger tensor.
enum class Layout { kChannelsFirst, kChannelsLast, kApart, kSlice };

struct Shape {
  int64_t batch, groups, in_channels, out_channels;
  ConvolutionSizes in, kernel, stride{1, 1, 1}, padding{}, dilation{1, 1, 1};
  Layout x = Layout::kChannelsFirst, y = Layout::kChannelsFirst;
  bool weight_last = false;
};

int64_t count(const ConvolutionSizes& s) { return s[0] * s[1] * s[2]; }

ConvolutionSizes outputs(const Shape& s) {
  ConvolutionSizes out;
  for (size_t i = 0; i < 3; ++i) {
    const int64_t room = s.in[i] + 2 * s.padding[i] - s.dilation[i] * (s.kernel[i] - 1) - 1;
    out[i] = room < 0 ? 0 : room / s.stride[i] + 1;
  }
  return out;
}

// Images with whatever lies between their elements.
template <class T>
struct Images {
  ConvolutionStrides strides;
  std::vector<T> data;

  Images(int64_t batch, int64_t channels, const ConvolutionSizes& size, Layout layout) {
    const int64_t n = count(size), gap = layout == Layout::kApart ? 3 : 0;
    if (layout == Layout::kChannelsLast || layout == Layout::kSlice) {
      const int64_t step = channels + (layout == Layout::kSlice ? 3 : 0);
      strides = {n * step, 1, {size[1] * size[2] * step, size[2] * step, step}};
    } else {
      const int64_t row = size[2] + gap, plane = size[1] * row + gap;
      const int64_t channel = size[0] * plane + gap;
      strides = {channels * channel + gap, channel, {plane, row, 1}};
    }
    data.assign(static_cast<size_t>(batch * (strides.batch + n) + 1), T(7));
  }
  T& at(int64_t n, int64_t c, int64_t d, int64_t h, int64_t w) {
    return data[static_cast<size_t>(n * strides.batch + c * strides.channel + d * strides.size[0] +
                                    h * strides.size[1] + w * strides.size[2])];
  }
};

template <class T>
void randomize(std::vector<T>& data, std::mt19937& rng) {
  std::normal_distribution<double> normal;
  for (T& x : data) x = static_cast<T>(normal(rng));
}

template <class T>
struct Problem {
  Shape s;
  ConvolutionArgs args;
  Images<T> x, y;
  std::vector<T> w, bias;

  Problem(const Shape& shape, std::mt19937& rng)
      : s(shape),
        x(s.batch, s.in_channels, s.in, s.x),
        y(s.batch, s.out_channels, outputs(s), s.y),
        w(static_cast<size_t>(s.out_channels * s.in_channels / s.groups * count(s.kernel))),
        bias(static_cast<size_t>(s.out_channels)) {
    for (auto* data : {&x.data, &y.data, &w, &bias}) randomize(*data, rng);
    args.dtype = sizeof(T) == 4 ? Dtype::kFloat32 : Dtype::kFloat64;
    args.batch = s.batch, args.groups = s.groups;
    args.in_channels = s.in_channels, args.out_channels = s.out_channels;
    args.in_size = s.in, args.out_size = outputs(s), args.kernel = s.kernel;
    args.stride = s.stride, args.padding = s.padding, args.dilation = s.dilation;
    args.x_strides = x.strides, args.y_strides = y.strides;
    args.weight_channels_last = s.weight_last;
  }
  T weight(int64_t o, int64_t c, int64_t tap) const {
    const int64_t channels = s.in_channels / s.groups, taps = count(s.kernel);
    return w[static_cast<size_t>(s.weight_last ? (o * taps + tap) * channels + c
                                               : (o * channels + c) * taps + tap)];
  }

  // Calls f(n, o, c, tap, d, h, w, i, j, k) for every product: the output at d, h, w sees channel c
  // of the input at i, j, k.
  template <class F>
  void for_products(F&& f) const {
    const ConvolutionSizes out = outputs(s);
    const int64_t channels = s.in_channels / s.groups, rows = s.out_channels / s.groups;
    for (int64_t n = 0; n < s.batch; ++n) {
      for (int64_t o = 0; o < s.out_channels; ++o) {
        for (int64_t at = 0; at < count(out); ++at) {
          const int64_t d = at / (out[1] * out[2]), h = at / out[2] % out[1], v = at % out[2];
          for (int64_t tap = 0; tap < count(s.kernel); ++tap) {
            const int64_t i =
                d * s.stride[0] - s.padding[0] + tap / (s.kernel[1] * s.kernel[2]) * s.dilation[0];
            const int64_t j =
                h * s.stride[1] - s.padding[1] + tap / s.kernel[2] % s.kernel[1] * s.dilation[1];
            const int64_t k = v * s.stride[2] - s.padding[2] + tap % s.kernel[2] * s.dilation[2];
            if (i < 0 || j < 0 || k < 0 || i >= s.in[0] || j >= s.in[1] || k >= s.in[2]) continue;
            for (int64_t c = 0; c < channels; ++c) {
              f(n, o, o / rows * channels + c, c, tap, d, h, v, i, j, k);
            }
          }
        }
      }
    }
  }
};

// A sum of products, with the sum of their sizes by which its error is bounded.
struct Sum {
  long double value = 0, size = 0;
  void add(long double x) { value += x, size += std::abs(x); }
};

template <class T>
void expect_near(T got, const Sum& want, const std::string& where) {
  const long double bound = (sizeof(T) == 4 ? 2e-6L : 4e-15L) * want.size;
  ASSERT_LE(std::abs(static_cast<long double>(got) - want.value), bound)
      << where << ": " << got << " instead of " << want.value;
}

// What lies between the elements must not change, and the elements must not depend on what was
// there.
template <class T>
void check_images(const Images<T>& got, const std::vector<T>& before, int64_t batch,
                  int64_t channels, const ConvolutionSizes& size, const std::vector<Sum>& want,
                  const std::string& where) {
  std::vector<bool> is_element(got.data.size());
  size_t i = 0;
  Images<T> result = got;
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t at = 0; at < count(size); ++at) {
        T& value = result.at(n, c, at / (size[1] * size[2]), at / size[2] % size[1], at % size[2]);
        expect_near(value, want[i++], where);
        if (::testing::Test::HasFatalFailure()) return;
        is_element[static_cast<size_t>(&value - result.data.data())] = true;
      }
    }
  }
  for (size_t k = 0; k < got.data.size(); ++k) {
    ASSERT_TRUE(is_element[k] || got.data[k] == before[k]) << where << ": wrote at " << k;
  }
}

// Runs f with several numbers of threads: the first result is compared, the others must have its
// bits.
template <class T, class Run, class Compare>
void check_threads(Problem<T>& p, std::vector<T>& result, const std::string& where, Run&& run,
                   Compare&& compare) {
  const std::vector<T> before = result;
  std::vector<T> first;
  for (const int threads : {1, 2, 3}) {
    result = before;
    p.args.max_threads = threads;
    run();
    if (threads == 1) {
      first = result;
      compare(before);
      if (::testing::Test::HasFatalFailure()) return;
    }
    ASSERT_EQ(std::memcmp(first.data(), result.data(), first.size() * sizeof(T)), 0)
        << where << " differs with " << threads << " threads";
  }
}

template <class T>
void check_forward(Problem<T>& p, bool with_bias, const std::string& where) {
  const ConvolutionSizes out = outputs(p.s);
  const int64_t places = count(out);
  std::vector<Sum> want(static_cast<size_t>(p.s.batch * p.s.out_channels * places));
  for (size_t i = 0; i < want.size() && with_bias; ++i) {
    want[i].add(static_cast<double>(
        p.bias[i / static_cast<size_t>(places) % static_cast<size_t>(p.s.out_channels)]));
  }
  p.for_products([&](int64_t n, int64_t o, int64_t channel, int64_t c, int64_t tap, int64_t d,
                     int64_t h, int64_t v, int64_t i, int64_t j, int64_t k) {
    const int64_t at = ((n * p.s.out_channels + o) * out[0] + d) * out[1] * out[2] + h * out[2] + v;
    want[static_cast<size_t>(at)].add(static_cast<double>(p.x.at(n, channel, i, j, k)) *
                                      static_cast<double>(p.weight(o, c, tap)));
  });
  check_threads(
      p, p.y.data, where,
      [&] {
        convolution(p.args, p.x.data.data(), p.w.data(), with_bias ? p.bias.data() : nullptr,
                    p.y.data.data());
      },
      [&](const std::vector<T>& before) {
        check_images(p.y, before, p.s.batch, p.s.out_channels, out, want, where);
      });
}

template <class T>
void check_backward_input(Problem<T>& p, bool with_bias, const std::string& where) {
  const int64_t places = count(p.s.in);
  std::vector<Sum> want(static_cast<size_t>(p.s.batch * p.s.in_channels * places));
  std::vector<T> bias(static_cast<size_t>(p.s.in_channels), T(0.5));
  for (size_t i = 0; i < want.size() && with_bias; ++i) want[i].add(0.5);
  p.for_products([&](int64_t n, int64_t o, int64_t channel, int64_t c, int64_t tap, int64_t d,
                     int64_t h, int64_t v, int64_t i, int64_t j, int64_t k) {
    const int64_t at =
        (n * p.s.in_channels + channel) * places + (i * p.s.in[1] + j) * p.s.in[2] + k;
    want[static_cast<size_t>(at)].add(static_cast<double>(p.y.at(n, o, d, h, v)) *
                                      static_cast<double>(p.weight(o, c, tap)));
  });
  check_threads(
      p, p.x.data, where,
      [&] {
        convolution_backward_input(p.args, p.y.data.data(), p.w.data(),
                                   with_bias ? bias.data() : nullptr, p.x.data.data());
      },
      [&](const std::vector<T>& before) {
        check_images(p.x, before, p.s.batch, p.s.in_channels, p.s.in, want, where);
      });
}

template <class T>
void check_backward_weight(Problem<T>& p, const std::string& where) {
  const int64_t channels = p.s.in_channels / p.s.groups, taps = count(p.s.kernel);
  std::vector<Sum> want(p.w.size());
  p.for_products([&](int64_t n, int64_t o, int64_t channel, int64_t c, int64_t tap, int64_t d,
                     int64_t h, int64_t v, int64_t i, int64_t j, int64_t k) {
    const int64_t at =
        p.s.weight_last ? (o * taps + tap) * channels + c : (o * channels + c) * taps + tap;
    want[static_cast<size_t>(at)].add(static_cast<double>(p.x.at(n, channel, i, j, k)) *
                                      static_cast<double>(p.y.at(n, o, d, h, v)));
  });
  check_threads(
      p, p.w, where,
      [&] { convolution_backward_weight(p.args, p.x.data.data(), p.y.data.data(), p.w.data()); },
      [&](const std::vector<T>&) {
        for (size_t i = 0; i < want.size(); ++i) expect_near(p.w[i], want[i], where);
      });
}

// Runs f for every instruction set this machine has.
void for_isas(const std::function<void(const std::string&)>& f) {
  const Isa best = current_isa();
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_available(isa)) continue;
    force_isa(isa);
    f(std::string(isa_name(isa)));
    if (::testing::Test::HasFatalFailure()) break;
  }
  force_isa(best);
}

template <class T>
void check_shape(const Shape& shape, const std::string& name) {
  for_isas([&](const std::string& isa) {
    std::mt19937 rng(5);
    Problem<T> p(shape, rng);
    const bool with_bias = isa != "avx2";
    check_forward(p, with_bias, name + ", " + isa);
    if (::testing::Test::HasFatalFailure()) return;
    check_backward_input(p, !with_bias, name + ", " + isa + ", gradient of the input");
    if (::testing::Test::HasFatalFailure()) return;
    check_backward_weight(p, name + ", " + isa + ", gradient of the weight");
  });
}

std::vector<std::pair<const char*, Shape>> channels_last_shapes() {
  const Layout last = Layout::kChannelsLast, slice = Layout::kSlice;
  const ConvolutionSizes ones{1, 1, 1}, twos{1, 2, 2};
  return {
      {"1x1", {2, 1, 33, 40, {1, 10, 7}, ones, ones, {}, ones, last, last}},
      {"1x1 in groups", {2, 2, 32, 40, {1, 10, 7}, ones, ones, {}, ones, last, last}},
      {"1x1 of stride 2", {2, 1, 9, 15, {1, 10, 14}, ones, twos, {}, ones, last, last}},
      {"1x1 with padding", {2, 1, 9, 15, {1, 5, 6}, ones, ones, {0, 1, 2}, ones, last, last}},
      {"7x7 of stride 2",
       {2, 1, 3, 20, {1, 23, 37}, {1, 7, 7}, twos, {0, 3, 3}, ones, last, last, true}},
      {"weights by taps", {2, 1, 5, 20, {1, 12, 13}, {1, 2, 3}, twos, {0, 1, 1}, ones, last, last}},
      {"weights by taps, stride 1",
       {2, 1, 20, 24, {1, 12, 13}, {1, 2, 3}, ones, {0, 1, 1}, ones, last, last}},
      {"padding beyond the taps",
       {1, 1, 9, 12, {1, 8, 9}, {1, 3, 2}, ones, {0, 3, 4}, ones, last, last, true}},
      {"dilated",
       {2, 1, 11, 9, {1, 17, 19}, {1, 3, 3}, {1, 1, 2}, {0, 2, 4}, {1, 2, 4}, last, last, true}},
      {"deeper than a piece",
       {1, 1, 150, 17, {1, 9, 9}, {1, 3, 5}, ones, {0, 1, 2}, ones, last, last, true}},
      {"in groups", {2, 2, 20, 34, {1, 9, 10}, {1, 3, 3}, twos, {0, 1, 1}, ones, last, last, true}},
      {"small groups",
       {2, 3, 6, 12, {1, 9, 10}, {1, 3, 3}, ones, {0, 1, 1}, ones, last, last, true}},
      {"three dimensions",
       {2, 1, 6, 10, {5, 6, 7}, {3, 2, 3}, {2, 2, 1}, {1, 0, 1}, {2, 1, 1}, last, last, true}},
      {"rows longer than a block",
       {1, 1, 4, 9, {1, 2, 600}, {1, 2, 5}, ones, {0, 1, 2}, ones, last, last, true}},
      {"many places of one tap", {3, 1, 8, 12, {1, 30, 31}, ones, ones, {}, ones, last, last}},
      {"some channels of a tensor",
       {2, 1, 11, 20, {1, 12, 13}, {1, 3, 3}, twos, {}, ones, slice, slice, true}},
      {"some channels, padded",
       {2, 1, 11, 20, {1, 12, 13}, {1, 3, 3}, twos, {0, 1, 1}, ones, slice, last, true}},
      {"some channels, 1x1", {2, 1, 11, 20, {1, 6, 7}, ones, ones, {}, ones, slice, slice}},
      {"some channels, 3x3 of many",
       {2, 1, 40, 48, {1, 15, 18}, {1, 3, 3}, ones, {0, 1, 1}, ones, slice, slice, true}},
      {"some channels, depthwise",
       {2, 19, 19, 19, {1, 9, 10}, {1, 3, 3}, ones, {0, 1, 1}, ones, slice, slice, true}},
      {"few places", {2, 1, 24, 20, {1, 3, 3}, {1, 3, 3}, ones, {0, 1, 1}, ones, last, last, true}},
      {"depthwise",
       {2, 19, 19, 19, {1, 11, 20}, {1, 3, 3}, ones, {0, 1, 1}, ones, last, last, true}},
      {"depthwise of stride 2",
       {2, 150, 150, 150, {1, 9, 10}, {1, 5, 5}, twos, {0, 2, 2}, ones, last, last, true}},
      {"depthwise of taps that miss the image",
       {2, 5, 5, 5, {1, 2, 3}, {1, 3, 5}, {1, 1, 2}, {0, 3, 6}, {1, 1, 2}, last, last}},
      {"depthwise of three dimensions",
       {1, 7, 7, 7, {4, 5, 6}, {3, 3, 3}, {2, 1, 1}, {1, 1, 1}, ones, last, last, true}},
  };
}

std::vector<std::pair<const char*, Shape>> shapes() {
  const Layout last = Layout::kChannelsLast, apart = Layout::kApart;
  return {
      {"3x3 of equal size", {2, 1, 5, 20, {1, 14, 13}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}}},
      {"deeper than a piece", {1, 1, 40, 17, {1, 9, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}}},
      {"outputs deeper than a piece", {2, 1, 24, 60, {1, 8, 9}, {1, 3, 5}, {1, 1, 1}, {0, 1, 2}}},
      {"1x1, outputs deeper than a piece", {1, 1, 20, 300, {1, 6, 6}, {1, 1, 1}}},
      {"many small images", {11, 1, 3, 9, {1, 5, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}}},
      {"one output each", {7, 1, 6, 5, {1, 4, 4}, {1, 4, 4}}},
      {"without padding", {2, 1, 4, 6, {1, 12, 11}, {1, 3, 3}}},
      {"stride 2", {2, 1, 3, 8, {1, 23, 37}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}}},
      {"stride 3 and 5", {1, 1, 3, 8, {1, 40, 61}, {1, 3, 2}, {1, 3, 5}, {0, 1, 0}}},
      {"stride beyond a window", {1, 1, 2, 3, {1, 3, 400}, {1, 1, 1}, {1, 2, 70}}},
      {"1x1", {2, 1, 33, 15, {1, 10, 7}, {1, 1, 1}}},
      {"1x1 of stride 2", {2, 1, 9, 15, {1, 10, 14}, {1, 1, 1}, {1, 2, 2}}},
      {"padding wider than the kernel", {1, 1, 2, 3, {1, 3, 2}, {1, 2, 3}, {1, 1, 2}, {0, 5, 40}}},
      {"dilated", {2, 1, 3, 5, {1, 17, 19}, {1, 3, 3}, {1, 1, 2}, {0, 2, 4}, {1, 2, 4}}},
      {"groups", {2, 3, 6, 12, {1, 9, 10}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}}},
      {"depthwise", {2, 7, 7, 7, {1, 11, 40}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}}},
      {"depthwise of stride 2", {2, 7, 7, 7, {1, 11, 40}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}}},
      {"depthwise on small images", {5, 4, 4, 4, {1, 3, 3}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}}},
      {"depthwise with a multiplier", {2, 4, 4, 8, {1, 8, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}}},
      {"one dimension", {3, 1, 4, 6, {1, 1, 50}, {1, 1, 5}, {1, 1, 1}, {0, 0, 2}}},
      {"three dimensions",
       {2, 1, 3, 5, {5, 6, 7}, {3, 2, 3}, {1, 2, 1}, {1, 0, 1}, {2, 1, 1}, last, last, true}},
      {"channels last",
       {3, 1, 6, 20, {1, 9, 8}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}, last, last, true}},
      {"rows apart",
       {2, 2, 4, 6, {2, 9, 8}, {1, 3, 3}, {1, 1, 2}, {0, 1, 1}, {1, 1, 1}, apart, apart}},
      {"large enough for tasks", {2, 1, 16, 48, {1, 30, 32}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}}},
      {"3x3 of many channels", {2, 1, 40, 48, {1, 15, 18}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}}},
      {"3x3 without padding", {3, 1, 24, 20, {1, 21, 16}, {1, 3, 3}}},
      {"3x3, much padding", {2, 1, 24, 20, {1, 9, 40}, {1, 3, 3}, {1, 1, 1}, {0, 4, 3}}},
      {"3x3 in groups, channels last",
       {2, 2, 48, 40, {1, 18, 17}, {1, 3, 3}, {1, 1, 1}, {0, 1, 2}, {1, 1, 1}, last, last, true}},
      {"3x3, rows apart",
       {1, 1, 17, 33, {1, 30, 28}, {1, 3, 3}, {1, 1, 1}, {0, 0, 1}, {1, 1, 1}, apart, apart}},
      {"3x3 of few places", {1, 1, 64, 100, {1, 14, 14}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}}},
      {"few places, many channels", {1, 1, 40, 200, {1, 7, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}}},
  };
}

TEST(Convolution, Shapes) {
  for (const auto& [name, shape] : shapes()) {
    check_shape<float>(shape, name);
    if (::testing::Test::HasFatalFailure()) return;
    check_shape<double>(shape, std::string(name) + ", float64");
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Convolution, ChannelsLast) {
  for (const auto& [name, shape] : channels_last_shapes()) {
    check_shape<float>(shape, name);
    if (::testing::Test::HasFatalFailure()) return;
  }
  check_shape<double>(channels_last_shapes()[4].second, "float64");
  check_shape<double>(channels_last_shapes()[22].second, "float64, depthwise");
}

Shape random_shape(std::mt19937& rng) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng);
  };
  Shape s;
  s.groups = pick(0, 2) == 0 ? pick(1, 4) : 1;
  s.batch = pick(1, 4);
  s.in_channels = s.groups * pick(1, 6);
  s.out_channels = s.groups * pick(1, 20);
  for (size_t i = 0; i < 3; ++i) {
    const bool used = i > 0 || pick(0, 3) == 0;
    s.in[i] = used ? pick(1, i == 2 ? 30 : 9) : 1;
    s.kernel[i] = used ? pick(1, 4) : 1;
    s.stride[i] = used ? pick(1, 3) : 1;
    s.dilation[i] = used ? pick(1, 3) : 1;
    s.padding[i] = used ? pick(0, 5) : 0;
    s.padding[i] = std::max(s.padding[i], (s.dilation[i] * (s.kernel[i] - 1) + 2 - s.in[i]) / 2);
  }
  s.x = static_cast<Layout>(pick(0, 2));
  s.y = pick(0, 1) == 0 ? s.x : static_cast<Layout>(pick(0, 2));
  s.weight_last = pick(0, 1) == 0;
  return s;
}

TEST(Convolution, RandomShapes) {
  std::mt19937 rng(17);
  for (int i = 0; i < 60; ++i) {
    const Shape shape = random_shape(rng);
    check_shape<float>(shape, "random shape " + std::to_string(i));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Blocks of these shapes leave one or two columns over with some numbers of threads, of vectors of
// 4, 8 or 16.
TEST(Convolution, ThreadsDoNotChangeBits) {
  const ConvolutionSizes kernel{1, 3, 3}, ones{1, 1, 1}, padding{0, 1, 1};
  const Shape images[] = {{4, 1, 128, 128, {1, 14, 14}, kernel, ones, padding},
                          {1, 1, 128, 128, {1, 28, 28}, kernel, ones, padding},
                          {16, 1, 32, 32, {1, 14, 14}, kernel, ones, padding},
                          {1, 1, 256, 256, {1, 18, 18}, kernel, ones, padding},
                          {16, 1, 64, 64, {1, 7, 7}, kernel, ones, padding},
                          {2, 1, 96, 96, {1, 27, 27}, kernel, ones, padding}};
  for_isas([&](const std::string& isa) {
    std::mt19937 rng(6);
    for (const Shape& image : images) {
      Problem<float> p(image, rng);
      std::vector<float> first;
      for (const int threads : {1, 2, 3, 4, 8}) {
        p.args.max_threads = threads;
        convolution(p.args, p.x.data.data(), p.w.data(), p.bias.data(), p.y.data.data());
        if (threads == 1) first = p.y.data;
        ASSERT_EQ(std::memcmp(first.data(), p.y.data.data(), first.size() * sizeof(float)), 0)
            << isa << ": " << image.batch << " images of " << image.in_channels << " channels, "
            << image.in[2] << " wide, with " << threads << " threads";
      }
    }
  });
}

TEST(Convolution, NothingToAddUpGivesTheBias) {
  std::mt19937 rng(3);
  Problem<float> p({2, 1, 0, 3, {1, 4, 4}, {1, 3, 3}}, rng);
  convolution(p.args, nullptr, nullptr, p.bias.data(), p.y.data.data());
  for (int64_t o = 0; o < 3; ++o) {
    EXPECT_EQ(p.y.at(1, o, 0, 1, 1), p.bias[static_cast<size_t>(o)]);
  }
  Problem<float> none({0, 1, 2, 3, {1, 4, 4}, {1, 3, 3}}, rng);
  convolution(none.args, nullptr, none.w.data(), nullptr, nullptr);
}

// A NaN or an infinity reaches the outputs that see it, and zeros around the input multiply none.
TEST(Convolution, SpecialValuesReachWhatSeesThem) {
  for_isas([](const std::string& isa) {
    std::mt19937 rng(3);
    // As a sum of products, and with fewer multiplications.
    for (const int64_t channels : {2, 40}) {
      Problem<float> p({1, 1, channels, channels, {1, 13, 21}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}},
                       rng);
      p.x.at(0, 1, 0, 2, 18) = std::numeric_limits<float>::quiet_NaN();
      p.x.at(0, 1, 0, 9, 9) = std::numeric_limits<float>::infinity();
      convolution(p.args, p.x.data.data(), p.w.data(), nullptr, p.y.data.data());
      for (int64_t h = 0; h < 13; ++h) {
        for (int64_t w = 0; w < 21; ++w) {
          const bool nan = h >= 1 && h <= 3 && w >= 17 && w <= 19;
          const bool infinity = h >= 8 && h <= 10 && w >= 8 && w <= 10;
          const float y = p.y.at(0, channels - 1, 0, h, w);
          EXPECT_EQ(!std::isfinite(y), nan || infinity) << isa << ": " << h << ", " << w;
          EXPECT_TRUE(!nan || std::isnan(y)) << isa << ": " << h << ", " << w;
        }
      }
    }
  });
}

TEST(Convolution, FewerMultiplicationsWhereTheyPay) {
  std::mt19937 rng(4);
  const auto takes = [&](const Shape& shape) {
    Problem<float> p(shape, rng);
    p.args.max_threads = 1;
    const auto done = cpu::winograd<float>(p.args, p.x.data.data(), p.w.data(), nullptr,
                                           p.y.data.data(), nullptr);
    return done.has_value();
  };
  const ConvolutionSizes kernel{1, 3, 3}, ones{1, 1, 1}, padding{0, 1, 1};
  EXPECT_TRUE(takes({1, 1, 64, 64, {1, 28, 28}, kernel, ones, padding}));
  EXPECT_TRUE(takes({1, 2, 64, 128, {1, 28, 28}, kernel, ones, padding}));
  EXPECT_FALSE(takes({1, 1, 3, 64, {1, 28, 28}, kernel, ones, padding}));
  EXPECT_FALSE(takes({1, 1, 64, 64, {1, 3, 3}, kernel, ones, padding}));
  EXPECT_FALSE(takes({1, 1, 64, 64, {1, 28, 28}, kernel, {1, 2, 2}, padding}));
  EXPECT_FALSE(takes({1, 1, 64, 64, {1, 28, 28}, kernel, ones, {0, 2, 2}, {1, 2, 2}}));
  EXPECT_FALSE(takes({1, 1, 64, 64, {1, 28, 28}, {1, 3, 5}, ones, {0, 1, 2}}));
  EXPECT_FALSE(takes({1, 64, 64, 64, {1, 28, 28}, kernel, ones, padding}));
}

std::string error_of(const ConvolutionArgs& args, const void* x = "", const void* w = "") {
  float y[4096];
  try {
    convolution(args, x, w, nullptr, y);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Convolution, RefusesWhatIsWrong) {
  std::mt19937 rng(3);
  const Problem<float> p({1, 2, 4, 6, {1, 5, 5}, {1, 3, 3}}, rng);
  const auto with = [&](auto&& change) {
    ConvolutionArgs args = p.args;
    change(args);
    return error_of(args);
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos ? ::testing::AssertionSuccess()
                                                : ::testing::AssertionFailure() << text;
  };
  EXPECT_TRUE(has(with([](auto& a) { a.dtype = Dtype::kBFloat16; }),
                  "convolution is for float32 and float64, not bfloat16"));
  EXPECT_TRUE(has(with([](auto& a) { a.batch = -1; }), "a size is negative: batch -1"));
  EXPECT_TRUE(has(with([](auto& a) { a.groups = 3; }), "3 groups do not divide 4 and 6 channels"));
  EXPECT_TRUE(has(with([](auto& a) { a.stride[1] = 0; }), "dimension 1 has input 5"));
  EXPECT_TRUE(has(with([](auto& a) { a.out_size[2] = 4; }), "dimension 2 gives 3 outputs, not 4"));
  EXPECT_TRUE(has(error_of(p.args, nullptr), "x has elements but is null"));
  EXPECT_TRUE(has(error_of(p.args, "", nullptr), "w has elements but is null"));
}

}  // namespace
}  // namespace hologram
