// SPDX-License-Identifier: MIT
// Compares the recurrence of a layer without gates, and its gradient, with plain loops in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "src/cpu/device/call_table.h"
#include "tests/cpp/cpu/vector_views.h"

namespace hologram {
namespace {

struct RnnShape {
  int64_t steps, batch, hidden;
  int64_t gap = 0;  // between rows of the output
  bool reverse = false, bias = true, relu = false;

  int64_t row() const { return hidden + gap; }
  int64_t rows() const { return steps * batch; }
  // Where the rows of a step are, counted in the order of the recurrence.
  int64_t at(int64_t step) const { return (reverse ? steps - 1 - step : step) * batch; }
};

std::vector<RnnShape> rnn_shapes() {
  return {{1, 1, 1},
          {3, 2, 5, 0, false, true, true},
          {2, 2, 33, 4, true},
          {5, 3, 17, 3, true, false, true},
          {7, 8, 64, 0, false, false},
          {6, 5, 100, 100, true, true, true},
          {3, 40, 200},
          {0, 4, 12},
          {4, 0, 12},
          {4, 3, 0}};
}

template <class T>
std::vector<T> draw(int64_t count, double scale, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<T> x(static_cast<size_t>(count));
  for (T& v : x) v = static_cast<T>(scale * normal(rng));
  return x;
}
template <class T>
T& element(std::vector<T>& x, int64_t i) {
  return x[static_cast<size_t>(i)];
}

template <class T>
struct RnnProblem {
  RnnShape s;
  std::vector<T> gates, weight, bias, h0, output, h_n;
  std::vector<T> grad_output, grad_h_n, grad_gates, grad_h0;

  explicit RnnProblem(const RnnShape& shape) : s(shape) {
    const int64_t all = s.rows() * s.hidden, states = s.batch * s.hidden;
    gates = draw<T>(all, 1.0, 1);
    weight = draw<T>(s.hidden * s.hidden, 0.7 / std::sqrt(std::max<double>(1, s.hidden)), 2);
    bias = draw<T>(s.hidden, 0.5, 3);
    h0 = draw<T>(states, 0.5, 4);
    output.assign(static_cast<size_t>(s.rows() * s.row()), T(7));
    h_n.assign(static_cast<size_t>(states), T(7));
    grad_output = draw<T>(s.rows() * s.row(), 1.0, 5);
    grad_h_n = draw<T>(states, 1.0, 6);
    grad_gates.assign(static_cast<size_t>(all), T(7));
    grad_h0.assign(static_cast<size_t>(states), T(7));
  }

  void forward(int threads) {
    VectorViews view;
    const std::vector<int64_t> rows{s.steps, s.batch, s.hidden}, state{s.batch, s.hidden};
    cpu::run(calls::RnnForward<>{.gates = view(gates, rows),
                                 .weight = view(weight, {s.hidden, s.hidden}),
                                 .bias = s.bias ? view(bias, {s.hidden}) : View{},
                                 .h0 = view(h0, state),
                                 .relu = s.relu,
                                 .reverse = s.reverse,
                                 .output = view(output, rows, s.row()),
                                 .h_n = view(h_n, state)},
             CallThreads(threads));
  }
  void backward(int threads, bool from_output, bool from_last) {
    VectorViews view;
    const std::vector<int64_t> rows{s.steps, s.batch, s.hidden}, state{s.batch, s.hidden};
    cpu::run(
        calls::RnnBackward<>{.output = view(output, rows, s.row()),
                             .weight = view(weight, {s.hidden, s.hidden}),
                             .grad_output = from_output ? view(grad_output, rows, s.row()) : View{},
                             .grad_h_n = from_last ? view(grad_h_n, state) : View{},
                             .relu = s.relu,
                             .reverse = s.reverse,
                             .grad_gates = view(grad_gates, rows),
                             .grad_h0 = view(grad_h0, state)},
        CallThreads(threads));
  }

  void expect_forward() {
    const double tolerance = sizeof(T) == 4 ? 2e-5 : 1e-13;
    std::vector<double> h(h0.begin(), h0.end());
    for (int64_t step = 0; step < s.steps; ++step) {
      std::vector<double> next = h;
      for (int64_t b = 0; b < s.batch; ++b) {
        const int64_t row = s.at(step) + b;
        for (int64_t u = 0; u < s.hidden; ++u) {
          double sum = element(gates, row * s.hidden + u) + (s.bias ? element(bias, u) : T(0));
          for (int64_t k = 0; k < s.hidden; ++k) {
            sum += static_cast<double>(element(weight, u * s.hidden + k)) *
                   element(h, b * s.hidden + k);
          }
          element(next, b * s.hidden + u) = s.relu ? std::max(sum, 0.0) : std::tanh(sum);
          EXPECT_NEAR(element(output, row * s.row() + u), element(next, b * s.hidden + u),
                      tolerance);
        }
        for (int64_t u = s.hidden; u < s.row(); ++u) {
          EXPECT_EQ(element(output, row * s.row() + u), T(7)) << "between rows";
        }
      }
      h = next;
    }
    for (size_t i = 0; i < h.size(); ++i) EXPECT_NEAR(h_n[i], h[i], tolerance);
  }

  void expect_backward(bool from_output, bool from_last) {
    const double tolerance = sizeof(T) == 4 ? 1e-4 : 1e-12;
    std::vector<double> grad(h0.size(), 0.0);
    if (from_last) grad.assign(grad_h_n.begin(), grad_h_n.end());
    for (int64_t step = s.steps - 1; step >= 0; --step) {
      std::vector<double> before(grad.size(), 0.0);
      for (int64_t b = 0; b < s.batch; ++b) {
        const int64_t row = s.at(step) + b;
        for (int64_t u = 0; u < s.hidden; ++u) {
          const double h = element(output, row * s.row() + u);
          double g = element(grad, b * s.hidden + u);
          if (from_output) g += element(grad_output, row * s.row() + u);
          g *= s.relu ? (h > 0 ? 1.0 : 0.0) : 1 - h * h;
          EXPECT_NEAR(element(grad_gates, row * s.hidden + u), g, tolerance);
          for (int64_t k = 0; k < s.hidden; ++k) {
            element(before, b * s.hidden + k) += g * element(weight, u * s.hidden + k);
          }
        }
      }
      grad = before;
    }
    for (size_t i = 0; i < grad.size(); ++i) EXPECT_NEAR(grad_h0[i], grad[i], tolerance);
  }
};

template <class T>
void check_shapes() {
  for (const RnnShape& shape : rnn_shapes()) {
    RnnProblem<T> p(shape);
    p.forward(1);
    p.expect_forward();
    for (const auto& [from_output, from_last] : {std::pair(true, true), std::pair(true, false),
                                                 std::pair(false, true), std::pair(false, false)}) {
      p.backward(1, from_output, from_last);
      p.expect_backward(from_output, from_last);
    }
    p.backward(1, true, true);
    for (const int threads : {2, 3}) {
      RnnProblem<T> other(shape);
      other.forward(threads);
      other.backward(threads, true, true);
      EXPECT_EQ(other.output, p.output);
      EXPECT_EQ(other.h_n, p.h_n);
      EXPECT_EQ(other.grad_gates, p.grad_gates);
      EXPECT_EQ(other.grad_h0, p.grad_h0);
    }
  }
}

TEST(Rnn, AgreesWithLoopsForAnyNumberOfThreads) {
  check_shapes<float>();
  check_shapes<double>();
}

}  // namespace
}  // namespace hologram
