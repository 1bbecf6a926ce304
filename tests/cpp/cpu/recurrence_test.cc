// SPDX-License-Identifier: MIT
// Compares the recurrence of every cell and its gradients, dense and packed, with plain loops in
// float64, and the gradients with differences of the results as well.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
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

// The inputs of a step for one unit of one row. The step replaces them by its results.
template <class S>
struct Unit {
  static constexpr int kX = 0, kY = 4, kH = 8, kC = 9, kInputs = 10;
  std::array<S, kInputs> values{};
  S kept{};  // what the gradient needs besides the gates, if anything

  S& x(int gate) { return values[kX + gate]; }  // the gate, later its activation
  S& y(int gate) { return values[kY + gate]; }  // what the state adds to the gate, with the bias
  S& h() { return values[kH]; }
  S& c() { return values[kC]; }
};

template <class S>
S logistic(S x) {
  return 1.0 / (1.0 + std::exp(-x));
}

// Each cell names its calls, and says what a step makes of one unit.
template <bool relu>
struct Rnn {
  static constexpr const char* kName = "rnn";
  static constexpr int kGates = 1;
  static constexpr bool kHasC = false, kProjects = false, kRelu = relu;
  using Forward = calls::RnnForward<>;
  using Backward = calls::RnnBackward<>;

  template <class S>
  static void step(Unit<S>& u) {
    const S sum = u.x(0) + u.y(0);
    u.h() = !relu ? std::tanh(sum) : std::real(sum) > 0 ? sum : S(0);
  }
};

struct Gru {
  static constexpr const char* kName = "gru";
  static constexpr int kGates = 3;
  static constexpr bool kHasC = false, kProjects = false, kRelu = false;
  using Forward = calls::GruForward<>;
  using Backward = calls::GruBackward<>;

  template <class S>
  static void step(Unit<S>& u) {
    for (const int gate : {0, 1}) u.x(gate) = logistic(u.x(gate) + u.y(gate));
    u.x(2) = std::tanh(u.x(2) + u.x(0) * u.y(2));
    u.h() = (1.0 - u.x(1)) * u.x(2) + u.x(1) * u.h();
    u.kept = u.y(2);
  }
};

template <bool projects>
struct Lstm {
  static constexpr const char* kName = "lstm";
  static constexpr int kGates = 4;
  static constexpr bool kHasC = true, kProjects = projects, kRelu = false;
  using Forward = calls::LstmForward<>;
  using Backward = calls::LstmBackward<>;

  template <class S>
  static void step(Unit<S>& u) {
    for (const int gate : {0, 1, 3}) u.x(gate) = logistic(u.x(gate) + u.y(gate));
    u.x(2) = std::tanh(u.x(2) + u.y(2));
    u.kept = u.c() = u.x(1) * u.c() + u.x(0) * u.x(2);
    u.h() = u.x(3) * std::tanh(u.c());
  }
};

struct Shape {
  int64_t steps, batch, hidden;
  int64_t gap = 0;  // between rows of the output
  bool reverse = false, bias = true;
  std::vector<int64_t> packed = {};  // the batch of each step, where sequences are packed

  std::string name() const {
    return "steps " + std::to_string(steps) + ", batch " + std::to_string(batch) + ", hidden " +
           std::to_string(hidden) + (reverse ? ", reverse" : "") + (bias ? "" : ", no bias") +
           (packed.empty() ? "" : ", packed");
  }
};

Shape packed_shape(const std::vector<int64_t>& sizes, int64_t hidden, int64_t gap, bool reverse) {
  return {static_cast<int64_t>(sizes.size()), sizes[0], hidden, gap, reverse, true, sizes};
}

std::vector<Shape> shapes() {
  std::vector<Shape> all = {{1, 1, 1},
                            {3, 2, 5},
                            {2, 2, 33, 4, true},  // few rows: the weight is not packed
                            {4, 1, 64},
                            {5, 3, 17, 3, true, false},
                            {4, 3, 7, 0, true},
                            {7, 8, 64},
                            {7, 8, 64, 5, false, false},
                            {6, 5, 100, 100, true},
                            {3, 8, 256, 256},
                            {3, 40, 200},
                            {2, 9, 321, 7, true},
                            {0, 4, 12},
                            {4, 0, 12},
                            {4, 3, 0}};
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {3, 2}, {5, 4, 4, 2, 1, 1}, {1, 1, 1}, {9, 9, 9, 8, 3}, {2, 1}}) {
    for (const int64_t hidden : {5, 200}) {
      all.push_back(packed_shape(sizes, hidden, 0, false));
      all.push_back(packed_shape(sizes, hidden, 3, true));
    }
  }
  return all;
}

// Shapes small enough for differences.
std::vector<Shape> small_shapes() {
  return {{1, 1, 1},
          {3, 2, 5},
          {3, 2, 5, 0, true},
          {4, 2, 33, 4, true},
          {5, 3, 7, 3, true},
          {5, 3, 7, 3, true, false},
          {0, 2, 3},
          packed_shape({3, 2, 2, 1}, 5, 0, false),
          packed_shape({3, 2, 2, 1}, 5, 2, true)};
}

constexpr double kUntouched = 7;
template <class T>
std::vector<T> room(int64_t count) {
  return std::vector<T>(count, T(kUntouched));
}

// All that a recurrence and its gradient make. A result that its cell does not have is empty.
template <class T>
struct Results {
  using Named = std::pair<const char*, const std::vector<T>&>;
  std::vector<T> output, h_n, c_n, gates, kept;
  std::vector<T> grad_gates, grad_hidden, grad_h0, grad_c0, grad_projection, projected;

  std::vector<Named> forward() const {
    return {{"output", output}, {"h_n", h_n}, {"c_n", c_n}, {"gates", gates}, {"kept", kept}};
  }
  std::vector<Named> backward() const {
    return {{"grad_gates", grad_gates}, {"grad_hidden", grad_hidden},
            {"grad_h0", grad_h0},       {"grad_c0", grad_c0},
            {"projected", projected},   {"grad_projection", grad_projection}};
  }
};

// The results whose gradients are given, as bits.
enum Given : unsigned { kOutput = 1, kH = 2, kC = 4 };
template <class Cell>
constexpr unsigned kAll = Cell::kHasC ? kOutput | kH | kC : kOutput | kH;

// The operands of a recurrence and of its gradient.
template <class Cell, class T>
struct Problem {
  using Values = std::vector<T>;
  Shape s;
  std::vector<int64_t> sizes;    // the batch of each step
  int64_t hidden, columns, row;  // the widths of c, of h, and of a row of the output with its gap
  int64_t projection;            // columns, or 0 where nothing projects
  int64_t wide, rows;            // the width of the gates, and the rows of all steps
  Values gates, weight, bias, weight_hr, h0, c0, grad_output, grad_h_n, grad_c_n;

  Problem(const Shape& shape, uint32_t seed)
      : s(shape),
        sizes(s.packed.empty() ? std::vector<int64_t>(s.steps, s.batch) : s.packed),
        hidden(s.hidden),
        columns(Cell::kProjects && hidden > 1 ? hidden * 2 / 3 : hidden),
        row(columns + s.gap),
        projection(Cell::kProjects ? columns : 0),
        wide(Cell::kGates * hidden),
        rows(std::accumulate(sizes.begin(), sizes.end(), int64_t{})) {
    std::mt19937 rng(seed);
    const auto draw = [&](Values& x, int64_t count, double largest) {
      x.resize(count);
      for (T& v : x) v = static_cast<T>(largest * (rng() * 0x1p-31 - 1));
    };
    draw(gates, rows * wide, 3);
    draw(weight, wide * columns, std::sqrt(3.0 / columns));
    if (s.bias) draw(bias, wide, 1);
    if (Cell::kProjects) draw(weight_hr, columns * hidden, std::sqrt(3.0 / hidden));
    draw(h0, s.batch * columns, 1), draw(c0, s.batch * hidden, 2);
    draw(grad_output, rows * row, 2);
    draw(grad_h_n, s.batch * columns, 2), draw(grad_c_n, s.batch * hidden, 2);
  }

  int64_t length(int64_t sequence) const {
    return std::count_if(sizes.begin(), sizes.end(), [&](int64_t n) { return n > sequence; });
  }
  // The row of a sequence at a step, counted in the order of the recurrence.
  int64_t row_at(int64_t step, int64_t sequence) const {
    const int64_t t = s.reverse ? length(sequence) - 1 - step : step;
    return std::accumulate(sizes.begin(), sizes.begin() + t, sequence);
  }
  std::vector<int64_t> rows_of(int64_t width) const {
    if (s.packed.empty()) return {s.steps, s.batch, width};
    return {rows, width};
  }

  // Fills what calls of both directions take.
  template <class Call>
  void fill(Call& call, VectorViews& view, const Values& workspace) const {
    call.weight = view(weight, {wide, columns});
    if (!s.packed.empty()) call.batch_sizes = view(sizes, {s.steps});
    call.reverse = s.reverse;
    if constexpr (Cell::kProjects) call.weight_hr = view(weight_hr, {columns, hidden});
    if constexpr (requires { call.relu; }) call.relu = Cell::kRelu;
    if constexpr (requires { call.workspace; }) {
      call.workspace = view(workspace, {static_cast<int64_t>(workspace.size())});
    }
  }

  // in_place: the last states take the memory of the first.
  template <class Call = typename Cell::Forward>
  Results<T> forward(int threads, bool in_place = false) const {
    Results<T> made;
    Values workspace =
        room<T>(Cell::kGates == 4   ? lstm_workspace(s.steps, s.batch, hidden, projection)
                : Cell::kGates == 3 ? gru_workspace(s.steps, s.batch, hidden)
                                    : 0);
    VectorViews view;
    Call call;
    fill(call, view, workspace);
    made.gates = gates, call.gates = view(made.gates, rows_of(wide));
    call.bias = view(bias, {wide});
    made.output = room<T>(rows * row);
    call.output = view(made.output, rows_of(columns), row);
    made.h_n = in_place ? h0 : room<T>(s.batch * columns);
    call.h0 = view(in_place ? made.h_n : h0, {s.batch, columns});
    call.h_n = view(made.h_n, {s.batch, columns});
    if constexpr (Cell::kHasC) {
      made.c_n = in_place ? c0 : room<T>(s.batch * hidden);
      call.c0 = view(in_place ? made.c_n : c0, {s.batch, hidden});
      call.c_n = view(made.c_n, {s.batch, hidden});
    }
    if (Cell::kGates > 1) made.kept = room<T>(rows * hidden);
    if constexpr (requires { call.cells; }) call.cells = view(made.kept, rows_of(hidden));
    if constexpr (requires { call.hidden_n; }) call.hidden_n = view(made.kept, rows_of(hidden));
    cpu::run(call, CallThreads(threads));
    return made;
  }

  // Adds the gradients to what forward() made. in_place: that of the gates takes their memory.
  void backward(Results<T>& made, int threads, unsigned given, bool in_place = false) const {
    Values workspace =
        room<T>(Cell::kGates == 4   ? lstm_backward_workspace(s.batch, hidden, projection)
                : Cell::kGates == 3 ? gru_backward_workspace(s.batch, hidden)
                                    : 0);
    VectorViews view;
    typename Cell::Backward call;
    fill(call, view, workspace);
    if (given & kOutput) call.grad_output = view(grad_output, rows_of(columns), row);
    if (given & kH) call.grad_h_n = view(grad_h_n, {s.batch, columns});
    made.grad_gates = in_place ? made.gates : room<T>(rows * wide);
    call.grad_gates = view(made.grad_gates, rows_of(wide));
    made.grad_h0 = room<T>(s.batch * columns);
    call.grad_h0 = view(made.grad_h0, {s.batch, columns});
    if constexpr (requires { call.output; }) call.output = view(made.output, rows_of(columns), row);
    if constexpr (requires { call.gates; }) {
      call.gates = view(in_place ? made.grad_gates : made.gates, rows_of(wide));
    }
    if constexpr (requires { call.hidden_n; }) {
      call.hidden_n = view(made.kept, rows_of(hidden)), call.h0 = view(h0, {s.batch, columns});
      made.grad_hidden = room<T>(rows * wide);
      call.grad_hidden = view(made.grad_hidden, rows_of(wide));
    }
    if constexpr (Cell::kHasC) {
      call.cells = view(made.kept, rows_of(hidden)), call.c0 = view(c0, {s.batch, hidden});
      if (given & kC) call.grad_c_n = view(grad_c_n, {s.batch, hidden});
      made.grad_c0 = room<T>(s.batch * hidden);
      call.grad_c0 = view(made.grad_c0, {s.batch, hidden});
    }
    if constexpr (Cell::kProjects) {
      made.grad_projection = room<T>(rows * columns), made.projected = room<T>(rows * hidden);
      call.grad_projection = view(made.grad_projection, rows_of(columns));
      call.projected = view(made.projected, rows_of(hidden));
    }
    cpu::run(call, CallThreads(threads));
  }
};

template <class T>
constexpr double kForwardTolerance = sizeof(T) == 4 ? 2e-5 : 1e-13;
template <class T>
constexpr double kBackwardTolerance = sizeof(T) == 4 ? 2e-5 : 1e-12;

template <class Got, class Want>
void expect_near(const Got& got, const Want& want, double tolerance) {
  for (size_t f = 0; f < got.size(); ++f) {
    const auto& [name, values] = got[f];
    if (values.empty()) continue;
    ASSERT_EQ(values.size(), want[f].second.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      const double right = want[f].second[i];
      const double far = std::abs(values[i] - right);
      if (far <= (right == kUntouched ? 0 : tolerance)) continue;
      FAIL() << name << " at " << i << " is " << values[i] << ", " << far << " from " << right;
    }
  }
}

template <class Named>
void expect_same_bits(const Named& got, const Named& want) {
  for (size_t f = 0; f < got.size(); ++f) {
    const auto& [name, a] = got[f];
    const auto& b = want[f].second;
    ASSERT_EQ(a.size(), b.size()) << name;
    EXPECT_TRUE(a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0) << name;
  }
}

double dot(const Doubles& x, const auto* y, double sum = 0) {
  return std::inner_product(x.begin(), x.end(), y, sum);
}
void add(double factor, const auto* x, Doubles& to) {
  for (double& v : to) v += factor * *x++;
}
void put(const Doubles& x, Doubles& to, int64_t at, int64_t width) {
  std::copy(x.begin(), x.end(), to.begin() + at * width);
}

// Computes each sequence by itself, unit by unit. The slopes of a step are the imaginary parts of
// its results after a tiny imaginary change of an input, which rounds nothing away; the chain rule
// joins the steps. The kernel's output says which way it rounded.
template <class Cell, class T>
struct Reference {
  struct Slopes {
    std::array<double, Unit<T>::kInputs> h{}, c{};
  };
  const Problem<Cell, T>& p;
  std::vector<Slopes> slopes;
  Results<double> right;

  Reference(const Problem<Cell, T>& problem, const std::vector<T>& output)
      : p(problem), slopes(p.rows * p.hidden) {
    right.gates = right.grad_gates = right.grad_hidden = room<double>(p.rows * p.wide);
    right.output = room<double>(p.rows * p.row);
    right.grad_projection = room<double>(p.rows * p.columns);
    right.kept = right.projected = room<double>(p.rows * p.hidden);
    right.h_n = right.grad_h0 = room<double>(p.s.batch * p.columns);
    right.c_n = right.grad_c0 = room<double>(p.s.batch * p.hidden);
    for (int64_t b = 0; b < p.s.batch; ++b) {
      Doubles h = row_of(p.h0, b, p.columns), c = row_of(p.c0, b, p.hidden);
      for (int64_t step = 0; step < p.length(b); ++step) {
        const int64_t r = p.row_at(step, b);
        Doubles made(p.hidden);
        for (int64_t u = 0; u < p.hidden; ++u) {
          made[u] = run_unit(r, u, h, c[u], &output[r * p.row]);
        }
        put(made, right.projected, r, p.hidden);
        h.assign(made.begin(), made.begin() + p.columns);
        for (int64_t k = 0; k < p.columns && Cell::kProjects; ++k) {
          h[k] = dot(made, &p.weight_hr[k * p.hidden]);
        }
        put(h, right.output, r, p.row);
      }
      put(h, right.h_n, b, p.columns), put(c, right.c_n, b, p.hidden);
    }
  }

  // Returns h of one unit before the projection; c becomes that of the step.
  double run_unit(int64_t r, int64_t u, const Doubles& h, double& c, const T* kernel_h) {
    Unit<double> unit;
    for (int g = 0; g < Cell::kGates; ++g) {
      const int64_t at = g * p.hidden + u;
      unit.x(g) = p.gates[r * p.wide + at];
      unit.y(g) = dot(h, &p.weight[at * p.columns], p.s.bias ? p.bias[at] : 0);
    }
    unit.h() = Cell::kProjects ? 0 : h[u], unit.c() = c;
    // Rounding decides on which side of zero a tiny sum lies, so the kernel's side is taken.
    constexpr double kTiny = kForwardTolerance<T> / 10;
    if (Cell::kRelu && std::abs(unit.x(0) + unit.y(0)) < kTiny) {
      unit.y(0) = (kernel_h[u] > 0 ? kTiny : -kTiny) - unit.x(0);
    }
    Slopes& slope = slopes[r * p.hidden + u];
    for (int i = 0; i < Unit<T>::kInputs; ++i) {
      if (i < Unit<T>::kH && i % Unit<T>::kY >= Cell::kGates) continue;
      constexpr double kChange = 1e-100;
      Unit<std::complex<double>> changed;
      std::copy(unit.values.begin(), unit.values.end(), changed.values.begin());
      changed.values[i].imag(kChange);
      Cell::step(changed);
      slope.h[i] = changed.h().imag() / kChange, slope.c[i] = changed.c().imag() / kChange;
    }
    Cell::step(unit);
    for (int g = 0; g < Cell::kGates; ++g) right.gates[r * p.wide + g * p.hidden + u] = unit.x(g);
    right.kept[r * p.hidden + u] = unit.kept;
    c = unit.c();
    return unit.h();
  }

  void backward(unsigned given) {
    for (int64_t b = 0; b < p.s.batch; ++b) {
      Doubles grad_h(p.columns), grad_c(p.hidden);
      if (given & kH) grad_h = row_of(p.grad_h_n, b, p.columns);
      if (given & kC) grad_c = row_of(p.grad_c_n, b, p.hidden);
      for (int64_t step = p.length(b) - 1; step >= 0; --step) {
        const int64_t r = p.row_at(step, b);
        if (given & kOutput) add(1, p.grad_output.data() + r * p.row, grad_h);
        put(grad_h, right.grad_projection, r, p.columns);
        Doubles grad_made = grad_h;  // the gradient of h before the projection
        if (Cell::kProjects) grad_made.assign(p.hidden, 0);
        for (int64_t k = 0; k < p.columns && Cell::kProjects; ++k) {
          add(grad_h[k], &p.weight_hr[k * p.hidden], grad_made);
        }
        grad_h.assign(p.columns, 0);
        for (int64_t u = 0; u < p.hidden; ++u) {
          const Slopes& slope = slopes[r * p.hidden + u];
          const auto grad_of = [&, of_h = grad_made[u], of_c = grad_c[u]](int input) {
            return of_h * slope.h[input] + of_c * slope.c[input];
          };
          for (int g = 0; g < Cell::kGates; ++g) {
            const int64_t unit = g * p.hidden + u, at = r * p.wide + unit;
            right.grad_gates[at] = grad_of(Unit<T>::kX + g);
            right.grad_hidden[at] = grad_of(Unit<T>::kY + g);
            add(right.grad_hidden[at], &p.weight[unit * p.columns], grad_h);
          }
          if (!Cell::kProjects) grad_h[u] += grad_of(Unit<T>::kH);
          grad_c[u] = grad_of(Unit<T>::kC);
        }
      }
      put(grad_h, right.grad_h0, b, p.columns), put(grad_c, right.grad_c0, b, p.hidden);
    }
  }

  static Doubles row_of(const std::vector<T>& x, int64_t at, int64_t width) {
    return {x.begin() + at * width, x.begin() + (at + 1) * width};
  }
};

template <class Cell>
struct Recurrence : ::testing::Test {
  // Calls check(problem) for every shape in both types.
  static void for_problems(const auto& check) {
    uint32_t seed = 0;
    for (const Shape& shape : shapes()) {
      SCOPED_TRACE(shape.name());
      check(Problem<Cell, float>(shape, ++seed));
      check(Problem<Cell, double>(shape, seed));
    }
  }
};

using Cells = ::testing::Types<Rnn<false>, Rnn<true>, Gru, Lstm<false>, Lstm<true>>;
TYPED_TEST_SUITE(Recurrence, Cells);

TYPED_TEST(Recurrence, AgreesWithLoops) {
  this->for_problems([]<class T>(const Problem<TypeParam, T>& p) {
    Results<T> made = p.forward(1);
    Reference<TypeParam, T> reference(p, made.output);
    expect_near(made.forward(), reference.right.forward(), kForwardTolerance<T>);
    // Every choice of gradients would take seconds where shapes are large and gates are many.
    const bool every = p.hidden < 100 || TypeParam::kGates == 1;
    for (unsigned given = every ? 0 : kAll<TypeParam>; given <= kAll<TypeParam>; ++given) {
      SCOPED_TRACE("given " + std::to_string(given));
      p.backward(made, 1, given);
      reference.backward(given);
      expect_near(made.backward(), reference.right.backward(), kBackwardTolerance<T>);
    }
  });
}

TYPED_TEST(Recurrence, HasTheSameBitsForAnyNumberOfThreads) {
  this->for_problems([]<class T>(const Problem<TypeParam, T>& p) {
    Results<T> one = p.forward(1);
    p.backward(one, 1, kAll<TypeParam>);
    for (const int threads : {2, 3}) {
      Results<T> many = p.forward(threads);
      p.backward(many, threads, kAll<TypeParam>);
      expect_same_bits(many.forward(), one.forward());
      expect_same_bits(many.backward(), one.backward());
    }
  });
}

TYPED_TEST(Recurrence, HasTheSameBitsInPlaceAndWhereItKeepsNothing) {
  this->for_problems([]<class T>(const Problem<TypeParam, T>& p) {
    Results<T> made = p.forward(1);
    expect_same_bits(p.forward(1, true).forward(), made.forward());
    if constexpr (TypeParam::kHasC) {
      for (const bool in_place : {false, true}) {
        Results<T> plain = p.template forward<calls::LstmRecurrence<>>(1, in_place);
        plain.gates = made.gates, plain.kept = made.kept;  // which it does not make
        expect_same_bits(plain.forward(), made.forward());
      }
      Results<T> in_place = made;
      p.backward(made, 1, kAll<TypeParam>);
      p.backward(in_place, 1, kAll<TypeParam>, true);
      expect_same_bits(in_place.backward(), made.backward());
    }
  });
}

TYPED_TEST(Recurrence, GradientsAreDifferences) {
  using Exact = Problem<TypeParam, double>;
  uint32_t seed = 40;
  for (const Shape& shape : small_shapes()) {
    for (unsigned given = 0; given <= kAll<TypeParam>; ++given) {
      SCOPED_TRACE(shape.name() + ", given " + std::to_string(given));
      const Exact p(shape, ++seed);
      Results<double> made = p.forward(1);
      p.backward(made, 1, given);
      // The gradients are those of the results times what is given.
      const auto loss = [&](const Exact& q) {
        const Results<double> r = q.forward(1);
        double sum = given & kOutput ? dot(r.output, q.grad_output.data()) : 0;
        if (given & kH) sum = dot(r.h_n, q.grad_h_n.data(), sum);
        return given & kC ? dot(r.c_n, q.grad_c_n.data(), sum) : sum;
      };
      const auto check = [&](Doubles Exact::*operand, const Doubles& found) {
        constexpr double kStep = 1e-5;
        const size_t stride = std::max<size_t>(1, found.size() / 100);
        for (size_t i = 0; i < found.size(); i += stride) {
          Exact up = p, down = p;
          (up.*operand)[i] += kStep, (down.*operand)[i] -= kStep;
          EXPECT_NEAR(found[i], (loss(up) - loss(down)) / (2 * kStep), 1e-7);
        }
      };
      check(&Exact::gates, made.grad_gates);
      check(&Exact::h0, made.grad_h0);
      check(&Exact::c0, made.grad_c0);
      // The bias reaches every row as the product with the state does.
      const Doubles& grad_hidden = made.grad_hidden.empty() ? made.grad_gates : made.grad_hidden;
      Doubles grad_bias(p.bias.size()), grad_hr(p.weight_hr.size());
      for (int64_t r = 0; r < p.rows; ++r) {
        add(1, grad_hidden.data() + r * p.wide, grad_bias);
        for (size_t i = 0; i < grad_hr.size(); ++i) {
          grad_hr[i] += made.grad_projection[r * p.columns + i / p.hidden] *
                        made.projected[r * p.hidden + i % p.hidden];
        }
      }
      check(&Exact::bias, grad_bias);
      check(&Exact::weight_hr, grad_hr);
    }
  }
}

TYPED_TEST(Recurrence, RefusesWrongBatchSizes) {
  using Sizes = std::vector<int64_t>;
  for (const auto& [sizes, message] : std::vector<std::pair<Sizes, std::string>>{
           {{3, 4},
            ": batch_sizes holds 4 at step 1; it has to begin with the batch 3 and never "
            "to increase or be below 1"},
           {{3, 0}, ": batch_sizes holds 0 at step 1; "},
           {{2, 1}, ": batch_sizes holds 2 at step 0; it has to begin with the batch 3"},
           {{3, 3}, ": batch_sizes adds up to 6 rows, given were 5"}}) {
    Problem<TypeParam, double> p(packed_shape({3, 2}, 4, 0, false), 1);
    p.sizes = sizes;
    try {
      p.forward(1);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
      EXPECT_EQ(std::string(error.what()).rfind(TypeParam::kName + message, 0), 0u) << error.what();
    }
  }
}

TEST(LstmRecurrence, SaturatesWhereGatesAreHuge) {
  Problem<Lstm<false>, float> p({1, 1, 2, 0, false, false}, 3);
  p.weight.assign(p.weight.size(), 0.0f);
  //         i          f          g          o
  p.gates = {1e30f, 0, -1e30f, 90, 1e30f, 90, 1e30f, -90};
  p.c0 = {5, 3};
  const Results<float> made = p.forward<calls::LstmRecurrence<>>(1);
  EXPECT_EQ(made.c_n[0], 1.0f);  // all of tanh(inf), none of what was
  EXPECT_EQ(made.h_n[0], std::tanh(1.0f));
  EXPECT_NEAR(made.c_n[1], 3.5, 1e-6);
  EXPECT_NEAR(made.h_n[1] / std::exp(-90.0), std::tanh(3.5), 1e-5);
}

}  // namespace
}  // namespace hologram
