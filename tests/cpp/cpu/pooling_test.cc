// SPDX-License-Identifier: MIT
// Compares max pooling and its gradient with plain loops.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hologram/cpu_info.h"
#include "hologram/error.h"
#include "src/cpu/conv/convolution.h"
#include "src/cpu/device/call_table.h"
#include "tests/cpp/cpu/vector_views.h"

namespace hologram {
namespace {

int64_t count(const ConvolutionSizes& s) { return s[0] * s[1] * s[2]; }

// Windows over planes, in three dimensions.
struct Pooling {
  int64_t planes;
  ConvolutionSizes in_size, out_size, kernel;
  ConvolutionSizes stride{1, 1, 1}, padding{}, dilation{1, 1, 1};

  std::vector<int64_t> shape(const ConvolutionSizes& size) const {
    return {1, planes, size[0], size[1], size[2]};
  }
};

// The position that window `at` of a plane chooses.
int64_t choose(const Pooling& a, const double* plane, int64_t at) {
  const ConvolutionSizes& in = a.in_size;
  const int64_t out[] = {at / (a.out_size[1] * a.out_size[2]), at / a.out_size[2] % a.out_size[1],
                         at % a.out_size[2]};
  int64_t best = -1;
  for (int64_t tap = 0; tap < count(a.kernel); ++tap) {
    const int64_t t[] = {tap / (a.kernel[1] * a.kernel[2]), tap / a.kernel[2] % a.kernel[1],
                         tap % a.kernel[2]};
    int64_t position = 0;
    bool inside = true;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t p = out[i] * a.stride[i] - a.padding[i] + t[i] * a.dilation[i];
      inside = inside && p >= 0 && p < in[i];
      position = position * in[i] + p;
    }
    if (!inside) continue;
    const double x = plane[position];
    if (best < 0 || x > plane[best] || x != x) best = position;
  }
  return best;
}

template <class T>
void check(const Pooling& a, const std::string& where) {
  const size_t size = static_cast<size_t>(count(a.in_size)), planes = static_cast<size_t>(a.planes);
  const size_t places = static_cast<size_t>(count(a.out_size));
  std::mt19937 rng(7);
  std::vector<double> x(planes * size);
  for (double& v : x) v = static_cast<double>(rng() % 50) - 25;
  x[size / 2] = std::numeric_limits<double>::quiet_NaN();
  x[0] = -std::numeric_limits<double>::infinity();
  const std::vector<T> from(x.begin(), x.end());
  std::vector<T> y(planes * places), alone(planes * places), grad(planes * places),
      grad_x(planes * size, T(7));
  std::vector<int64_t> positions(planes * places);
  for (size_t i = 0; i < grad.size(); ++i) grad[i] = static_cast<T>(i % 16);
  for (const int threads : {1, 3}) {
    VectorViews view;
    calls::MaxPool<> call{.input = view(from, a.shape(a.in_size)),
                          .kernel_size = a.kernel,
                          .stride = a.stride,
                          .padding = a.padding,
                          .dilation = a.dilation,
                          .out = view(alone, a.shape(a.out_size))};
    cpu::run(call, CallThreads(threads));
    call.out = view(y, a.shape(a.out_size));
    call.positions = view(positions, a.shape(a.out_size));
    cpu::run(call, CallThreads(threads));
    cpu::run(calls::MaxPoolBackward<>{.grad = view(grad, a.shape(a.out_size)),
                                      .positions = view(positions, a.shape(a.out_size)),
                                      .kernel_size = a.kernel,
                                      .stride = a.stride,
                                      .padding = a.padding,
                                      .dilation = a.dilation,
                                      .grad_input = view(grad_x, a.shape(a.in_size))},
             CallThreads(threads));
    std::vector<T> sums(planes * size);
    for (size_t i = 0; i < planes * places; ++i) {
      const size_t plane = i / places * size;
      const int64_t at = choose(a, x.data() + plane, static_cast<int64_t>(i % places));
      ASSERT_EQ(positions[i], at) << where << " at " << i;
      const T value = from[plane + static_cast<size_t>(at)];
      for (const T got : {y[i], alone[i]}) {
        ASSERT_TRUE(got == value || (got != got && value != value)) << where << " at " << i;
      }
      sums[plane + static_cast<size_t>(at)] += grad[i];
    }
    ASSERT_EQ(grad_x, sums) << where;
  }
}

TEST(MaxPool, FindsTheLargestOfEachWindow) {
  const Isa best = current_isa();
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_available(isa)) continue;
    force_isa(isa);
    const std::string name(isa_name(isa));
    check<float>({200, {1, 8, 12}, {1, 4, 6}, {1, 2, 2}, {1, 2, 2}}, name + ", 2 x 2");
    check<float>({40, {1, 30, 33}, {1, 15, 17}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}}, name + ", 3 x 3");
    check<double>({80, {4, 9, 7}, {2, 5, 3}, {3, 1, 3}, {1, 2, 1}, {}, {1, 1, 2}},
                  name + ", three dimensions");
    check<double>({40, {1, 5, 90}, {1, 2, 4}, {1, 3, 8}, {1, 3, 30}, {0, 1, 2}},
                  name + ", wide strides");
  }
  force_isa(best);
}

TEST(MaxPool, GradientsStayInTheirPlane) {
  const Pooling a{2, {1, 4, 4}, {1, 2, 2}, {1, 2, 2}, {1, 2, 2}};
  const std::vector<float> grad(8, 1.0f);
  for (const int64_t outside : {int64_t{-1}, int64_t{16}, INT64_MIN, INT64_MAX}) {
    std::vector<int64_t> positions(8, 5);
    positions[3] = outside;
    std::vector<float> grad_x(16 * 4, 7.0f);  // the planes in the middle of it
    VectorViews view;
    View planes = view(grad_x, a.shape(a.in_size));
    planes.data = grad_x.data() + 16;
    try {
      cpu::run(calls::MaxPoolBackward<>{.grad = view(grad, a.shape(a.out_size)),
                                        .positions = view(positions, a.shape(a.out_size)),
                                        .kernel_size = a.kernel,
                                        .stride = a.stride,
                                        .padding = a.padding,
                                        .dilation = a.dilation,
                                        .grad_input = planes},
               CallThreads(1));
      ADD_FAILURE() << outside << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIndex);
      EXPECT_STREQ(error.what(),
                   "max_pool_backward: a position is outside of the plane of 16 elements that was "
                   "pooled; pass the positions that max_pool gave");
    }
    EXPECT_EQ(grad_x[16 + 5], 3);
    EXPECT_EQ(grad_x[32 + 5], 4);
    for (const size_t i : {0, 15, 48, 63}) EXPECT_EQ(grad_x[i], 7) << i;
  }
}

}  // namespace
}  // namespace hologram
