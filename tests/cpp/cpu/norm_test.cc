// SPDX-License-Identifier: MIT
// Compares layer norm and batch norm with loops in float64 over shapes, layouts and dtypes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/parallel.h"
#include "src/cpu/device/call_table.h"
#include "tests/cpp/cpu/isa_test.h"

namespace hologram {
namespace {

using Values = std::vector<double>;

Values normal(size_t n, unsigned seed, double mean = 0.5) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> draw(mean, 2);
  Values values(n);
  for (double& v : values) v = draw(rng);
  return values;
}

// A dense array of up to three dimensions in some dtype, from and to float64 in row-major order.
struct Array {
  std::vector<int64_t> shape, strides;
  Dtype dtype;
  std::vector<char> bytes;

  // `order` names the dimensions from the outermost in memory to the innermost.
  Array(Dtype type, std::vector<int64_t> sizes, std::vector<int> order = {})
      : shape(std::move(sizes)), strides(shape.size()), dtype(type) {
    if (order.empty()) {
      for (size_t i = 0; i < shape.size(); ++i) order.push_back(static_cast<int>(i));
    }
    int64_t step = 1;
    for (size_t i = order.size(); i-- > 0;) {
      strides[static_cast<size_t>(order[i])] = step;
      step *= shape[static_cast<size_t>(order[i])];
    }
    bytes.assign(static_cast<size_t>(step + 1) * itemsize(type), 0);
  }
  View view() {
    return {bytes.data(), dtype, static_cast<int>(shape.size()), shape.data(), strides.data()};
  }
  size_t numel() const {
    size_t n = 1;
    for (const int64_t size : shape) n *= static_cast<size_t>(size);
    return n;
  }
  // Rounds the values to the dtype and gives what they became.
  Values set(Values values) {
    std::vector<int64_t> dense = dense_strides();
    copy({values.data(), Dtype::kFloat64, static_cast<int>(shape.size()), shape.data(),
          dense.data()},
         view());
    return get();
  }
  Values get() {
    Values values(numel());
    std::vector<int64_t> dense = dense_strides();
    copy(view(), {values.data(), Dtype::kFloat64, static_cast<int>(shape.size()), shape.data(),
                  dense.data()});
    return values;
  }
  std::vector<int64_t> dense_strides() const {
    std::vector<int64_t> dense(shape.size());
    int64_t step = 1;
    for (size_t i = shape.size(); i-- > 0;) dense[i] = step, step *= shape[i];
    return dense;
  }
};

double tolerance(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return 0x1p-10;
    case Dtype::kBFloat16:
      return 0x1p-7;
    case Dtype::kFloat32:
      return 1e-6;
    default:
      return 1e-14;
  }
}

void expect_near(const Values& actual, const Values& expected, double tol, const std::string& what,
                 double least = 1e-30) {
  double largest = least;
  for (const double e : expected) largest = std::max(largest, std::abs(e));
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_LE(std::abs(actual[i] - expected[i]), tol * largest) << what << " at " << i;
  }
}

class NormTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isas, NormTest, kEveryIsa, isa_of);

// The calls as functions of views; null: not given. `threads` 0: as many as there are.
void layer_norm(const View& in, const View* weight, const View* bias, double eps, const View& out,
                const View& mean, const View& rstd, int threads = 0) {
  cpu::run(calls::LayerNorm<>{.input = in,
                              .weight = weight,
                              .bias = bias,
                              .eps = eps,
                              .out = out,
                              .mean = mean,
                              .rstd = rstd},
           CallThreads(threads));
}
void layer_norm_backward(const View& grad, const View& in, const View& mean, const View& rstd,
                         const View* weight, const View* grad_in, const View* grad_weight,
                         const View* grad_bias, int threads = 0) {
  cpu::run(calls::LayerNormBackward<>{.grad = grad,
                                      .input = in,
                                      .mean = mean,
                                      .rstd = rstd,
                                      .weight = weight,
                                      .grad_input = grad_in,
                                      .grad_weight = grad_weight,
                                      .grad_bias = grad_bias},
           CallThreads(threads));
}

const Dtype kFloats[] = {Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64};

// --- Layer norm ---------------------------------------------------------------------------------

struct RowStats {
  double mean, rstd;
};
RowStats row_stats(const double* x, int64_t n, double eps) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, 1 / std::sqrt(squares / static_cast<double>(n) + eps)};
}

TEST_P(NormTest, LayerNormAgreesWithLoops) {
  constexpr double kEps = 1e-3;
  for (const Dtype dtype : kFloats) {
    for (const int64_t n : {1, 3, 16, 33, 100, 768, 5000}) {
      for (const int64_t rows : {1, 5, 70}) {
        const auto count = static_cast<size_t>(rows * n);
        const Dtype param = dtype == Dtype::kFloat16 ? Dtype::kFloat32 : dtype;
        const std::string what =
            std::string(dtype_name(dtype)) + " " + std::to_string(rows) + " x " + std::to_string(n);
        Array in(dtype, {rows, n}), grad(dtype, {rows, n}), out(dtype, {rows, n}),
            grad_in(dtype, {rows, n});
        Array weight(param, {n}), bias(param, {n}), grad_weight(param, {n}), grad_bias(param, {n});
        Array mean(param, {rows}), rstd(param, {rows});
        const Values x = in.set(normal(count, 1)), dy = grad.set(normal(count, 2));
        const Values w = weight.set(normal(static_cast<size_t>(n), 3));
        const Values b = bias.set(normal(static_cast<size_t>(n), 4));
        const View vw = weight.view(), vb = bias.view();
        layer_norm(in.view(), &vw, &vb, kEps, out.view(), mean.view(), rstd.view(), 3);
        Values y(count), dx(count), dw(static_cast<size_t>(n)), db(static_cast<size_t>(n));
        Values means(static_cast<size_t>(rows)), rstds(static_cast<size_t>(rows));
        const auto wide = [](int64_t i) { return static_cast<size_t>(i); };
        for (int64_t r = 0; r < rows; ++r) {
          const RowStats s = row_stats(&x[wide(r * n)], n, kEps);
          means[wide(r)] = s.mean, rstds[wide(r)] = s.rstd;
          for (int64_t i = 0; i < n; ++i) {
            const double scaled = (x[wide(r * n + i)] - s.mean) * s.rstd;
            y[wide(r * n + i)] = scaled * w[wide(i)] + b[wide(i)];
          }
        }
        const double tol = 2 * tolerance(dtype);
        expect_near(out.get(), y, tol, what + " out");
        expect_near(mean.get(), means, tol, what + " mean", 1);
        expect_near(rstd.get(), rstds, tol, what + " rstd");
        // The gradients of the statistics as they were rounded.
        means = mean.get(), rstds = rstd.get();
        for (int64_t r = 0; r < rows; ++r) {
          double sum = 0, dot = 0;
          for (int64_t i = 0; i < n; ++i) {
            const double centred = x[wide(r * n + i)] - means[wide(r)];
            const double g = dy[wide(r * n + i)] * w[wide(i)];
            sum += g, dot += g * centred;
            dw[wide(i)] += dy[wide(r * n + i)] * centred * rstds[wide(r)];
            db[wide(i)] += dy[wide(r * n + i)];
          }
          const double s = rstds[wide(r)], count_n = static_cast<double>(n);
          for (int64_t i = 0; i < n; ++i) {
            const double centred = x[wide(r * n + i)] - means[wide(r)];
            const double g = dy[wide(r * n + i)] * w[wide(i)];
            dx[wide(r * n + i)] = s * (g - sum / count_n - centred * s * s * dot / count_n);
          }
        }
        const View vdx = grad_in.view(), vdw = grad_weight.view(), vdb = grad_bias.view();
        layer_norm_backward(grad.view(), in.view(), mean.view(), rstd.view(), &vw, &vdx, &vdw, &vdb,
                            3);
        expect_near(grad_in.get(), dx, std::max(tol, n == 1 ? 1.0 : 0.0), what + " grad_in");
        expect_near(grad_weight.get(), dw, 4 * tol, what + " grad_weight");
        expect_near(grad_bias.get(), db, 4 * tol, what + " grad_bias");
        // Only some of them, and without parameters.
        Array only(dtype, {rows, n}), sums(param, {n});
        const View vonly = only.view(), vsums = sums.view();
        layer_norm_backward(grad.view(), in.view(), mean.view(), rstd.view(), &vw, &vonly, nullptr,
                            nullptr);
        EXPECT_EQ(only.get(), grad_in.get()) << what;
        layer_norm_backward(grad.view(), in.view(), mean.view(), rstd.view(), &vw, nullptr, nullptr,
                            &vsums);
        EXPECT_EQ(sums.get(), grad_bias.get()) << what;
        layer_norm(in.view(), nullptr, nullptr, kEps, out.view(), mean.view(), rstd.view());
        for (size_t i = 0; i < count; ++i) {
          const auto column = i % static_cast<size_t>(n);
          y[i] = w[column] == 0 ? 0 : (y[i] - b[column]) / w[column];
        }
        expect_near(out.get(), y, 2 * tol, what + " plain");
      }
    }
  }
}

TEST_P(NormTest, LayerNormHasTheSameBitsForAnyThreads) {
  constexpr int64_t kRows = 500, kN = 300;
  Array in(Dtype::kFloat32, {kRows, kN}), grad(Dtype::kFloat32, {kRows, kN});
  in.set(normal(kRows * kN, 1)), grad.set(normal(kRows * kN, 2));
  std::vector<std::vector<char>> results[4];
  for (const int threads : {1, 2, 7}) {
    Array out(Dtype::kFloat32, {kRows, kN}), dx = out, dw(Dtype::kFloat32, {kN}), db = dw;
    Array mean(Dtype::kFloat32, {kRows}), rstd = mean;
    layer_norm(in.view(), nullptr, nullptr, 1e-5, out.view(), mean.view(), rstd.view(), threads);
    const View vdx = dx.view(), vdw = dw.view(), vdb = db.view();
    layer_norm_backward(grad.view(), in.view(), mean.view(), rstd.view(), nullptr, &vdx, &vdw, &vdb,
                        threads);
    results[0].push_back(out.bytes), results[1].push_back(dx.bytes);
    results[2].push_back(dw.bytes), results[3].push_back(db.bytes);
  }
  for (const auto& result : results) {
    EXPECT_TRUE(result[0] == result[1] && result[0] == result[2]);
  }
}

// --- Batch norm ---------------------------------------------------------------------------------

TEST_P(NormTest, BatchNormAgreesWithLoops) {
  constexpr double kEps = 1e-3, kMomentum = 0.3;
  struct Case {
    int64_t batch, channels, size;
    std::vector<int> order;
  };
  const Case cases[] = {
      {3, 5, 7, {0, 1, 2}},    {2, 3, 5000, {0, 1, 2}},  {90, 40, 9, {0, 1, 2}},
      {4, 5, 7, {0, 1, 2}},    {3, 5, 7, {0, 2, 1}},     {4, 70, 50, {0, 2, 1}},
      {300, 20, 1, {0, 2, 1}}, {2, 2000, 6, {0, 2, 1}},  {1, 1, 40, {0, 1, 2}},
      {2, 1, 3000, {0, 2, 1}}, {64, 2, 1000, {0, 1, 2}}, {1, 130, 2, {0, 1, 2}},
      {3, 2500, 1, {0, 1, 2}}, {9, 300, 2, {0, 2, 1}},   {300, 270, 1, {0, 1, 2}}};
  const auto wide = [](int64_t i) { return static_cast<size_t>(i); };
  for (const Dtype dtype : kFloats) {
    for (const Case& c : cases) {
      for (const bool training : {true, false}) {
        const Dtype param = dtype == Dtype::kFloat16 ? Dtype::kFloat32 : dtype;
        const std::string what = std::string(dtype_name(dtype)) + " " + std::to_string(c.batch) +
                                 " x " + std::to_string(c.channels) + " x " +
                                 std::to_string(c.size) + (training ? " training" : "");
        const std::vector<int64_t> shape{c.batch, c.channels, c.size};
        const size_t count = wide(c.batch * c.channels * c.size), channels = wide(c.channels);
        Array in(dtype, shape, c.order), out = in, grad = in, grad_in = in;
        Array weight(param, {c.channels}), bias = weight, running_mean = weight,
                                           running_var = weight, mean = weight, invstd = weight,
                                           grad_weight = weight, grad_bias = weight;
        const Values x = in.set(normal(count, 1)), dy = grad.set(normal(count, 2));
        const Values w = weight.set(normal(channels, 3)), b = bias.set(normal(channels, 4));
        const Values rm = running_mean.set(normal(channels, 5));
        const Values rv = running_var.set(Values(channels, 1.5));
        const View vw = weight.view(), vb = bias.view(), vrm = running_mean.view(),
                   vrv = running_var.view(), vm = mean.view(), vi = invstd.view();
        cpu::run(calls::BatchNorm<>{.input = in.view(),
                                    .weight = vw,
                                    .bias = vb,
                                    .running_mean = vrm,
                                    .running_var = vrv,
                                    .training = training,
                                    .momentum = kMomentum,
                                    .eps = kEps,
                                    .out = out.view(),
                                    .save_mean = vm,
                                    .save_invstd = vi},
                 CallThreads(3));

        const auto n = static_cast<double>(c.batch * c.size);
        Values y(count), dx(count), means(channels), invstds(channels), new_rm = rm, new_rv = rv,
                                                                        dw(channels), db(channels);
        const auto each = [&](int64_t channel, auto&& f) {
          for (int64_t k = 0; k < c.batch; ++k) {
            for (int64_t i = 0; i < c.size; ++i) f(wide((k * c.channels + channel) * c.size + i));
          }
        };
        for (int64_t channel = 0; channel < c.channels; ++channel) {
          const size_t k = wide(channel);
          double sum = 0, squares = 0;
          each(channel, [&](size_t i) { sum += x[i]; });
          double m = sum / n;
          each(channel, [&](size_t i) { squares += (x[i] - m) * (x[i] - m); });
          double var = squares / n;
          if (training) {
            new_rm[k] = kMomentum * m + (1 - kMomentum) * rm[k];
            new_rv[k] = kMomentum * squares / (n - 1) + (1 - kMomentum) * rv[k];
          } else {
            m = rm[k], var = rv[k];
          }
          means[k] = m, invstds[k] = 1 / std::sqrt(var + kEps);
          each(channel, [&](size_t i) { y[i] = (x[i] - m) * invstds[k] * w[k] + b[k]; });
        }
        const double tol = 2 * tolerance(dtype), stat = tolerance(param);
        expect_near(out.get(), y, tol, what + " out");
        if (training) {
          // A mean may be near zero without its elements being so.
          expect_near(mean.get(), means, stat, what + " mean", 1);
          expect_near(invstd.get(), invstds, stat, what + " invstd");
          means = mean.get(), invstds = invstd.get();
        }
        expect_near(running_mean.get(), new_rm, stat, what + " running_mean", 1);
        expect_near(running_var.get(), new_rv, stat, what + " running_var");

        for (int64_t channel = 0; channel < c.channels; ++channel) {
          const size_t k = wide(channel);
          double sum = 0, dot = 0;
          each(channel, [&](size_t i) { sum += dy[i], dot += dy[i] * (x[i] - means[k]); });
          dw[k] = dot * invstds[k], db[k] = sum;
          each(channel, [&](size_t i) {
            const double rest =
                training ? sum / n + (x[i] - means[k]) * invstds[k] * invstds[k] * dot / n : 0;
            dx[i] = (dy[i] - rest) * invstds[k] * w[k];
          });
        }
        const View vdx = grad_in.view(), vdw = grad_weight.view(), vdb = grad_bias.view();
        // The running statistics must be those that were used.
        running_mean.set(rm), running_var.set(rv);
        calls::BatchNormBackward<> backward{.grad = grad.view(),
                                            .input = in.view(),
                                            .weight = vw,
                                            .running_mean = vrm,
                                            .running_var = vrv,
                                            .save_mean = vm,
                                            .save_invstd = vi,
                                            .training = training,
                                            .eps = kEps,
                                            .grad_input = vdx,
                                            .grad_weight = vdw,
                                            .grad_bias = vdb};
        cpu::run(backward, CallThreads(3));
        expect_near(grad_in.get(), dx, 2 * tol, what + " grad_in");
        expect_near(grad_weight.get(), dw, 4 * tol, what + " grad_weight");
        expect_near(grad_bias.get(), db, 4 * tol, what + " grad_bias");
        Array only = in;
        const View vonly = only.view();
        backward.grad_input = vonly, backward.grad_weight = {}, backward.grad_bias = {};
        cpu::run(backward, CallThreads(3));
        EXPECT_EQ(only.get(), grad_in.get()) << what;
      }
    }
  }
}

TEST_P(NormTest, BatchNormHasTheSameBitsForAnyThreads) {
  const std::vector<int> orders[] = {{0, 1, 2}, {0, 2, 1}, {0, 1, 2}};
  const std::vector<int64_t> shapes[] = {{40, 6, 900}, {40, 6, 900}, {17, 2000, 1}};
  for (int c = 0; c < 3; ++c) {
    const std::vector<int64_t>& shape = shapes[c];
    const std::vector<int>& order = orders[c];
    Array in(Dtype::kFloat32, shape, order), grad = in;
    in.set(normal(in.numel(), 1)), grad.set(normal(in.numel(), 2));
    std::vector<std::vector<char>> results[4];
    for (const int threads : {1, 2, 7}) {
      Array out = in, dx = in, mean(Dtype::kFloat32, {shape[1]}), invstd = mean, dw = mean,
            db = mean;
      const View vm = mean.view(), vi = invstd.view(), vdx = dx.view(), vdw = dw.view(),
                 vdb = db.view();
      cpu::run(calls::BatchNorm<>{.input = in.view(),
                                  .training = true,
                                  .out = out.view(),
                                  .save_mean = vm,
                                  .save_invstd = vi},
               CallThreads(threads));
      cpu::run(calls::BatchNormBackward<>{.grad = grad.view(),
                                          .input = in.view(),
                                          .save_mean = vm,
                                          .save_invstd = vi,
                                          .training = true,
                                          .grad_input = vdx,
                                          .grad_weight = vdw,
                                          .grad_bias = vdb},
               CallThreads(threads));
      results[0].push_back(out.bytes), results[1].push_back(dx.bytes);
      results[2].push_back(dw.bytes), results[3].push_back(mean.bytes);
    }
    for (const auto& result : results) {
      EXPECT_TRUE(result[0] == result[1] && result[0] == result[2]);
    }
  }
}

}  // namespace
}  // namespace hologram
