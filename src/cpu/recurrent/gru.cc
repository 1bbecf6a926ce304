// SPDX-License-Identifier: MIT
// The recurrence of a GRU and its gradient: a product and the cells, step by step.
#include "hologram/gru.h"

#include <algorithm>

#include "src/cpu/recurrent/gru_kernels.h"
#include "src/cpu/recurrent/recurrence.h"

namespace hologram {
namespace cpu {
namespace {

constexpr int kGruGates = 3;

template <class T>
struct GruForward {
  const GruArgs& args;
  const GruKernels<T> kernels;
  const GateWeight<T> weight;

  explicit GruForward(const GruArgs& a)
      : args(a),
        kernels(gru_kernels(current_isa(), T())),
        weight{gemm_kernel(current_isa(), T()),
               static_cast<const T*>(a.weight),
               static_cast<T*>(a.workspace),
               kGruGates,
               a.hidden,
               a.batch,
               a.steps * a.batch > kFewRecurrentRows} {}

  void run() const {
    const int64_t hidden = args.hidden, batch = args.batch;
    const UnitShares shares(kGruGates, batch, hidden, args.max_threads);
    if (weight.packs) shares.run([&](Units u) { weight.pack(u); });
    const T* h = static_cast<const T*>(args.h0);
    int64_t h_row = hidden;
    for (int64_t step = 0; step < args.steps; ++step) {
      const int64_t t = args.reverse ? args.steps - 1 - step : step;
      T* const next = static_cast<T*>(args.output) + t * batch * args.output_row;
      shares.run([&](Units u) { compute_step(t, h, h_row, next, u); });
      h = next, h_row = args.output_row;
    }
    copy_rows(batch, hidden, h, h_row, static_cast<T*>(args.h_n));
  }

  void compute_step(int64_t t, const T* h, int64_t h_row, T* next, Units u) const {
    const int64_t hidden = args.hidden, wide = kGruGates * hidden;
    GruCells<T> s;
    s.rows = args.batch, s.units = u.end - u.begin, s.gate = hidden;
    s.gates = static_cast<T*>(args.gates) + t * args.batch * wide + u.begin, s.gates_row = wide;
    s.hidden_n = static_cast<T*>(args.hidden_n) + t * args.batch * hidden + u.begin;
    s.hidden_row = hidden;
    s.bias = args.bias != nullptr ? static_cast<const T*>(args.bias) + u.begin : nullptr;
    s.h = h + u.begin, s.h_row = h_row;
    s.h_next = next + u.begin, s.next_row = args.output_row;
    weight.multiply_gate(0, h, h_row, u, s.gates, wide, T(1));
    weight.multiply_gate(1, h, h_row, u, s.gates + hidden, wide, T(1));
    weight.multiply_gate(2, h, h_row, u, s.hidden_n, hidden, T(0));
    kernels.cells(s);
  }
};

template <class T>
struct GruBackward {
  const GruBackwardArgs& args;
  const GruKernels<T> kernels;
  const int64_t wide;  // a row of gates
  const StateWeight<T> weight;

  explicit GruBackward(const GruBackwardArgs& a)
      : args(a),
        kernels(gru_kernels(current_isa(), T())),
        wide(kGruGates * a.hidden),
        weight{gemm_kernel(current_isa(), T()),
               static_cast<const T*>(a.weight),
               static_cast<T*>(a.workspace),
               wide,
               a.hidden,
               a.batch} {}

  void run() const {
    const UnitShares shares(kGruGates, args.batch, args.hidden, args.max_threads);
    shares.run([&](Units u) { weight.pack(u); });
    for (int64_t step = args.steps - 1; step >= 0; --step) {
      shares.run([&](Units u) {
        if (step < args.steps - 1) multiply(step + 1, u);
        compute_cells(step, u);
      });
    }
    if (args.steps > 0) {
      shares.run([&](Units u) { multiply(0, u); });
      return;
    }
    const int64_t count = args.batch * args.hidden;
    T* const to = static_cast<T*>(args.grad_h0);
    args.grad_h_n != nullptr ? std::copy_n(static_cast<const T*>(args.grad_h_n), count, to)
                             : std::fill_n(to, count, T(0));
  }

  // Where a step's rows are, counted in the order in which the forward pass went.
  int64_t at(int64_t step) const {
    return (args.reverse ? args.steps - 1 - step : step) * args.batch;
  }

  // grad_h0 += grad_hidden[step] weight: now it is all that reaches the step before.
  void multiply(int64_t step, Units u) const {
    weight.multiply_grad(static_cast<const T*>(args.grad_hidden) + at(step) * wide, u,
                         static_cast<T*>(args.grad_h0), T(1));
  }

  void compute_cells(int64_t step, Units u) const {
    GruCellGrads<T> s;
    s.rows = args.batch, s.units = u.end - u.begin, s.gate = args.hidden;
    s.gates = static_cast<const T*>(args.gates) + at(step) * wide + u.begin, s.gates_row = wide;
    s.state_row = args.hidden;
    s.hidden_n = static_cast<const T*>(args.hidden_n) + at(step) * args.hidden + u.begin;
    s.before_row = step > 0 ? args.output_row : args.hidden;
    s.h_before = step > 0 ? static_cast<const T*>(args.output) + at(step - 1) * args.output_row
                          : static_cast<const T*>(args.h0);
    s.h_before += u.begin;
    s.grad_output_row = args.grad_output_row;
    if (args.grad_output != nullptr) {
      s.grad_output =
          static_cast<const T*>(args.grad_output) + at(step) * args.grad_output_row + u.begin;
    }
    s.grad_h_before = static_cast<T*>(args.grad_h0) + u.begin;
    s.grad_h = s.grad_h_before;
    if (step == args.steps - 1) {
      s.grad_h =
          args.grad_h_n != nullptr ? static_cast<const T*>(args.grad_h_n) + u.begin : nullptr;
    }
    s.grad_gates = static_cast<T*>(args.grad_gates) + at(step) * wide + u.begin;
    s.grad_hidden = static_cast<T*>(args.grad_hidden) + at(step) * wide + u.begin;
    kernels.grads(s);
  }
};

void check(const GruArgs& a) {
  check_recurrence("gru", a.dtype, a.steps, a.batch, a.hidden, a.output_row);
  if (a.batch == 0 || a.hidden == 0) return;
  const bool has_steps = a.gates != nullptr && a.weight != nullptr && a.output != nullptr &&
                         a.hidden_n != nullptr &&
                         (a.workspace != nullptr || a.steps * a.batch <= kFewRecurrentRows);
  if (a.h0 == nullptr || a.h_n == nullptr || (a.steps > 0 && !has_steps)) fail_null_operand("gru");
}

void check(const GruBackwardArgs& a) {
  check_recurrence(
      "gru_backward", a.dtype, a.steps, a.batch, a.hidden,
      a.grad_output != nullptr ? std::min(a.output_row, a.grad_output_row) : a.output_row);
  if (a.batch == 0 || a.hidden == 0) return;
  const bool has_steps = a.gates != nullptr && a.hidden_n != nullptr && a.output != nullptr &&
                         a.grad_gates != nullptr && a.grad_hidden != nullptr;
  if (a.weight == nullptr || a.h0 == nullptr || a.grad_h0 == nullptr || a.workspace == nullptr ||
      (a.steps > 0 && !has_steps)) {
    fail_null_operand("gru_backward");
  }
}

}  // namespace
}  // namespace cpu

void gru(const GruArgs& args) {
  cpu::check(args);
  if (args.batch == 0 || args.hidden == 0) return;
  if (args.dtype == Dtype::kFloat32) {
    cpu::GruForward<float>(args).run();
  } else {
    cpu::GruForward<double>(args).run();
  }
}

void gru_backward(const GruBackwardArgs& args) {
  cpu::check(args);
  if (args.batch == 0 || args.hidden == 0) return;
  if (args.dtype == Dtype::kFloat32) {
    cpu::GruBackward<float>(args).run();
  } else {
    cpu::GruBackward<double>(args).run();
  }
}

int64_t gru_workspace(int64_t steps, int64_t batch, int64_t hidden) {
  return steps * batch <= cpu::kFewRecurrentRows ? 0
                                                 : cpu::packed_weight_size(cpu::kGruGates, hidden);
}

int64_t gru_backward_workspace(int64_t batch, int64_t hidden) {
  return batch == 0 ? 0 : cpu::packed_weight_size(cpu::kGruGates, hidden);
}

}  // namespace hologram
