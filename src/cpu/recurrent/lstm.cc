// SPDX-License-Identifier: MIT
// The recurrence of an LSTM and its gradient: a product and the cells, step by step.
#include "hologram/lstm.h"

#include <algorithm>

#include "src/cpu/recurrent/lstm_kernels.h"
#include "src/cpu/recurrent/recurrence.h"

namespace hologram {
namespace cpu {
namespace {

constexpr int kLstmGates = 4;

template <class T>
struct LstmForward {
  const LstmArgs& args;
  const LstmKernel<T> cells;
  const GateWeight<T> weight;

  explicit LstmForward(const LstmArgs& a)
      : args(a),
        cells(lstm_kernel(current_isa(), T())),
        weight{gemm_kernel(current_isa(), T()),
               static_cast<const T*>(a.weight),
               static_cast<T*>(a.workspace),
               kLstmGates,
               a.hidden,
               a.batch,
               a.steps * a.batch > kFewRecurrentRows} {}

  void run() const {
    const int64_t hidden = args.hidden, batch = args.batch;
    const UnitShares shares(kLstmGates, batch, hidden, args.max_threads);
    if (weight.packs) shares.run([&](Units u) { weight.pack(u); });

    const T* h = static_cast<const T*>(args.h0);
    int64_t h_row = hidden;
    const T* c = static_cast<const T*>(args.c0);
    for (int64_t step = 0; step < args.steps; ++step) {
      const int64_t t = args.reverse ? args.steps - 1 - step : step;
      T* const next = static_cast<T*>(args.output) + t * batch * args.output_row;
      shares.run([&](Units u) {
        for (int64_t g = 0; g < kLstmGates; ++g) {
          weight.multiply_gate(g, h, h_row, u, gates(t) + g * hidden + u.begin, kLstmGates * hidden,
                               T(1));
        }
        compute_cells(t, c, next, u);
      });
      h = next, h_row = args.output_row;
      c = c_after(t);
    }
    copy_rows(batch, hidden, h, h_row, static_cast<T*>(args.h_n));
    copy_rows(batch, hidden, c, hidden, static_cast<T*>(args.c_n));
  }

  T* c_after(int64_t t) const {
    if (args.cells == nullptr) return static_cast<T*>(args.c_n);
    return static_cast<T*>(args.cells) + t * args.batch * args.hidden;
  }

  T* gates(int64_t t) const {
    return static_cast<T*>(args.gates) + t * args.batch * kLstmGates * args.hidden;
  }

  void compute_cells(int64_t t, const T* c, T* next, Units u) const {
    LstmCells<T> s;
    s.rows = args.batch, s.units = u.end - u.begin, s.gate = args.hidden;
    s.gates = gates(t) + u.begin, s.gates_row = kLstmGates * args.hidden;
    s.bias = args.bias != nullptr ? static_cast<const T*>(args.bias) + u.begin : nullptr;
    s.keeps_gates = args.cells != nullptr;
    s.c = c + u.begin, s.c_next = c_after(t) + u.begin, s.c_row = args.hidden;
    s.h = next + u.begin, s.h_row = args.output_row;
    cells(s);
  }
};

// The way back: each step is a product with the weight and the cells of the step before.
template <class T>
struct LstmBackward {
  const LstmBackwardArgs& args;
  const LstmGradKernel<T> cells;
  const int64_t wide;  // a row of gates
  const StateWeight<T> weight;

  explicit LstmBackward(const LstmBackwardArgs& a)
      : args(a),
        cells(lstm_grad_kernel(current_isa(), T())),
        wide(kLstmGates * a.hidden),
        weight{gemm_kernel(current_isa(), T()),
               static_cast<const T*>(a.weight),
               static_cast<T*>(a.workspace),
               wide,
               a.hidden,
               a.batch} {}

  void run() const {
    const UnitShares shares(kLstmGates, args.batch, args.hidden, args.max_threads);
    shares.run([&](Units u) { weight.pack(u); });
    const T* grad_h = static_cast<const T*>(args.grad_h_n);
    const T* grad_c = static_cast<const T*>(args.grad_c_n);
    for (int64_t step = args.steps - 1; step >= 0; --step) {
      const bool is_last = step == args.steps - 1;
      shares.run([&](Units u) {
        if (!is_last) multiply(step + 1, u);
        compute_cells(step, is_last ? grad_h : static_cast<const T*>(args.grad_h0), grad_c, u);
      });
      grad_c = static_cast<const T*>(args.grad_c0);
    }
    if (args.steps > 0) {
      shares.run([&](Units u) { multiply(0, u); });
      return;
    }
    pass_on(grad_h, static_cast<T*>(args.grad_h0));
    pass_on(grad_c, static_cast<T*>(args.grad_c0));
  }

  // Where a step's rows are, counted in the order in which the forward pass went.
  int64_t at(int64_t step) const {
    return (args.reverse ? args.steps - 1 - step : step) * args.batch;
  }
  // grad_h0 = grad_gates[step] weight: what step - 1 adds to its h's gradient.
  void multiply(int64_t step, Units u) const {
    weight.multiply_grad(static_cast<const T*>(args.grad_gates) + at(step) * wide, u,
                         static_cast<T*>(args.grad_h0), T(0));
  }

  void compute_cells(int64_t step, const T* grad_h, const T* grad_c, Units u) const {
    const auto from = [&](const T* x) { return x != nullptr ? x + u.begin : nullptr; };
    const auto states = static_cast<const T*>(args.cells);
    LstmCellGrads<T> s;
    s.rows = args.batch, s.units = u.end - u.begin, s.gate = args.hidden;
    s.gates = static_cast<const T*>(args.gates) + at(step) * wide + u.begin, s.gates_row = wide;
    s.state_row = args.hidden;
    s.c = states + at(step) * args.hidden + u.begin;
    s.c_before =
        from(step > 0 ? states + at(step - 1) * args.hidden : static_cast<const T*>(args.c0));
    s.grad_output_row = args.grad_output_row;
    if (args.grad_output != nullptr) {
      s.grad_output =
          static_cast<const T*>(args.grad_output) + at(step) * args.grad_output_row + u.begin;
    }
    s.grad_h = from(grad_h), s.grad_c = from(grad_c);
    s.grad_c_before = static_cast<T*>(args.grad_c0) + u.begin;
    s.grad_gates = static_cast<T*>(args.grad_gates) + at(step) * wide + u.begin;
    cells(s);
  }

  void pass_on(const T* from, T* to) const {
    const int64_t count = args.batch * args.hidden;
    from != nullptr ? std::copy_n(from, count, to) : std::fill_n(to, count, T(0));
  }
};

void check(const LstmArgs& a) {
  check_recurrence("lstm", a.dtype, a.steps, a.batch, a.hidden, a.output_row);
  if (a.batch == 0 || a.hidden == 0) return;
  const bool has_states =
      a.h0 != nullptr && a.c0 != nullptr && a.h_n != nullptr && a.c_n != nullptr;
  const bool has_steps = a.gates != nullptr && a.weight != nullptr && a.output != nullptr &&
                         (a.workspace != nullptr || a.steps * a.batch <= kFewRecurrentRows);
  if (!has_states || (a.steps > 0 && !has_steps)) fail_null_operand("lstm");
}

void check(const LstmBackwardArgs& a) {
  check_recurrence("lstm_backward", a.dtype, a.steps, a.batch, a.hidden,
                   a.grad_output != nullptr ? a.grad_output_row : a.hidden);
  if (a.batch == 0 || a.hidden == 0) return;
  const bool has_steps = a.gates != nullptr && a.cells != nullptr && a.grad_gates != nullptr;
  if (a.weight == nullptr || a.c0 == nullptr || a.grad_h0 == nullptr || a.grad_c0 == nullptr ||
      a.workspace == nullptr || (a.steps > 0 && !has_steps)) {
    fail_null_operand("lstm_backward");
  }
}

}  // namespace
}  // namespace cpu

void lstm(const LstmArgs& args) {
  cpu::check(args);
  if (args.batch == 0 || args.hidden == 0) return;
  if (args.dtype == Dtype::kFloat32) {
    cpu::LstmForward<float>(args).run();
  } else {
    cpu::LstmForward<double>(args).run();
  }
}

void lstm_backward(const LstmBackwardArgs& args) {
  cpu::check(args);
  if (args.batch == 0 || args.hidden == 0) return;
  if (args.dtype == Dtype::kFloat32) {
    cpu::LstmBackward<float>(args).run();
  } else {
    cpu::LstmBackward<double>(args).run();
  }
}

int64_t lstm_backward_workspace(int64_t batch, int64_t hidden) {
  return batch == 0 ? 0 : cpu::packed_weight_size(cpu::kLstmGates, hidden);
}

int64_t lstm_workspace(int64_t steps, int64_t batch, int64_t hidden) {
  return steps * batch <= cpu::kFewRecurrentRows ? 0
                                                 : cpu::packed_weight_size(cpu::kLstmGates, hidden);
}

}  // namespace hologram
