// SPDX-License-Identifier: MIT
// Compares optimizer steps with the textbook formulas in float64, element by element.
#include "src/cpu/optimizer/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
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
    AdamOptions o;
    o.lr = 0.01;
    o.beta1 = round % 5 == 0 ? 0.3 : 0.9;
    o.amsgrad = round & 1, o.maximize = round & 2, o.decoupled_weight_decay = round & 4;
    o.weight_decay = round & 8 ? 0.1 : 0;
    const float scale = 4;
    if (round % 3 == 0) o.scaling.scale = &scale;
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
    const auto tensor = [&](auto& P, auto& G, auto& M, auto& V, auto& X, size_t i) {
      return AdamTensor{P[i].bytes.data(),         G[i].bytes.data(),
                        M[i].bytes.data(),         V[i].bytes.data(),
                        X[i].bytes.data(),         static_cast<int64_t>(kSizes[i]),
                        static_cast<double>(i + 1)};
    };
    std::vector<AdamTensor> list;
    for (size_t i = 0; i < kSizes.size(); ++i) list.push_back(tensor(p, g, m, v, x, i));
    o.max_threads = 2;
    adam_step(list, dtype, o);
    o.max_threads = 1;
    for (size_t i = 0; i < kSizes.size(); ++i) {
      const AdamTensor one = tensor(p2, g2, m2, v2, x2, i);
      adam_step({&one, 1}, dtype, o);
      ASSERT_EQ(p[i].bytes, p2[i].bytes);
      ASSERT_EQ(g[i].bytes, g2[i].bytes);
      ASSERT_EQ(m[i].bytes, m2[i].bytes);
      ASSERT_EQ(v[i].bytes, v2[i].bytes);
      ASSERT_EQ(x[i].bytes, x2[i].bytes);
      auto P = p0[i].get(), G = g0[i].get(), M = m0[i].get(), V = v0[i].get(), X = x0[i].get();
      const double step = static_cast<double>(i + 1);
      for (size_t k = 0; k < P.size(); ++k) {
        if (o.scaling.scale != nullptr) G[k] /= 4;
        double grad = o.maximize ? -G[k] : G[k];
        if (o.decoupled_weight_decay) {
          P[k] *= 1 - o.lr * o.weight_decay;
        } else {
          grad += o.weight_decay * P[k];
        }
        M[k] = o.beta1 * M[k] + (1 - o.beta1) * grad;
        V[k] = o.beta2 * V[k] + (1 - o.beta2) * grad * grad;
        double second = V[k];
        if (o.amsgrad) second = X[k] = std::max(X[k], V[k]);
        const double denominator =
            std::sqrt(second) / std::sqrt(1 - std::pow(o.beta2, step)) + o.eps;
        P[k] -= o.lr / (1 - std::pow(o.beta1, step)) * M[k] / denominator;
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
    SgdOptions o;
    o.lr = 0.1, o.momentum = round & 1 ? 0.9 : 0, o.nesterov = round & 2,
    o.is_first_step = round & 4;
    o.dampening = round & 8 ? 0.25 : 0, o.weight_decay = round & 16 ? 0.1 : 0,
    o.maximize = round % 5 == 0;
    for (const size_t n : {size_t{5}, size_t{9000}}) {
      Values p(dtype, make.random(n)), g(dtype, make.random(n)), b(dtype, make.random(n));
      auto P = p.get(), G = g.get(), B = b.get();
      const SgdTensor t{p.bytes.data(), g.bytes.data(), b.bytes.data(), static_cast<int64_t>(n)};
      sgd_step({&t, 1}, dtype, o);
      for (size_t k = 0; k < n; ++k) {
        double grad = (o.maximize ? -G[k] : G[k]) + o.weight_decay * P[k];
        if (o.momentum != 0) {
          B[k] = o.is_first_step ? grad : o.momentum * B[k] + (1 - o.dampening) * grad;
          grad = o.nesterov ? grad + o.momentum * B[k] : B[k];
        }
        P[k] -= o.lr * grad;
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
    AdagradOptions o;
    o.lr = 0.1, o.lr_decay = 0.01, o.weight_decay = 0.1;
    const size_t n = 3001;
    Values p(dtype, make.random(n)), g(dtype, make.random(n)), s(dtype, make.random(n, true));
    auto P = p.get(), G = g.get(), S = s.get();
    const AdagradTensor t{p.bytes.data(), g.bytes.data(), s.bytes.data(), static_cast<int64_t>(n),
                          3};
    adagrad_step({&t, 1}, dtype, o);
    for (size_t k = 0; k < n; ++k) {
      const double grad = G[k] + o.weight_decay * P[k];
      S[k] += grad * grad;
      P[k] -= o.lr / (1 + 2 * o.lr_decay) * grad / (std::sqrt(S[k]) + o.eps);
    }
    expect_close(p, P, "param");
    expect_close(s, S, "sum");
  }
}

TEST(Optimizer, FoundInfSkipsTheStep) {
  float p = 1, g = 2, inf = 1;
  SgdOptions o;
  o.scaling.found_inf = &inf;
  const SgdTensor t{&p, &g, nullptr, 1};
  sgd_step({&t, 1}, Dtype::kFloat32, o);
  EXPECT_EQ(p, 1.0f);
  inf = 0;
  sgd_step({&t, 1}, Dtype::kFloat32, o);
  EXPECT_NE(p, 1.0f);
}

TEST(Optimizer, ErrorsAreClear) {
  float p = 1;
  const SgdTensor t{&p, nullptr, nullptr, 1};
  EXPECT_THROW(sgd_step({&t, 1}, Dtype::kFloat32, {}), Error);
  EXPECT_THROW(sgd_step({&t, 1}, Dtype::kInt32, {}), Error);
}

}  // namespace
}  // namespace hologram
