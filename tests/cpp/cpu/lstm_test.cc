// SPDX-License-Identifier: MIT
// Compares the recurrence of an LSTM with plain loops in float64, and its gradient with
// differences.

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

struct Shape {
  int64_t steps, batch, hidden;
  int64_t gap = 0;  // between rows of the output
  bool reverse = false, bias = true, in_place = false;
};

std::vector<Shape> shapes() {
  return {{1, 1, 1},
          {3, 2, 5},
          {2, 2, 33, 4, true},  // few rows: the weight is not packed
          {4, 1, 64},
          {5, 3, 17, 3, true, false},
          {7, 8, 64, 0, false, true, true},
          {6, 5, 100, 100, true},
          {3, 8, 256, 256},
          {2, 9, 321, 7, true, true, true},
          {0, 4, 12},
          {4, 0, 12},
          {4, 3, 0}};
}

template <class T>
struct Problem {
  Shape s;
  std::vector<T> gates, weight, bias, h0, c0, output, h_n, c_n, workspace;
  std::vector<T> cells;  // of every step, where keeps
  bool keeps = false;

  Problem(const Shape& shape, uint32_t seed) : s(shape) {
    std::mt19937 rng(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<T>& x, int64_t count, double scale) {
      x.resize(static_cast<size_t>(count));
      for (T& v : x) v = static_cast<T>(scale * normal(rng));
    };
    const int64_t rows = s.batch * s.hidden;
    fill(gates, s.steps * s.batch * 4 * s.hidden, 1.5);
    fill(weight, 4 * s.hidden * s.hidden, 1 / std::sqrt(std::max<double>(1, s.hidden)));
    if (s.bias) fill(bias, 4 * s.hidden, 0.5);
    fill(h0, rows, 0.5);
    fill(c0, rows, 1);
    output.assign(static_cast<size_t>(s.steps * s.batch * row()), T(7));
    h_n.assign(static_cast<size_t>(rows), T(7));
    c_n = h_n;
    workspace.resize(static_cast<size_t>(lstm_workspace(s.steps, s.batch, s.hidden)));
    cells.resize(static_cast<size_t>(s.steps * rows));
  }
  int64_t row() const { return s.hidden + s.gap; }

  void run(int threads) {
    VectorViews view;
    const std::vector<int64_t> rows{s.steps, s.batch, s.hidden}, state{s.batch, s.hidden};
    const calls::LstmForward<> call{
        .gates = view(gates, {s.steps, s.batch, 4 * s.hidden}),
        .weight = view(weight, {4 * s.hidden, s.hidden}),
        .bias = view(bias, {4 * s.hidden}),
        .h0 = view(h0, state),
        .c0 = view(c0, state),
        .reverse = s.reverse,
        .output = view(output, rows, row()),
        .h_n = view(s.in_place ? h0 : h_n, state),
        .c_n = view(s.in_place ? c0 : c_n, state),
        .cells = view(cells, rows),
        .workspace = view(workspace, {static_cast<int64_t>(workspace.size())})};
    if (keeps) return cpu::run(call, CallThreads(threads));
    cpu::run(calls::LstmRecurrence<>{.gates = call.gates,
                                     .weight = call.weight,
                                     .bias = call.bias,
                                     .h0 = call.h0,
                                     .c0 = call.c0,
                                     .reverse = call.reverse,
                                     .output = call.output,
                                     .h_n = call.h_n,
                                     .c_n = call.c_n,
                                     .workspace = call.workspace},
             CallThreads(threads));
  }
  const std::vector<T>& last_h() const { return s.in_place ? h0 : h_n; }
  const std::vector<T>& last_c() const { return s.in_place ? c0 : c_n; }
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// What `p` should become, by loops over single elements.
template <class T>
void expect_right(const Problem<T>& before, const Problem<T>& after) {
  const Shape& s = before.s;
  const int64_t hidden = s.hidden, row = hidden + s.gap;
  std::vector<double> h(before.h0.begin(), before.h0.end());
  std::vector<double> c(before.c0.begin(), before.c0.end());
  const double tolerance = sizeof(T) == 4 ? 2e-5 : 1e-13;
  for (int64_t step = 0; step < s.steps; ++step) {
    const int64_t t = s.reverse ? s.steps - 1 - step : step;
    std::vector<double> next = h;
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t u = 0; u < hidden; ++u) {
        double x[4];
        for (int64_t g = 0; g < 4; ++g) {
          const int64_t at = g * hidden + u;
          x[g] = static_cast<double>(
              before.gates[static_cast<size_t>((t * s.batch + b) * 4 * hidden + at)]);
          if (s.bias) x[g] += static_cast<double>(before.bias[static_cast<size_t>(at)]);
          for (int64_t k = 0; k < hidden; ++k) {
            x[g] += static_cast<double>(before.weight[static_cast<size_t>(at * hidden + k)]) *
                    h[static_cast<size_t>(b * hidden + k)];
          }
        }
        double& cell = c[static_cast<size_t>(b * hidden + u)];
        cell = sigmoid(x[1]) * cell + sigmoid(x[0]) * std::tanh(x[2]);
        next[static_cast<size_t>(b * hidden + u)] = sigmoid(x[3]) * std::tanh(cell);
      }
    }
    h = next;
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t u = 0; u < row; ++u) {
        const T got = after.output[static_cast<size_t>((t * s.batch + b) * row + u)];
        if (u < hidden) {
          EXPECT_NEAR(static_cast<double>(got), h[static_cast<size_t>(b * hidden + u)], tolerance);
        } else if (t < s.steps - 1 || b < s.batch - 1) {
          EXPECT_EQ(got, T(7)) << "written between rows";
        }
      }
    }
  }
  for (size_t i = 0; i < h.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(after.last_h()[i]), h[i], tolerance);
    EXPECT_NEAR(static_cast<double>(after.last_c()[i]), c[i], tolerance);
  }
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
void expect_shapes_right() {
  uint32_t seed = 1;
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE("steps " + std::to_string(shape.steps) + " batch " + std::to_string(shape.batch) +
                 " hidden " + std::to_string(shape.hidden));
    const Problem<T> before(shape, ++seed);
    Problem<T> one = before, many = before;
    one.run(1);
    expect_right(before, one);
    many.run(3);
    EXPECT_TRUE(same(one.output, many.output));
    EXPECT_TRUE(same(one.last_h(), many.last_h()));
    EXPECT_TRUE(same(one.last_c(), many.last_c()));
  }
}

// A problem whose gates and cells were kept, and gradients of its results, any of them absent.
template <class T>
struct Gradient {
  Problem<T> p;
  std::vector<T> grad_output, grad_h_n, grad_c_n;
  std::vector<T> grad_gates, grad_h0, grad_c0, workspace;

  // given: bits, for the output, h_n and c_n.
  Gradient(const Problem<T>& start, uint32_t seed, uint32_t given) : p(start) {
    std::mt19937 rng(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<T>& x, size_t count) {
      x.resize(count);
      for (T& v : x) v = static_cast<T>(normal(rng));
    };
    const size_t states = p.h0.size();
    p.keeps = true;
    p.run(1);
    if (given & 1) fill(grad_output, p.output.size());
    if (given & 2) fill(grad_h_n, states);
    if (given & 4) fill(grad_c_n, states);
    grad_gates.resize(p.gates.size());
    grad_h0.resize(states), grad_c0.resize(states);
    workspace.resize(static_cast<size_t>(lstm_backward_workspace(p.s.batch, p.s.hidden)));
  }

  void run(int threads) { run(threads, grad_gates); }
  void run(int threads, std::vector<T>& to) {
    VectorViews view;
    const Shape& s = p.s;
    const std::vector<int64_t> gates{s.steps, s.batch, 4 * s.hidden};
    const std::vector<int64_t> rows{s.steps, s.batch, s.hidden}, state{s.batch, s.hidden};
    cpu::run(calls::LstmBackward<>{.gates = view(p.gates, gates),
                                   .cells = view(p.cells, rows),
                                   .weight = view(p.weight, {4 * s.hidden, s.hidden}),
                                   .c0 = view(p.c0, state),
                                   .grad_output = view(grad_output, rows, p.row()),
                                   .grad_h_n = view(grad_h_n, state),
                                   .grad_c_n = view(grad_c_n, state),
                                   .reverse = s.reverse,
                                   .grad_gates = view(to, gates),
                                   .grad_h0 = view(grad_h0, state),
                                   .grad_c0 = view(grad_c0, state),
                                   .workspace =
                                       view(workspace, {static_cast<int64_t>(workspace.size())})},
             CallThreads(threads));
  }

  // What the gradients are of: the results times what is given, in a run of its own.
  double loss(Problem<T> q) const {
    q.keeps = false;
    q.run(1);
    double sum = 0;
    const int64_t row = p.row();
    for (int64_t r = 0; r < p.s.steps * p.s.batch && !grad_output.empty(); ++r) {
      for (int64_t u = 0; u < p.s.hidden; ++u) {
        sum += static_cast<double>(q.output[static_cast<size_t>(r * row + u)]) *
               static_cast<double>(grad_output[static_cast<size_t>(r * row + u)]);
      }
    }
    for (size_t i = 0; i < grad_h_n.size(); ++i) sum += q.h_n[i] * grad_h_n[i];
    for (size_t i = 0; i < grad_c_n.size(); ++i) sum += q.c_n[i] * grad_c_n[i];
    return sum;
  }
};

TEST(Lstm, GradientsAreDifferences) {
  uint32_t seed = 40;
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{3, 2, 5}, Shape{4, 2, 33, 4, true},
                             Shape{5, 3, 7, 3, true, false}, Shape{0, 2, 3}}) {
    for (uint32_t given = 0; given < 8; ++given) {
      SCOPED_TRACE("steps " + std::to_string(shape.steps) + ", given " + std::to_string(given));
      const Problem<double> start(shape, ++seed);
      Gradient<double> g(start, seed, given);
      g.run(1);
      constexpr double kStep = 1e-5;
      const auto check = [&](std::vector<double> Problem<double>::*operand,
                             const std::vector<double>& found) {
        const size_t stride = std::max<size_t>(1, found.size() / 23);
        for (size_t i = 0; i < found.size(); i += stride) {
          Problem<double> up = start, down = start;
          (up.*operand)[i] += kStep, (down.*operand)[i] -= kStep;
          EXPECT_NEAR(found[i], (g.loss(up) - g.loss(down)) / (2 * kStep), 1e-7);
        }
      };
      check(&Problem<double>::gates, g.grad_gates);
      check(&Problem<double>::h0, g.grad_h0);
      check(&Problem<double>::c0, g.grad_c0);
    }
  }
}

TEST(Lstm, GradientsOfFloatsAreThoseOfDoublesForAnyThreads) {
  uint32_t seed = 80;
  for (const Shape& shape : shapes()) {
    if (shape.in_place) continue;  // the gradient needs the first states
    SCOPED_TRACE("steps " + std::to_string(shape.steps) + " batch " + std::to_string(shape.batch) +
                 " hidden " + std::to_string(shape.hidden));
    ++seed;
    Gradient<float> one({shape, seed}, seed, 7), many = one;
    Gradient<double> exact({shape, seed}, seed, 7);
    one.run(1);
    many.run(3);
    exact.run(1);
    const auto compare = [](const std::vector<float>& a, const std::vector<float>& b,
                            const std::vector<double>& want) {
      EXPECT_TRUE(same(a, b));
      double largest = 1;
      for (const double x : want) largest = std::max(largest, std::abs(x));
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(a[i]), want[i], 2e-5 * largest);
      }
    };
    compare(one.grad_gates, many.grad_gates, exact.grad_gates);
    compare(one.grad_h0, many.grad_h0, exact.grad_h0);
    compare(one.grad_c0, many.grad_c0, exact.grad_c0);
    // The gates may become their gradient.
    many.run(1, many.p.gates);
    EXPECT_TRUE(same(many.p.gates, one.grad_gates));
  }
}

TEST(Lstm, KeepingWhatTheGradientNeedsChangesNoResult) {
  const Problem<float> start({7, 8, 64, 5}, 9);
  Problem<float> plain = start;
  plain.run(1);
  const Gradient<float> kept(start, 9, 1);
  EXPECT_TRUE(same(plain.output, kept.p.output));
  EXPECT_TRUE(same(plain.h_n, kept.p.h_n));
  EXPECT_TRUE(same(plain.c_n, kept.p.c_n));
}

TEST(Lstm, FloatsAgreeWithLoops) { expect_shapes_right<float>(); }
TEST(Lstm, DoublesAgreeWithLoops) { expect_shapes_right<double>(); }

TEST(Lstm, HugeGatesSaturate) {
  Problem<float> p({1, 1, 2, 0, false, false}, 3);
  p.weight.assign(p.weight.size(), 0.0f);
  //         i          f          g          o
  p.gates = {1e30f, 0, -1e30f, 90, 1e30f, 90, 1e30f, -90};
  p.c0 = {5, 3};
  p.run(1);
  EXPECT_EQ(p.c_n[0], 1.0f);  // all of tanh(inf), none of what was
  EXPECT_EQ(p.h_n[0], std::tanh(1.0f));
  EXPECT_NEAR(p.c_n[1], 3.5, 1e-6);
  EXPECT_NEAR(p.h_n[1] / std::exp(-90.0), std::tanh(3.5), 1e-5);
}

}  // namespace
}  // namespace hologram
