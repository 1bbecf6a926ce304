// SPDX-License-Identifier: MIT
// Compares the recurrence of a GRU with plain loops in float64, and its gradient with differences.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "hologram/recurrent.h"
#include "src/cpu/device/call_table.h"
#include "tests/cpp/cpu/vector_views.h"

namespace hologram {
namespace {

struct GruShape {
  int64_t steps, batch, hidden;
  int64_t gap = 0;  // between rows of the output
  bool reverse = false, bias = true;
};

std::vector<GruShape> gru_shapes() {
  return {{1, 1, 1},
          {3, 2, 5},
          {2, 2, 33, 4, true},
          {4, 1, 64},
          {5, 3, 17, 3, true, false},
          {7, 8, 64, 0, false, true},
          {6, 5, 100, 100, true},
          {3, 8, 256, 256},
          {2, 9, 321, 7, true},
          {0, 4, 12},
          {4, 0, 12},
          {4, 3, 0}};
}

template <class T>
int64_t size_of(const std::vector<T>& x) {
  return static_cast<int64_t>(x.size());
}

template <class T>
struct GruProblem {
  GruShape s;
  std::vector<T> gates, weight, bias, h0, output, h_n, hidden_n, workspace;

  GruProblem(const GruShape& shape, uint32_t seed) : s(shape) {
    std::mt19937 rng(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<T>& x, int64_t count, double scale) {
      x.resize(static_cast<size_t>(count));
      for (T& v : x) v = static_cast<T>(scale * normal(rng));
    };
    const int64_t states = s.batch * s.hidden;
    fill(gates, s.steps * s.batch * 3 * s.hidden, 1.5);
    fill(weight, 3 * s.hidden * s.hidden, 1 / std::sqrt(std::max<double>(1, s.hidden)));
    if (s.bias) fill(bias, 3 * s.hidden, 0.5);
    fill(h0, states, 0.5);
    output.assign(static_cast<size_t>(s.steps * s.batch * row()), T(7));
    h_n.assign(static_cast<size_t>(states), T(7));
    hidden_n.resize(static_cast<size_t>(s.steps * states));
    workspace.resize(static_cast<size_t>(gru_workspace(s.steps, s.batch, s.hidden)));
  }
  int64_t row() const { return s.hidden + s.gap; }

  void run(int threads) {
    VectorViews view;
    cpu::run(calls::GruForward<>{.gates = view(gates, {s.steps, s.batch, 3 * s.hidden}),
                                 .weight = view(weight, {3 * s.hidden, s.hidden}),
                                 .bias = view(bias, {3 * s.hidden}),
                                 .h0 = view(h0, {s.batch, s.hidden}),
                                 .reverse = s.reverse,
                                 .output = view(output, {s.steps, s.batch, s.hidden}, row()),
                                 .h_n = view(h_n, {s.batch, s.hidden}),
                                 .hidden_n = view(hidden_n, {s.steps, s.batch, s.hidden}),
                                 .workspace = view(workspace, {size_of(workspace)})},
             CallThreads(threads));
  }
};

template <class T>
bool equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// What `before` should become, by loops over single elements.
template <class T>
void expect_gru_right(const GruProblem<T>& before, const GruProblem<T>& after) {
  const GruShape& s = before.s;
  const int64_t hidden = s.hidden;
  const auto at = [](const std::vector<T>& x, int64_t i) {
    return static_cast<double>(x[static_cast<size_t>(i)]);
  };
  std::vector<double> h(before.h0.begin(), before.h0.end());
  const double tolerance = sizeof(T) == 4 ? 2e-5 : 1e-13;
  for (int64_t step = 0; step < s.steps; ++step) {
    const int64_t t = s.reverse ? s.steps - 1 - step : step;
    std::vector<double> next = h;
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t u = 0; u < hidden; ++u) {
        double from_h[3], x[3];
        for (int64_t g = 0; g < 3; ++g) {
          const int64_t unit = g * hidden + u;
          x[g] = at(before.gates, (t * s.batch + b) * 3 * hidden + unit);
          from_h[g] = s.bias ? at(before.bias, unit) : 0;
          for (int64_t k = 0; k < hidden; ++k) {
            from_h[g] +=
                at(before.weight, unit * hidden + k) * h[static_cast<size_t>(b * hidden + k)];
          }
        }
        const double r = logistic(x[0] + from_h[0]), z = logistic(x[1] + from_h[1]);
        const double n = std::tanh(x[2] + r * from_h[2]);
        double& state = next[static_cast<size_t>(b * hidden + u)];
        state = (1 - z) * n + z * state;
        const int64_t place = (t * s.batch + b) * hidden;
        EXPECT_NEAR(at(after.hidden_n, place + u), from_h[2], tolerance);
        EXPECT_NEAR(at(after.gates, 3 * place + u), r, tolerance);
        EXPECT_NEAR(at(after.output, (t * s.batch + b) * before.row() + u), state, tolerance);
      }
      for (int64_t u = hidden; u < before.row(); ++u) {
        EXPECT_EQ(at(after.output, (t * s.batch + b) * before.row() + u), 7) << "between rows";
      }
    }
    h = next;
  }
  for (size_t i = 0; i < h.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(after.h_n[i]), h[i], tolerance);
  }
}

template <class T>
void expect_gru_shapes_right() {
  uint32_t seed = 1;
  for (const GruShape& shape : gru_shapes()) {
    SCOPED_TRACE("steps " + std::to_string(shape.steps) + " batch " + std::to_string(shape.batch) +
                 " hidden " + std::to_string(shape.hidden));
    const GruProblem<T> before(shape, ++seed);
    GruProblem<T> one = before, many = before;
    one.run(1);
    expect_gru_right(before, one);
    many.run(3);
    EXPECT_TRUE(equal_bits(one.output, many.output));
    EXPECT_TRUE(equal_bits(one.h_n, many.h_n));
    EXPECT_TRUE(equal_bits(one.gates, many.gates));
  }
}

TEST(Gru, FloatsAgreeWithLoops) { expect_gru_shapes_right<float>(); }
TEST(Gru, DoublesAgreeWithLoops) { expect_gru_shapes_right<double>(); }

// A problem that has been run, and gradients of its results, any of them absent.
template <class T>
struct GruGradient {
  GruProblem<T> p;
  std::vector<T> grad_output, grad_h_n, grad_gates, grad_hidden, grad_h0, workspace;

  // given: bits, for the output and h_n.
  GruGradient(const GruProblem<T>& start, uint32_t seed, uint32_t given) : p(start) {
    std::mt19937 rng(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<T>& x, size_t count) {
      x.resize(count);
      for (T& v : x) v = static_cast<T>(normal(rng));
    };
    p.run(1);
    if (given & 1) fill(grad_output, p.output.size());
    if (given & 2) fill(grad_h_n, p.h0.size());
    grad_gates.resize(p.gates.size()), grad_hidden.resize(p.gates.size());
    grad_h0.resize(p.h0.size());
    workspace.resize(static_cast<size_t>(gru_backward_workspace(p.s.batch, p.s.hidden)));
  }

  void run(int threads) {
    VectorViews view;
    const GruShape& s = p.s;
    const std::vector<int64_t> gates{s.steps, s.batch, 3 * s.hidden};
    const std::vector<int64_t> rows{s.steps, s.batch, s.hidden}, state{s.batch, s.hidden};
    cpu::run(calls::GruBackward<>{.gates = view(p.gates, gates),
                                  .hidden_n = view(p.hidden_n, rows),
                                  .output = view(p.output, rows, p.row()),
                                  .weight = view(p.weight, {3 * s.hidden, s.hidden}),
                                  .h0 = view(p.h0, state),
                                  .grad_output = view(grad_output, rows, p.row()),
                                  .grad_h_n = view(grad_h_n, state),
                                  .reverse = s.reverse,
                                  .grad_gates = view(grad_gates, gates),
                                  .grad_hidden = view(grad_hidden, gates),
                                  .grad_h0 = view(grad_h0, state),
                                  .workspace = view(workspace, {size_of(workspace)})},
             CallThreads(threads));
  }

  // What the gradients are of: the results times what is given, in a run of its own.
  double loss(GruProblem<T> q) const {
    q.run(1);
    double sum = 0;
    for (int64_t r = 0; r < p.s.steps * p.s.batch && !grad_output.empty(); ++r) {
      for (int64_t u = 0; u < p.s.hidden; ++u) {
        const size_t i = static_cast<size_t>(r * p.row() + u);
        sum += static_cast<double>(q.output[i]) * static_cast<double>(grad_output[i]);
      }
    }
    for (size_t i = 0; i < grad_h_n.size(); ++i) sum += q.h_n[i] * grad_h_n[i];
    return sum;
  }
};

TEST(Gru, GradientsAreDifferences) {
  uint32_t seed = 40;
  for (const GruShape& shape : {GruShape{1, 1, 1}, GruShape{3, 2, 5}, GruShape{4, 2, 33, 4, true},
                                GruShape{5, 3, 7, 3, true}, GruShape{0, 2, 3}}) {
    for (uint32_t given = 0; given < 4; ++given) {
      SCOPED_TRACE("steps " + std::to_string(shape.steps) + ", given " + std::to_string(given));
      const GruProblem<double> start(shape, ++seed);
      GruGradient<double> g(start, seed, given);
      g.run(1);
      constexpr double kStep = 1e-5;
      const auto check = [&](std::vector<double> GruProblem<double>::*operand,
                             const std::vector<double>& found) {
        const size_t stride = std::max<size_t>(1, found.size() / 23);
        for (size_t i = 0; i < found.size(); i += stride) {
          GruProblem<double> up = start, down = start;
          (up.*operand)[i] += kStep, (down.*operand)[i] -= kStep;
          EXPECT_NEAR(found[i], (g.loss(up) - g.loss(down)) / (2 * kStep), 1e-7);
        }
      };
      check(&GruProblem<double>::gates, g.grad_gates);
      check(&GruProblem<double>::h0, g.grad_h0);
      // The bias reaches every step as the product with the state does.
      std::vector<double> sums(start.bias.size());
      for (size_t i = 0; i < g.grad_hidden.size(); ++i) sums[i % sums.size()] += g.grad_hidden[i];
      check(&GruProblem<double>::bias, sums);
    }
  }
}

TEST(Gru, GradientsOfFloatsAreThoseOfDoublesForAnyThreads) {
  uint32_t seed = 80;
  for (const GruShape& shape : gru_shapes()) {
    SCOPED_TRACE("steps " + std::to_string(shape.steps) + " batch " + std::to_string(shape.batch) +
                 " hidden " + std::to_string(shape.hidden));
    ++seed;
    GruGradient<float> one({shape, seed}, seed, 3), many = one;
    GruGradient<double> exact({shape, seed}, seed, 3);
    one.run(1);
    many.run(3);
    exact.run(1);
    const auto compare = [](const std::vector<float>& a, const std::vector<float>& b,
                            const std::vector<double>& want) {
      EXPECT_TRUE(equal_bits(a, b));
      double largest = 1;
      for (const double x : want) largest = std::max(largest, std::abs(x));
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(a[i]), want[i], 2e-5 * largest);
      }
    };
    compare(one.grad_gates, many.grad_gates, exact.grad_gates);
    compare(one.grad_hidden, many.grad_hidden, exact.grad_hidden);
    compare(one.grad_h0, many.grad_h0, exact.grad_h0);
  }
}

}  // namespace
}  // namespace hologram
