// SPDX-License-Identifier: MIT
// Compares optimizer steps with the textbook formulas in float64, element by element.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "hologram/elementwise.h"
#include "src/cpu/device/call_table.h"
#include "tests/cpp/cpu/isa_test.h"

namespace hologram {
namespace {

class OptimizerTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isas, OptimizerTest, kEveryIsa, isa_of);

// A tensor of any floating dtype with its values in float64.
struct Values {
  Dtype dtype;
  std::vector<char> bytes;
  Values(Dtype type, const std::vector<double>& x) : dtype(type), bytes(x.size() * itemsize(type)) {
    convert_via(x);
  }
  void convert_via(const std::vector<double>& x) {
    const int64_t n = static_cast<int64_t>(x.size()), one = 1;
    copy({const_cast<double*>(x.data()), Dtype::kFloat64, 1, &n, &one},
         {bytes.data(), dtype, 1, &n, &one});
  }
  std::vector<double> get() {
    const int64_t n = static_cast<int64_t>(bytes.size() / itemsize(dtype)), one = 1;
    std::vector<double> x(static_cast<size_t>(n));
    copy({bytes.data(), dtype, 1, &n, &one}, {x.data(), Dtype::kFloat64, 1, &n, &one});
    return x;
  }
};

using Rows = std::vector<calls::InOut<calls::CallView>>;
using Steps = std::vector<calls::Scalar<calls::CallView>>;

// Contiguous elements as an operand.
class Row {
 public:
  Row(Dtype dtype, void* data, size_t n)
      : dtype_(dtype), data_(data), n_(static_cast<int64_t>(n)), one_(1) {}
  explicit Row(Values& values)
      : Row(values.dtype, values.bytes.data(), values.bytes.size() / itemsize(values.dtype)) {}
  View view() const { return {data_, dtype_, 1, &n_, &one_}; }

 private:
  Dtype dtype_;
  void* data_;
  int64_t n_, one_;
};

double tolerance(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return 0x1p-10;
    case Dtype::kBFloat16:
      return 0x1p-7;
    case Dtype::kFloat32:
      return 0x1p-21;
    default:
      return 0x1p-49;
  }
}

void expect_close(Values& got, const std::vector<double>& want, const char* what) {
  const auto values = got.get();
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(values[i], want[i], tolerance(got.dtype) * (std::abs(want[i]) + 1))
        << what << " " << i;
  }
}

const std::vector<size_t> kSizes = {1, 3, 10, 16, 17, 128, 3000, 0, 20001};

struct Case {
  std::mt19937 rng{9};
  std::normal_distribution<double> normal;
  std::vector<double> random(size_t n, bool positive = false) {
    std::vector<double> x(n);
    for (double& v : x) v = positive ? std::abs(normal(rng)) : normal(rng);
    return x;
  }
};

TEST_P(OptimizerTest, Adam) {
  Case make;
  for (int round = 0; round < 24; ++round) {
    const Dtype dtypes[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kBFloat16, Dtype::kFloat16};
    const Dtype dtype = dtypes[round % 4];
    calls::Adam<> o{.params = {}, .grads = {}, .exp_avgs = {}, .exp_avg_sqs = {}, .steps = {}};
    o.lr = 0.01;
    o.beta1 = round % 5 == 0 ? 0.3 : 0.9;
    o.amsgrad = round & 1, o.maximize = round & 2, o.decoupled_weight_decay = round & 4;
    o.weight_decay = round & 8 ? 0.1 : 0;
    float scale = 4;
    const Row scaling(Dtype::kFloat32, &scale, 1);
    const bool scales = round % 3 == 0;
    if (scales) o.grad_scale = scaling.view();
    std::vector<Values> p, g, m, v, x;
    for (const size_t n : kSizes) {
      p.emplace_back(dtype, make.random(n));
      g.emplace_back(dtype, make.random(n));
      m.emplace_back(dtype, make.random(n));
      v.emplace_back(dtype, make.random(n, true));
      x.emplace_back(dtype, make.random(n, true));
    }
    auto p2 = p, g2 = g, m2 = m, v2 = v, x2 = x;
    auto p0 = p, g0 = g, m0 = m, v0 = v, x0 = x;
    // The tensors [first, last) of five lists in one call.
    const auto step = [&](std::array<std::vector<Values>*, 5> lists, size_t first, size_t last,
                          int threads) {
      std::vector<Row> kept;
      kept.reserve(5 * kSizes.size());
      std::array<Rows, 5> rows;
      Steps steps;
      for (size_t i = first; i < last; ++i) {
        for (size_t k = 0; k < 5; ++k) {
          rows[k].emplace_back(kept.emplace_back((*lists[k])[i]).view());
        }
        steps.emplace_back(static_cast<double>(i + 1));
      }
      o.params = rows[0], o.grads = rows[1], o.exp_avgs = rows[2], o.exp_avg_sqs = rows[3];
      o.max_exp_avg_sqs = rows[4], o.steps = steps;
      cpu::run(o, CallThreads(threads));
    };
    step({&p, &g, &m, &v, &x}, 0, kSizes.size(), 2);
    for (size_t i = 0; i < kSizes.size(); ++i) {
      step({&p2, &g2, &m2, &v2, &x2}, i, i + 1, 1);
      ASSERT_EQ(p[i].bytes, p2[i].bytes);
      ASSERT_EQ(g[i].bytes, g2[i].bytes);
      ASSERT_EQ(m[i].bytes, m2[i].bytes);
      ASSERT_EQ(v[i].bytes, v2[i].bytes);
      ASSERT_EQ(x[i].bytes, x2[i].bytes);
      auto P = p0[i].get(), G = g0[i].get(), M = m0[i].get(), V = v0[i].get(), X = x0[i].get();
      const double step = static_cast<double>(i + 1);
      for (size_t k = 0; k < P.size(); ++k) {
        if (scales) G[k] /= 4;
        double grad = o.maximize ? -G[k] : G[k];
        if (o.decoupled_weight_decay) {
          P[k] *= 1 - o.lr.value * o.weight_decay;
        } else {
          grad += o.weight_decay * P[k];
        }
        M[k] = o.beta1 * M[k] + (1 - o.beta1) * grad;
        V[k] = o.beta2 * V[k] + (1 - o.beta2) * grad * grad;
        double second = V[k];
        if (o.amsgrad) second = X[k] = std::max(X[k], V[k]);
        const double denominator =
            std::sqrt(second) / std::sqrt(1 - std::pow(o.beta2, step)) + o.eps;
        P[k] -= o.lr.value / (1 - std::pow(o.beta1, step)) * M[k] / denominator;
      }
      expect_close(p[i], P, "param");
      expect_close(g[i], G, "grad");
      expect_close(m[i], M, "exp_avg");
      expect_close(v[i], V, "exp_avg_sq");
      expect_close(x[i], X, "max_exp_avg_sq");
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(OptimizerTest, Sgd) {
  Case make;
  for (int round = 0; round < 32; ++round) {
    const Dtype dtype = round % 3 == 0   ? Dtype::kBFloat16
                        : round % 3 == 1 ? Dtype::kFloat32
                                         : Dtype::kFloat64;
    calls::Sgd<> o{.params = {}, .grads = {}};
    o.lr = 0.1, o.momentum = round & 1 ? 0.9 : 0, o.nesterov = round & 2,
    o.is_first_step = round & 4;
    o.dampening = round & 8 ? 0.25 : 0, o.weight_decay = round & 16 ? 0.1 : 0,
    o.maximize = round % 5 == 0;
    for (const size_t n : {size_t{5}, size_t{9000}}) {
      Values p(dtype, make.random(n)), g(dtype, make.random(n)), b(dtype, make.random(n));
      auto P = p.get(), G = g.get(), B = b.get();
      const Row of_p(p), of_g(g), of_b(b);
      const Rows params{of_p.view()}, grads{of_g.view()}, buffers{of_b.view()};
      o.params = params, o.grads = grads, o.momentum_buffers = buffers;
      cpu::run(o, CallThreads(0));
      for (size_t k = 0; k < n; ++k) {
        double grad = (o.maximize ? -G[k] : G[k]) + o.weight_decay * P[k];
        if (o.momentum != 0) {
          B[k] = o.is_first_step ? grad : o.momentum * B[k] + (1 - o.dampening) * grad;
          grad = o.nesterov ? grad + o.momentum * B[k] : B[k];
        }
        P[k] -= o.lr.value * grad;
      }
      expect_close(p, P, "param");
      expect_close(b, B, "buffer");
      expect_close(g, G, "grad");
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(OptimizerTest, Adagrad) {
  Case make;
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64, Dtype::kFloat16}) {
    calls::Adagrad<> o{.params = {}, .grads = {}, .state_sums = {}, .steps = {}};
    o.lr = 0.1, o.lr_decay = 0.01, o.weight_decay = 0.1;
    const size_t n = 3001;
    Values p(dtype, make.random(n)), g(dtype, make.random(n)), s(dtype, make.random(n, true));
    auto P = p.get(), G = g.get(), S = s.get();
    const Row of_p(p), of_g(g), of_s(s);
    const Rows params{of_p.view()}, grads{of_g.view()}, sums{of_s.view()};
    const Steps steps{3.0};
    o.params = params, o.grads = grads, o.state_sums = sums, o.steps = steps;
    cpu::run(o, CallThreads(0));
    for (size_t k = 0; k < n; ++k) {
      const double grad = G[k] + o.weight_decay * P[k];
      S[k] += grad * grad;
      P[k] -= o.lr.value / (1 + 2 * o.lr_decay) * grad / (std::sqrt(S[k]) + o.eps);
    }
    expect_close(p, P, "param");
    expect_close(s, S, "sum");
  }
}

TEST(Optimizer, FoundInfSkipsTheStep) {
  float p = 1, g = 2, inf = 1;
  const Row of_p(Dtype::kFloat32, &p, 1), of_g(Dtype::kFloat32, &g, 1);
  const Row found(Dtype::kFloat32, &inf, 1);
  const Rows params{of_p.view()}, grads{of_g.view()};
  const calls::Sgd<> call{.found_inf = found.view(), .params = params, .grads = grads};
  cpu::run(call, CallThreads(0));
  EXPECT_EQ(p, 1.0f);
  inf = 0;
  cpu::run(call, CallThreads(0));
  EXPECT_NE(p, 1.0f);
}

}  // namespace
}  // namespace hologram
