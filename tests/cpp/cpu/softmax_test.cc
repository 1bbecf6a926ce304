// SPDX-License-Identifier: MIT
// Compares softmax and its relatives with loops in float64 over shapes, layouts, dimensions and
// dtypes.
#include "hologram/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "tests/cpp/cpu/isa_test.h"

namespace hologram {
namespace {

struct Array {
  int64_t shape[3], strides[3];
  Dtype dtype;
  std::vector<char> bytes;

  Array(Dtype type, const int64_t* sizes, const int* order, int64_t gap) : dtype(type) {
    int64_t step = gap;
    for (int i = 2; i >= 0; --i) {
      shape[order[i]] = sizes[order[i]];
      strides[order[i]] = step;
      step *= sizes[order[i]];
    }
    bytes.assign(static_cast<size_t>(step) * itemsize(type), 0);
  }
  View view() { return {bytes.data(), dtype, 3, shape, strides}; }
  View dense(std::vector<double>& values, int64_t* steps) {
    steps[2] = 1, steps[1] = shape[2], steps[0] = shape[1] * shape[2];
    values.resize(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
    return {values.data(), Dtype::kFloat64, 3, shape, steps};
  }
  void set(std::vector<double> values) {
    int64_t steps[3];
    copy(dense(values, steps), view());
  }
  std::vector<double> get() {
    std::vector<double> values;
    int64_t steps[3];
    copy(view(), dense(values, steps));
    return values;
  }
};

// Applies f to every line of x (and y) along dim.
template <class F>
std::vector<double> lines(const int64_t* shape, int dim, const std::vector<double>& x,
                          const std::vector<double>& y, F&& f) {
  std::vector<double> out(x.size());
  const int64_t step = dim == 2 ? 1 : dim == 1 ? shape[2] : shape[1] * shape[2];
  const int64_t n = shape[dim];
  for (int64_t start = 0; start < static_cast<int64_t>(x.size()); ++start) {
    if (start / step % n != 0) continue;
    std::vector<double> a, b;
    for (int64_t i = 0; i < n; ++i) {
      a.push_back(x[static_cast<size_t>(start + i * step)]);
      b.push_back(y[static_cast<size_t>(start + i * step)]);
    }
    f(a, b);
    for (int64_t i = 0; i < n; ++i)
      out[static_cast<size_t>(start + i * step)] = a[static_cast<size_t>(i)];
  }
  return out;
}

void oracle(int op, std::vector<double>& a, const std::vector<double>& b) {
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const double v : a) max = v != v ? v : std::max(max, v);
  if (op < 2) {
    for (const double v : a) sum += std::exp(v - max);
    for (double& v : a) v = op == 0 ? std::exp(v - max) / sum : v - max - std::log(sum);
  } else {
    for (size_t i = 0; i < a.size(); ++i) sum += op == 2 ? a[i] * b[i] : a[i];
    for (size_t i = 0; i < a.size(); ++i)
      a[i] = op == 2 ? (a[i] - sum) * b[i] : a[i] - std::exp(b[i]) * sum;
  }
}

class SoftmaxTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isas, SoftmaxTest, kEveryIsa, isa_of);

double tolerance(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return 0x1p-10;
    case Dtype::kBFloat16:
      return 0x1p-7;
    case Dtype::kFloat32:
      return 3e-6;
    default:
      return 1e-14;
  }
}

TEST_P(SoftmaxTest, AgreesWithLoops) {
  std::mt19937 rng(5);
  std::normal_distribution<double> normal(0, 3);
  const Dtype dtypes[] = {Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat32,
                          Dtype::kFloat64};
  // Up to four vectors of each type, and around the borders between them.
  const int64_t sizes[] = {1,  2,  3,  5,  7,  8,  9,  10, 15, 16,
                           17, 25, 31, 32, 33, 49, 63, 64, 65, 100};
  for (int round = 0; round < 1500; ++round) {
    int64_t shape[3];
    for (auto& s : shape) s = sizes[rng() % std::size(sizes)];
    if (round % 40 == 0) shape[0] = 1, shape[1] = 2, shape[2] = 5000;
    if (round % 40 == 1) shape[0] = 3, shape[1] = 5000, shape[2] = 2;
    if (shape[0] * shape[1] * shape[2] > 40000) continue;
    const int dim = static_cast<int>(rng() % 3), op = static_cast<int>(rng() % 4);
    int order[3] = {0, 1, 2}, out_order[3] = {0, 1, 2};
    if (rng() % 2) std::shuffle(order, order + 3, rng), std::copy(order, order + 3, out_order);
    if (rng() % 4 == 0) std::shuffle(out_order, out_order + 3, rng);
    const Dtype dtype = dtypes[rng() % 5];
    const Dtype out_dtype = rng() % 4 == 0 ? dtypes[rng() % 5] : dtype;
    Array a(dtype, shape, order, rng() % 4 ? 1 : 2), b(dtype, shape, order, 1),
        out(out_dtype, shape, out_order, rng() % 4 ? 1 : 2);
    std::vector<double> x(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
    for (double& v : x) v = normal(rng);
    if (round % 7 == 0) {
      x[rng() % x.size()] = -std::numeric_limits<double>::infinity();
      if (round % 2) x[rng() % x.size()] = std::numeric_limits<double>::quiet_NaN();
      for (int64_t i = 0; i < 8 && op < 2 && round % 3 == 0; ++i)
        x[rng() % x.size()] = std::numeric_limits<double>::infinity();
    }
    a.set(x);
    for (double& v : x) v = op == 3 ? -std::abs(normal(rng)) : std::abs(normal(rng)) / 9;
    b.set(x);
    const auto run = [&](int threads) {
      switch (op) {
        case 0:
          return softmax(a.view(), dim, out.view(), threads);
        case 1:
          return log_softmax(a.view(), dim - 3, out.view(), threads);
        case 2:
          return softmax_backward(a.view(), b.view(), dim, out.view(), threads);
        default:
          return log_softmax_backward(a.view(), b.view(), dim, out.view(), threads);
      }
    };
    run(1);
    const auto got = out.get();
    const auto xs = a.get(), ys = b.get();
    const auto want = lines(shape, dim, xs, ys, [&](auto& l, auto& m) { oracle(op, l, m); });
    const double slack =
        tolerance(out_dtype) + tolerance(dtype == Dtype::kFloat64 || out_dtype == Dtype::kFloat64
                                             ? Dtype::kFloat64
                                             : Dtype::kFloat32);
    double largest = 1;
    for (const double v : xs) largest = std::max(largest, std::isfinite(v) ? std::abs(v) : 0);
    if (op >= 2) largest *= static_cast<double>(shape[dim]) / 4 + 1;
    for (size_t i = 0; i < got.size(); ++i) {
      const std::string what = "op " + std::to_string(op) + " round " + std::to_string(round) +
                               " at " + std::to_string(i);
      if (std::isnan(want[i])) {
        ASSERT_TRUE(std::isnan(got[i])) << what;
      } else if (std::isinf(want[i])) {
        ASSERT_EQ(got[i], want[i]) << what;
      } else {
        const double bound =
            op == 0 ? slack * want[i] + 1e-7 : slack * std::max(std::abs(want[i]), largest);
        ASSERT_NEAR(got[i], want[i], bound) << what;
      }
    }
    const auto before = out.bytes;
    run(2);
    ASSERT_EQ(before, out.bytes) << "thread count changed the result";
  }
}

TEST(SoftmaxErrors, AreClear) {
  int64_t shape[3] = {2, 3, 4};
  int order[3] = {0, 1, 2};
  Array a(Dtype::kFloat32, shape, order, 1), ints(Dtype::kInt32, shape, order, 1);
  EXPECT_THROW(softmax(a.view(), 3, a.view()), Error);
  EXPECT_THROW(softmax(ints.view(), 1, a.view()), Error);
  float x = 3, y = 0;
  softmax({&x, Dtype::kFloat32, 0, nullptr, nullptr}, -1,
          {&y, Dtype::kFloat32, 0, nullptr, nullptr});
  EXPECT_EQ(y, 1.0f);
}

}  // namespace
}  // namespace hologram
