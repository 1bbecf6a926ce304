// SPDX-License-Identifier: MIT
// Compares losses with their formulas in float64, and gradients with central differences of those.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/loss.h"
#include "src/cpu/device/call_table.h"
#include "tests/cpp/cpu/isa_test.h"

namespace hologram {
namespace {

struct Array {
  std::vector<int64_t> shape, strides;
  Dtype dtype;
  std::vector<char> bytes;
  Array(Dtype type, const std::vector<int64_t>& sizes, bool reversed = false)
      : shape(sizes), strides(sizes.size()), dtype(type) {
    int64_t step = 1;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const size_t at = reversed ? i : sizes.size() - 1 - i;
      strides[at] = step;
      step *= shape[at];
    }
    bytes.assign(static_cast<size_t>(std::max<int64_t>(step, 1)) * itemsize(type), 0);
  }
  View view() {
    return {bytes.data(), dtype, static_cast<int>(shape.size()), shape.data(), strides.data()};
  }
  int64_t numel() { return view().numel(); }
  View dense(std::vector<double>& values, std::vector<int64_t>& steps) {
    values.resize(static_cast<size_t>(numel()));
    steps.assign(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) steps[i - 1] = steps[i] * shape[i];
    return {values.data(), Dtype::kFloat64, static_cast<int>(shape.size()), shape.data(),
            steps.data()};
  }
  void set(std::vector<double> values) {
    std::vector<int64_t> steps;
    copy(dense(values, steps), view());
  }
  std::vector<double> get() {
    std::vector<double> values;
    std::vector<int64_t> steps;
    copy(view(), dense(values, steps));
    return values;
  }
};

template <class Call>
std::string message_of(const Call& call) {
  try {
    cpu::run(call, CallThreads(1));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class LossTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isas, LossTest, kEveryIsa, isa_of);

double formula(PointLoss loss, double x, double y, double param, double pw) {
  const double z = std::abs(x - y);
  switch (loss) {
    case PointLoss::mse:
      return z * z;
    case PointLoss::l1:
      return z;
    case PointLoss::smooth_l1:
      return z < param ? z * z / (2 * param) : z - param / 2;
    case PointLoss::huber:
      return z <= param ? z * z / 2 : param * (z - param / 2);
    case PointLoss::bce:
      return -(y * std::max(std::log(x), -100.0) + (1 - y) * std::max(std::log1p(-x), -100.0));
    case PointLoss::bce_with_logits:
      return -(pw * y * -std::log1p(std::exp(-x)) + (1 - y) * -(x + std::log1p(std::exp(-x))));
    case PointLoss::kl_div:
      return y == 0 ? 0 : y * (std::log(y) - x);
    case PointLoss::kl_div_log:
      return std::exp(y) * (y - x);
  }
  return 0;
}

double tolerance(Dtype dtype) {
  return dtype == Dtype::kFloat64   ? 1e-13
         : dtype == Dtype::kFloat32 ? 2e-6
         : dtype == Dtype::kFloat16 ? 2e-3
                                    : 2e-2;
}

TEST_P(LossTest, PointLosses) {
  std::mt19937 rng(4);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0.02, 0.98);
  for (int round = 0; round < 240; ++round) {
    const auto loss = static_cast<PointLoss>(round % kPointLossCount);
    const Dtype dtypes[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kBFloat16, Dtype::kFloat16};
    const Dtype dtype = dtypes[rng() % 4];
    const bool probability = loss == PointLoss::bce, logits = loss == PointLoss::bce_with_logits;
    std::vector<int64_t> shape = {static_cast<int64_t>(rng() % 40 + 1),
                                  static_cast<int64_t>(rng() % 70 + 1)};
    if (round % 30 == 3) shape = {20000};  // enough for another thread
    Array x(dtype, shape, rng() % 2), y(dtype, shape, rng() % 2), out(dtype, shape, rng() % 2),
        grad(dtype, shape), one(dtype, {}), weight(dtype, {shape.back()}),
        pos(dtype, {shape.back()});
    const auto random = [&](int64_t n, bool in_unit) {
      std::vector<double> values(static_cast<size_t>(n));
      for (double& v : values) v = in_unit ? uniform(rng) : normal(rng);
      return values;
    };
    x.set(random(x.numel(), probability));
    y.set(random(y.numel(), probability || logits || loss == PointLoss::kl_div));
    weight.set(random(weight.numel(), true));
    pos.set(random(pos.numel(), true));
    const auto reduction = static_cast<LossReduction>(rng() % 3);
    const bool none = reduction == LossReduction::none;
    Array& result = none ? out : one;
    calls::PointLoss<> call{.input = x.view(),
                            .target = y.view(),
                            .loss = static_cast<int64_t>(loss),
                            .reduction = static_cast<int64_t>(reduction),
                            .parameter = 0.7,
                            .out = result.view()};
    if ((probability || logits) && rng() % 2) call.weight = weight.view();
    if (logits && rng() % 2) call.pos_weight = pos.view();
    const auto xs = x.get(), ys = y.get(), ws = weight.get(), ps = pos.get();
    std::vector<double> want(xs.size()), slope(xs.size());
    double total = 0, size = 0;
    for (size_t i = 0; i < xs.size(); ++i) {
      const size_t j = i % ws.size();
      const double w = call.weight.has_data() ? ws[j] : 1;
      const double p = call.pos_weight.has_data() ? ps[j] : 1;
      want[i] = w * formula(loss, xs[i], ys[i], call.parameter, p);
      const double h = 1e-6;
      slope[i] = w *
                 (formula(loss, xs[i] + h, ys[i], call.parameter, p) -
                  formula(loss, xs[i] - h, ys[i], call.parameter, p)) /
                 (2 * h);
      total += want[i], size += std::abs(want[i]);
    }
    cpu::run(call, CallThreads(1));
    const auto got = result.get();
    const double n = static_cast<double>(xs.size()), slack = tolerance(dtype);
    if (none) {
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], slack * (std::abs(want[i]) + 1)) << round;
    } else {
      const double mean = reduction == LossReduction::mean ? n : 1;
      const double limit =
          dtype == Dtype::kFloat16 ? 65000 : std::numeric_limits<double>::infinity();
      if (size < limit) {
        ASSERT_NEAR(got[0], total / mean, slack * size / mean) << round;
      }
    }
    Array seed(dtype, none ? shape : std::vector<int64_t>{});
    seed.set(random(seed.numel(), true));
    const calls::PointLossBackward<> backward{.grad = seed.view(),
                                              .input = call.input,
                                              .target = call.target,
                                              .weight = call.weight,
                                              .pos_weight = call.pos_weight,
                                              .loss = call.loss,
                                              .reduction = call.reduction,
                                              .parameter = call.parameter,
                                              .grad_input = grad.view()};
    cpu::run(backward, CallThreads(1));
    const auto seeds = seed.get(), grads = grad.get();
    for (size_t i = 0; i < grads.size(); ++i) {
      double g = seeds[none ? i : 0] * slope[i];
      if (reduction == LossReduction::mean) g /= n;
      // A central difference straddling a kink is no oracle.
      if (std::abs(std::abs(xs[i] - ys[i]) - call.parameter) < 1e-4 || xs[i] == ys[i]) continue;
      ASSERT_NEAR(grads[i], g, slack * (std::abs(g) * 2 + 0.02) + 1e-6)
          << static_cast<int>(loss) << " round " << round;
    }
    const auto first = result.bytes, first_grad = grad.bytes;
    cpu::run(call, CallThreads(2));
    cpu::run(backward, CallThreads(2));
    ASSERT_EQ(first, result.bytes);
    ASSERT_EQ(first_grad, grad.bytes);
  }
}

TEST_P(LossTest, PointLossEdges) {
  Array x(Dtype::kFloat32, {4}), y(Dtype::kFloat32, {4}), out(Dtype::kFloat32, {4});
  const auto call = [](PointLoss loss, LossReduction reduction, Array& in, Array& wanted,
                       Array& to) {
    return calls::PointLoss<>{.input = in.view(),
                              .target = wanted.view(),
                              .loss = static_cast<int64_t>(loss),
                              .reduction = static_cast<int64_t>(reduction),
                              .parameter = 1,
                              .out = to.view()};
  };
  const CallThreads one_thread(1);
  x.set({0, 1, 0, 1});
  y.set({0, 1, 1, 0});
  const auto bce = call(PointLoss::bce, LossReduction::none, x, y, out);
  cpu::run(bce, one_thread);
  EXPECT_EQ(out.get(), (std::vector<double>{0, 0, 100, 100}));
  x.set({-200, 200, 1000, -1000});
  cpu::run(call(PointLoss::bce_with_logits, LossReduction::none, x, y, out), one_thread);
  EXPECT_EQ(out.get(), (std::vector<double>{0, 0, 0, 0}));
  x.set({0, 1, 0, 1.5});
  EXPECT_EQ(message_of(bce),
            "binary_cross_entropy: all elements of input should be between 0 and 1; use "
            "bce_with_logits for logits");
  Array none(Dtype::kFloat32, {0}), one(Dtype::kFloat32, {});
  cpu::run(call(PointLoss::mse, LossReduction::mean, none, none, one), one_thread);
  EXPECT_TRUE(std::isnan(one.get()[0]));
}

// Loss of the flat logits [N, C, D] in float64; total receives the divisor of the mean.
std::vector<double> class_losses(const std::vector<double>& x, const std::vector<double>& t,
                                 const std::vector<double>& w, int64_t c, int64_t d,
                                 double smoothing, bool logits, double& total) {
  std::vector<double> out;
  total = 0;
  for (size_t i = 0; i < t.size(); ++i) {
    const int64_t n = static_cast<int64_t>(i) / d, s = static_cast<int64_t>(i) % d;
    const auto at = [&](int64_t k) { return x[static_cast<size_t>((n * c + k) * d + s)]; };
    double log_sum = 0;
    if (logits) {
      for (int64_t k = 0; k < c; ++k) log_sum += std::exp(at(k));
      log_sum = std::log(log_sum);
    }
    const int64_t k = static_cast<int64_t>(t[i]);
    if (k == -100) {
      out.push_back(0);
      continue;
    }
    double loss = -(1 - smoothing) * w[static_cast<size_t>(k)] * (at(k) - log_sum);
    for (int64_t j = 0; j < c; ++j)
      loss -= smoothing / static_cast<double>(c) * w[static_cast<size_t>(j)] * (at(j) - log_sum);
    total += w[static_cast<size_t>(k)];
    out.push_back(loss);
  }
  return out;
}

TEST_P(LossTest, ClassLosses) {
  std::mt19937 rng(8);
  std::normal_distribution<double> normal;
  for (int round = 0; round < 80; ++round) {
    const Dtype dtype = round % 3 == 0   ? Dtype::kFloat64
                        : round % 3 == 1 ? Dtype::kFloat32
                                         : Dtype::kBFloat16;
    const int64_t n = round % 7 == 0 ? 700 : static_cast<int64_t>(rng() % 6 + 1),
                  c = static_cast<int64_t>(rng() % 20 + 2),
                  d = round % 2 ? static_cast<int64_t>(rng() % 4 + 1) : 1;
    std::vector<int64_t> shape = {n, c}, target_shape = {n};
    if (d > 1) shape.push_back(d), target_shape.push_back(d);
    Array x(dtype, shape, rng() % 2), gx(dtype, shape, rng() % 2),
        t(Dtype::kInt64, target_shape, rng() % 2), w(dtype, {c}), total(dtype, {});
    std::vector<double> values(static_cast<size_t>(x.numel()));
    for (double& v : values) v = normal(rng);
    x.set(values);
    values.resize(static_cast<size_t>(t.numel()));
    for (double& v : values)
      v = rng() % 5 == 0 ? -100 : static_cast<double>(rng() % static_cast<unsigned>(c));
    t.set(values);
    values.assign(static_cast<size_t>(c), 1);
    if (round % 4 > 1)
      for (double& v : values) v = std::abs(normal(rng)) + 0.1;
    w.set(values);
    const auto reduction = static_cast<LossReduction>(rng() % 3);
    const View weights = w.view(), *given = round % 4 > 1 ? &weights : nullptr;
    const bool logits = round % 5 != 0;
    const double smoothing = logits && round % 3 == 0 ? 0.1 : 0;
    const bool none = reduction == LossReduction::none;
    Array out(dtype, none ? target_shape : std::vector<int64_t>{});
    Array seed(dtype, out.shape);
    values.assign(static_cast<size_t>(seed.numel()), 0.75);
    seed.set(values);
    const calls::NllLoss<> nll{.input = x.view(),
                               .target = t.view(),
                               .weight = given,
                               .reduction = static_cast<int64_t>(reduction),
                               .ignore_index = -100,
                               .out = out.view(),
                               .total_weight = total.view()};
    if (logits) {
      cpu::run(calls::CrossEntropy<>{.logits = nll.input,
                                     .target = nll.target,
                                     .weight = nll.weight,
                                     .reduction = nll.reduction,
                                     .ignore_index = nll.ignore_index,
                                     .label_smoothing = smoothing,
                                     .out = nll.out,
                                     .total_weight = nll.total_weight},
               CallThreads(0));
    } else {
      cpu::run(nll, CallThreads(0));
      cpu::run(calls::NllLossBackward<>{.grad = seed.view(),
                                        .target = nll.target,
                                        .weight = nll.weight,
                                        .total_weight = total.view(),
                                        .reduction = nll.reduction,
                                        .ignore_index = nll.ignore_index,
                                        .grad_input = gx.view()},
               CallThreads(0));
    }
    auto xs = x.get();
    const auto ts = t.get(), ws = w.get();
    double divisor = 0;
    const auto losses = class_losses(xs, ts, ws, c, d, smoothing, logits, divisor);
    const auto got = out.get();
    const double slack = tolerance(dtype) * (dtype == Dtype::kBFloat16 ? 3 : 1);
    double sum = 0, size = 0;
    for (const double l : losses) sum += l, size += std::abs(l) + 1;
    const double scale = reduction == LossReduction::mean ? divisor : 1;
    if (none) {
      for (size_t i = 0; i < losses.size(); ++i)
        ASSERT_NEAR(got[i], losses[i], slack * (std::abs(losses[i]) + 1));
    } else if (divisor == 0) {
      ASSERT_TRUE(reduction == LossReduction::sum ? got[0] == 0 : std::isnan(got[0]));
      continue;
    } else {
      ASSERT_NEAR(got[0], sum / scale, slack * size / scale) << round;
    }
    if (logits) continue;
    // Gradients: every element of one random position against a central difference of the sum.
    const auto grads = gx.get();
    for (int k = 0; k < 20; ++k) {
      const size_t at = rng() % xs.size();
      const double h = 1e-5, before = xs[at];
      double ignored, up = 0, down = 0;
      xs[at] = before + h;
      for (const double l : class_losses(xs, ts, ws, c, d, smoothing, logits, ignored)) up += l;
      xs[at] = before - h;
      for (const double l : class_losses(xs, ts, ws, c, d, smoothing, logits, ignored)) down += l;
      xs[at] = before;
      const double want = 0.75 * (up - down) / (2 * h) / scale;
      ASSERT_NEAR(grads[at], want, slack * 4 * (std::abs(want) + 1 / scale) + 1e-6) << round;
    }
  }
}

TEST(LossErrors, AreClear) {
  Array x(Dtype::kFloat32, {2, 3}), t(Dtype::kInt64, {2}), out(Dtype::kFloat32, {}),
      total(Dtype::kFloat32, {});
  const calls::NllLoss<> call{.input = x.view(),
                              .target = t.view(),
                              .reduction = static_cast<int64_t>(LossReduction::mean),
                              .ignore_index = -100,
                              .out = out.view(),
                              .total_weight = total.view()};
  t.set({0, 3});
  EXPECT_EQ(message_of(call), "nll_loss: target 3 is out of bounds for 3 classes");
  t.set({0, 2});
  EXPECT_EQ(message_of(call), "no error");
}

}  // namespace
}  // namespace hologram
