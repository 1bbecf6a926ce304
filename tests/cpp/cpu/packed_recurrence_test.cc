// SPDX-License-Identifier: MIT
// Recurrences of packed sequences beside each sequence alone, and projections beside plain loops
// and differences, all in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "hologram/error.h"
#include "hologram/recurrent.h"
#include "src/cpu/device/call_table.h"
#include "tests/cpp/cpu/vector_views.h"

namespace hologram {
namespace {

using Doubles = std::vector<double>;

enum class Kind { lstm, projected, gru, rnn };

Doubles draw(int64_t count, double scale, std::mt19937& rng) {
  std::normal_distribution<double> normal;
  Doubles x(static_cast<size_t>(count));
  for (double& v : x) v = scale * normal(rng);
  return x;
}
Doubles room(int64_t count) { return Doubles(static_cast<size_t>(count), 7.0); }

// A recurrence with its gradient: what it takes, and all that it gives.
struct PackedProblem {
  Kind kind;
  bool reverse;
  int64_t hidden, columns;  // of h
  std::vector<int64_t> sizes;
  const std::vector<int64_t>* given_sizes = nullptr;  // in their place
  int64_t wide;
  Doubles gates, weight, bias, weight_hr, h0, c0, grad_output, grad_h_n, grad_c_n;
  Doubles active, output, h_n, c_n, kept;  // kept: cells, or hidden_n of a GRU
  Doubles grad_gates, grad_hidden, grad_h0, grad_c0, grad_projection, projected, workspace;

  PackedProblem(Kind kind, std::vector<int64_t> batch_sizes, int64_t hidden, int64_t projection,
                bool reverse)
      : kind(kind),
        reverse(reverse),
        hidden(hidden),
        columns(kind == Kind::projected ? projection : hidden),
        sizes(std::move(batch_sizes)),
        wide(hidden * (kind == Kind::rnn   ? 1
                       : kind == Kind::gru ? 3
                                           : 4)) {
    std::mt19937 rng(7);
    gates = draw(rows() * wide, 1, rng);
    weight = draw(wide * columns, 1 / std::sqrt(columns), rng);
    bias = draw(wide, 0.5, rng);
    weight_hr = draw(columns * hidden, 1 / std::sqrt(hidden), rng);
    h0 = draw(batch() * columns, 0.5, rng), c0 = draw(batch() * hidden, 1, rng);
    grad_output = draw(rows() * columns, 1, rng);
    grad_h_n = draw(batch() * columns, 1, rng), grad_c_n = draw(batch() * hidden, 1, rng);
  }

  int64_t rows() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{}); }
  int64_t batch() const { return sizes[0]; }
  int64_t steps() const { return static_cast<int64_t>(sizes.size()); }
  // Of the row of a sequence at a step.
  int64_t row(int64_t step, int64_t sequence) const {
    return std::accumulate(sizes.begin(), sizes.begin() + step, sequence);
  }
  int64_t length(int64_t sequence) const {
    return std::count_if(sizes.begin(), sizes.end(), [&](int64_t n) { return n > sequence; });
  }

  // (rows, n), or (steps, batch, n) where the sequences have one length: these also run as they
  // are.
  bool is_packed() const { return given_sizes || sizes.back() != sizes.front(); }
  std::vector<int64_t> rows_of(int64_t n) const {
    return is_packed() ? std::vector<int64_t>{rows(), n}
                       : std::vector<int64_t>{steps(), batch(), n};
  }

  void forward(int threads) {
    active = gates;
    output = room(rows() * columns), h_n = room(batch() * columns), c_n = room(batch() * hidden);
    kept = room(rows() * hidden);
    VectorViews view;
    const auto run = [&](auto call) {
      call.gates = view(active, rows_of(wide));
      call.weight = view(weight, {wide, columns}), call.bias = view(bias, {wide});
      call.h0 = view(h0, {batch(), columns});
      if (is_packed()) call.batch_sizes = view(given_sizes ? *given_sizes : sizes, {steps()});
      call.reverse = reverse;
      call.output = view(output, rows_of(columns)), call.h_n = view(h_n, {batch(), columns});
      if constexpr (requires { call.cells; }) {
        call.c0 = view(c0, {batch(), hidden}), call.c_n = view(c_n, {batch(), hidden});
        call.cells = view(kept, rows_of(hidden));
        const bool projects = kind == Kind::projected;
        if (projects) call.weight_hr = view(weight_hr, {columns, hidden});
        workspace = room(lstm_workspace(steps(), batch(), hidden, projects ? columns : 0));
      }
      if constexpr (requires { call.hidden_n; }) {
        call.hidden_n = view(kept, rows_of(hidden));
        workspace = room(gru_workspace(steps(), batch(), hidden));
      }
      if constexpr (requires { call.workspace; }) {
        call.workspace = view(workspace, {static_cast<int64_t>(workspace.size())});
      }
      cpu::run(call, CallThreads(threads));
    };
    if (kind == Kind::gru) return run(calls::GruForward<>());
    if (kind == Kind::rnn) return run(calls::RnnForward<>());
    run(calls::LstmForward<>());
  }

  void backward(int threads) {
    grad_gates = room(rows() * wide), grad_hidden = grad_gates;
    grad_h0 = room(batch() * columns), grad_c0 = room(batch() * hidden);
    grad_projection = room(rows() * columns), projected = room(rows() * hidden);
    VectorViews view;
    const auto run = [&](auto call) {
      call.weight = view(weight, {wide, columns});
      call.grad_output = view(grad_output, rows_of(columns));
      call.grad_h_n = view(grad_h_n, {batch(), columns});
      if (is_packed()) call.batch_sizes = view(sizes, {steps()});
      call.reverse = reverse;
      call.grad_gates = view(grad_gates, rows_of(wide));
      call.grad_h0 = view(grad_h0, {batch(), columns});
      if constexpr (requires { call.output; }) call.output = view(output, rows_of(columns));
      if constexpr (requires { call.gates; }) call.gates = view(active, rows_of(wide));
      if constexpr (requires { call.cells; }) {
        call.cells = view(kept, rows_of(hidden)), call.c0 = view(c0, {batch(), hidden});
        call.grad_c_n = view(grad_c_n, {batch(), hidden});
        call.grad_c0 = view(grad_c0, {batch(), hidden});
        const bool projects = kind == Kind::projected;
        if (projects) {
          call.weight_hr = view(weight_hr, {columns, hidden});
          call.grad_projection = view(grad_projection, rows_of(columns));
          call.projected = view(projected, rows_of(hidden));
        }
        workspace = room(lstm_backward_workspace(batch(), hidden, projects ? columns : 0));
      }
      if constexpr (requires { call.hidden_n; }) {
        call.hidden_n = view(kept, rows_of(hidden)), call.h0 = view(h0, {batch(), columns});
        call.grad_hidden = view(grad_hidden, rows_of(wide));
        workspace = room(gru_backward_workspace(batch(), hidden));
      }
      if constexpr (requires { call.workspace; }) {
        call.workspace = view(workspace, {static_cast<int64_t>(workspace.size())});
      }
      cpu::run(call, CallThreads(threads));
    };
    if (kind == Kind::gru) return run(calls::GruBackward<>());
    if (kind == Kind::rnn) return run(calls::RnnBackward<>());
    run(calls::LstmBackward<>());
  }

  // What backward() gives the gradients of.
  double loss() {
    forward(1);
    double sum = std::inner_product(output.begin(), output.end(), grad_output.begin(), 0.0);
    sum = std::inner_product(h_n.begin(), h_n.end(), grad_h_n.begin(), sum);
    return std::inner_product(c_n.begin(), c_n.end(), grad_c_n.begin(), sum);
  }
};

using Field = Doubles PackedProblem::*;
constexpr Field kRows[] = {&PackedProblem::output,          &PackedProblem::active,
                           &PackedProblem::grad_gates,      &PackedProblem::grad_hidden,
                           &PackedProblem::grad_projection, &PackedProblem::projected};
constexpr Field kStates[] = {&PackedProblem::h_n, &PackedProblem::c_n, &PackedProblem::grad_h0,
                             &PackedProblem::grad_c0};

// Rows of `count` elements of `from` become those of `to`, or are compared with them.
void take(const Doubles& from, int64_t at, Doubles& to, int64_t row, int64_t count) {
  std::copy_n(from.begin() + at * count, count, to.begin() + row * count);
}
void compare(const Doubles& got, int64_t at, const Doubles& want, int64_t row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_NEAR(got[static_cast<size_t>(at * count + i)],
                want[static_cast<size_t>(row * count + i)], 1e-11);
  }
}

// Sequence b of the problem by itself.
PackedProblem alone(const PackedProblem& all, int64_t b) {
  const std::vector<int64_t> one(static_cast<size_t>(all.length(b)), 1);
  PackedProblem p(all.kind, one, all.hidden, all.columns, all.reverse);
  p.weight = all.weight, p.bias = all.bias, p.weight_hr = all.weight_hr;
  for (int64_t t = 0; t < p.steps(); ++t) {
    take(all.gates, all.row(t, b), p.gates, t, p.wide);
    take(all.grad_output, all.row(t, b), p.grad_output, t, p.columns);
  }
  take(all.h0, b, p.h0, 0, p.columns), take(all.c0, b, p.c0, 0, p.hidden);
  take(all.grad_h_n, b, p.grad_h_n, 0, p.columns), take(all.grad_c_n, b, p.grad_c_n, 0, p.hidden);
  return p;
}

TEST(PackedRecurrence, IsThatOfEachSequenceForAnyNumberOfThreads) {
  const std::vector<std::vector<int64_t>> lengths = {
      {3, 2}, {5, 4, 4, 2, 1, 1}, {1, 1, 1}, {9, 9, 9, 8, 3}, {2, 1}};
  for (const Kind kind : {Kind::lstm, Kind::projected, Kind::gru, Kind::rnn}) {
    for (const auto& sizes : lengths) {
      for (const int64_t hidden : {5, 200}) {
        for (const bool reverse : {false, true}) {
          SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + ", steps " +
                       std::to_string(sizes.size()) + (reverse ? ", reverse" : "") + ", hidden " +
                       std::to_string(hidden));
          PackedProblem p(kind, sizes, hidden, hidden * 2 / 3, reverse);
          p.forward(1), p.backward(1);
          PackedProblem many = p;
          many.forward(3), many.backward(3);
          for (const Field field : kRows) EXPECT_EQ(p.*field, many.*field);
          for (const Field field : kStates) EXPECT_EQ(p.*field, many.*field);
          for (int64_t b = 0; b < p.batch(); ++b) {
            PackedProblem one = alone(p, b);
            one.forward(1), one.backward(1);
            for (const Field field : kRows) {
              const auto count = static_cast<int64_t>((one.*field).size()) / one.rows();
              for (int64_t t = 0; t < one.steps(); ++t) {
                compare(p.*field, p.row(t, b), one.*field, t, count);
              }
            }
            for (const Field field : kStates) {
              compare(p.*field, b, one.*field, 0, static_cast<int64_t>((one.*field).size()));
            }
          }
        }
      }
    }
  }
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

TEST(ProjectedLstm, AgreesWithLoops) {
  for (const bool reverse : {false, true}) {
    PackedProblem p(Kind::projected, {3, 3, 3, 3}, 7, 4, reverse);
    p.forward(1);
    Doubles h = p.h0, c = p.c0;
    for (int64_t step = 0; step < p.steps(); ++step) {
      const int64_t t = reverse ? p.steps() - 1 - step : step;
      for (int64_t b = 0; b < p.batch(); ++b) {
        Doubles wide_h;
        for (int64_t u = 0; u < p.hidden; ++u) {
          double x[4];
          for (int64_t g = 0; g < 4; ++g) {
            const int64_t unit = g * p.hidden + u;
            x[g] = p.gates[static_cast<size_t>(p.row(t, b) * p.wide + unit)] +
                   p.bias[static_cast<size_t>(unit)];
            for (int64_t k = 0; k < p.columns; ++k) {
              x[g] += p.weight[static_cast<size_t>(unit * p.columns + k)] *
                      h[static_cast<size_t>(b * p.columns + k)];
            }
          }
          double& cell = c[static_cast<size_t>(b * p.hidden + u)];
          cell = sigmoid_of(x[1]) * cell + sigmoid_of(x[0]) * std::tanh(x[2]);
          wide_h.push_back(sigmoid_of(x[3]) * std::tanh(cell));
        }
        for (int64_t k = 0; k < p.columns; ++k) {
          const double next = std::inner_product(wide_h.begin(), wide_h.end(),
                                                 p.weight_hr.begin() + k * p.hidden, 0.0);
          h[static_cast<size_t>(b * p.columns + k)] = next;
          EXPECT_NEAR(p.output[static_cast<size_t>(p.row(t, b) * p.columns + k)], next, 1e-13);
        }
      }
    }
    for (size_t i = 0; i < h.size(); ++i) EXPECT_NEAR(p.h_n[i], h[i], 1e-13);
    for (size_t i = 0; i < c.size(); ++i) EXPECT_NEAR(p.c_n[i], c[i], 1e-13);
  }
}

TEST(ProjectedLstm, GradientsAreDifferences) {
  for (const bool reverse : {false, true}) {
    for (const auto& sizes : {std::vector<int64_t>{2, 2, 2}, std::vector<int64_t>{3, 2, 2, 1}}) {
      PackedProblem p(Kind::projected, sizes, 5, 3, reverse);
      p.forward(1), p.backward(1);
      Doubles grad_hr = Doubles(p.weight_hr.size(), 0.0);
      for (int64_t r = 0; r < p.rows(); ++r) {
        for (int64_t i = 0; i < p.columns * p.hidden; ++i) {
          grad_hr[static_cast<size_t>(i)] +=
              p.grad_projection[static_cast<size_t>(r * p.columns + i / p.hidden)] *
              p.projected[static_cast<size_t>(r * p.hidden + i % p.hidden)];
        }
      }
      const auto check = [&](Field operand, const Doubles& found) {
        constexpr double kStep = 1e-5;
        for (size_t i = 0; i < found.size(); ++i) {
          PackedProblem up = p, down = p;
          (up.*operand)[i] += kStep, (down.*operand)[i] -= kStep;
          EXPECT_NEAR(found[i], (up.loss() - down.loss()) / (2 * kStep), 1e-7);
        }
      };
      check(&PackedProblem::gates, p.grad_gates);
      check(&PackedProblem::h0, p.grad_h0);
      check(&PackedProblem::c0, p.grad_c0);
      check(&PackedProblem::weight_hr, grad_hr);
    }
  }
}

TEST(PackedRecurrence, SaysWhatIsWrong) {
  struct Refusal {
    std::vector<int64_t> sizes;
    std::string message;
  };
  for (const Refusal& wanted : std::vector<Refusal>{
           {{3, 4},
            ": batch_sizes holds 4 at step 1; it has to begin with the batch 3 and never "
            "to increase or be below 1"},
           {{3, 0}, ": batch_sizes holds 0 at step 1; "},
           {{2, 1}, ": batch_sizes holds 2 at step 0; it has to begin with the batch 3"},
           {{3, 3}, ": batch_sizes adds up to 6 rows, given were 5"}}) {
    for (const Kind kind : {Kind::lstm, Kind::projected, Kind::gru, Kind::rnn}) {
      const char* const name = kind == Kind::gru ? "gru" : kind == Kind::rnn ? "rnn" : "lstm";
      PackedProblem p(kind, {3, 2}, 4, 2, false);
      p.given_sizes = &wanted.sizes;
      try {
        p.forward(1);
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
        EXPECT_EQ(std::string(error.what()).rfind(name + wanted.message, 0), 0u) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace hologram
