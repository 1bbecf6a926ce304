// SPDX-License-Identifier: MIT
// The recurrence of a GRU and its gradient: a product and the cells, step by step.

#include <algorithm>

#include "hologram/recurrent.h"
#include "src/cpu/recurrent/gru.h"
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
  const Steps steps;
  const GateWeight<T> weight;

  explicit GruForward(const GruArgs& a)
      : args(a),
        kernels(gru_kernels(current_isa(), T())),
        steps("gru", a.steps, a.batch, a.batch_sizes, a.reverse),
        weight{gemm_kernel(current_isa(), T()),
               static_cast<const T*>(a.weight),
               static_cast<T*>(a.workspace),
               kGruGates,
               a.hidden,
               a.hidden,
               steps.total() > kFewRecurrentRows} {}

  void run() const {
    const int64_t hidden = args.hidden, batch = args.batch;
    const UnitShares shares(batch * kGruGates * hidden * hidden, hidden, args.max_threads);
    if (weight.packs) shares.run([&](Units u) { weight.pack(u); });
    RunningState<T> h(static_cast<const T*>(args.h0), static_cast<T*>(args.h_n), batch, hidden);
    for (int64_t step = 0; step < steps.count(); ++step) {
      const StepRows at = steps[step];
      h.begin(at.count);
      T* const next = static_cast<T*>(args.output) + at.first * args.output_row;
      shares.run([&](Units u) { compute_step(at, h.data(), h.row(), next, u); });
      h.end(next, args.output_row);
    }
    h.finish();
  }

  void compute_step(StepRows at, const T* h, int64_t h_row, T* next, Units u) const {
    const int64_t hidden = args.hidden, wide = kGruGates * hidden;
    GruCells<T> s;
    s.rows = at.count, s.units = u.end - u.begin, s.gate = hidden;
    s.gates = static_cast<T*>(args.gates) + at.first * wide + u.begin, s.gates_row = wide;
    s.hidden_n = static_cast<T*>(args.hidden_n) + at.first * hidden + u.begin;
    s.hidden_row = hidden;
    s.bias = args.bias != nullptr ? static_cast<const T*>(args.bias) + u.begin : nullptr;
    s.h = h + u.begin, s.h_row = h_row;
    s.h_next = next + u.begin, s.next_row = args.output_row;
    weight.multiply_gate(0, at.count, h, h_row, u, s.gates, wide, T(1));
    weight.multiply_gate(1, at.count, h, h_row, u, s.gates + hidden, wide, T(1));
    weight.multiply_gate(2, at.count, h, h_row, u, s.hidden_n, hidden, T(0));
    kernels.cells(s);
  }
};

template <class T>
struct GruBackward {
  const GruBackwardArgs& args;
  const GruKernels<T> kernels;
  const int64_t wide;  // a row of gates
  const Steps steps;
  const StateWeight<T> weight;

  explicit GruBackward(const GruBackwardArgs& a)
      : args(a),
        kernels(gru_kernels(current_isa(), T())),
        wide(kGruGates * a.hidden),
        steps("gru_backward", a.steps, a.batch, a.batch_sizes, a.reverse),
        weight{gemm_kernel(current_isa(), T()), static_cast<const T*>(a.weight),
               static_cast<T*>(a.workspace), wide, a.hidden} {}

  void run() const {
    const UnitShares shares(args.batch * wide * args.hidden, args.hidden, args.max_threads);
    shares.run([&](Units u) { weight.pack(u); });
    copy_or_zero(args.batch * args.hidden, static_cast<const T*>(args.grad_h_n),
                 static_cast<T*>(args.grad_h0));
    for (int64_t step = steps.count() - 1; step >= 0; --step) {
      shares.run([&](Units u) {
        if (step < steps.count() - 1) multiply(step + 1, u);
        compute_cells(step, u);
      });
    }
    if (steps.count() > 0) shares.run([&](Units u) { multiply(0, u); });
  }

  // grad_h0 += grad_hidden[step] weight: now it is all that reaches the step before.
  void multiply(int64_t step, Units u) const {
    const StepRows at = steps[step];
    weight.multiply_grad(at.count, static_cast<const T*>(args.grad_hidden) + at.first * wide, u,
                         static_cast<T*>(args.grad_h0), T(1));
  }

  void compute_cells(int64_t step, Units u) const {
    const int64_t hidden = args.hidden;
    const auto part = [&](StepRows at, int64_t first, const T* h_before, int64_t before_row) {
      GruCellGrads<T> s;
      s.rows = at.count, s.units = u.end - u.begin, s.gate = hidden;
      s.gates = static_cast<const T*>(args.gates) + at.first * wide + u.begin, s.gates_row = wide;
      s.state_row = hidden;
      s.hidden_n = static_cast<const T*>(args.hidden_n) + at.first * hidden + u.begin;
      s.h_before = h_before + u.begin, s.before_row = before_row;
      s.grad_output_row = args.grad_output_row;
      if (args.grad_output != nullptr) {
        s.grad_output =
            static_cast<const T*>(args.grad_output) + at.first * args.grad_output_row + u.begin;
      }
      s.grad_h_before = static_cast<T*>(args.grad_h0) + first * hidden + u.begin;
      s.grad_h = s.grad_h_before;
      s.grad_gates = static_cast<T*>(args.grad_gates) + at.first * wide + u.begin;
      s.grad_hidden = static_cast<T*>(args.grad_hidden) + at.first * wide + u.begin;
      kernels.grads(s);
    };
    const StepRows at = steps[step];
    const int64_t continued = steps.continued(step);
    if (continued > 0) {
      part({at.first, continued}, 0,
           static_cast<const T*>(args.output) + steps[step - 1].first * args.output_row,
           args.output_row);
    }
    if (continued < at.count) {
      part({at.first + continued, at.count - continued}, continued,
           static_cast<const T*>(args.h0) + continued * hidden, hidden);
    }
  }
};

void check(const GruArgs& a) {
  check_recurrence("gru", a.dtype, a.steps, a.batch, a.hidden, a.hidden, a.output_row);
  if (a.batch == 0 || a.hidden == 0) return;
  const bool has_steps = a.gates != nullptr && a.weight != nullptr && a.output != nullptr &&
                         a.hidden_n != nullptr &&
                         (a.workspace != nullptr || a.steps * a.batch <= kFewRecurrentRows);
  if (a.h0 == nullptr || a.h_n == nullptr || (a.steps > 0 && !has_steps)) fail_null_operand("gru");
}

void check(const GruBackwardArgs& a) {
  check_recurrence(
      "gru_backward", a.dtype, a.steps, a.batch, a.hidden, a.hidden,
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
  return steps * batch <= cpu::kFewRecurrentRows
             ? 0
             : cpu::packed_weight_size(cpu::kGruGates, hidden, hidden);
}

int64_t gru_backward_workspace(int64_t batch, int64_t hidden) {
  return batch == 0 ? 0 : cpu::packed_weight_size(1, hidden, cpu::kGruGates * hidden);
}

namespace cpu {

void run(const calls::GruForward<>& call, CallThreads threads) {
  GruArgs args;
  args.dtype = call.gates.dtype;
  args.reverse = call.reverse;
  args.hidden = call.h0.shape[1];
  take_steps(args, call.gates, call.batch_sizes, call.h0.shape[0]);
  args.gates = call.gates.data, args.weight = call.weight.data, args.bias = call.bias.data;
  args.h0 = call.h0.data;
  args.output = call.output.data, args.output_row = row_of(call.output);
  args.h_n = call.h_n.data, args.hidden_n = call.hidden_n.data;
  args.workspace = call.workspace.data;
  args.max_threads = threads.most();
  hologram::gru(args);
}

void run(const calls::GruBackward<>& call, CallThreads threads) {
  GruBackwardArgs args;
  args.dtype = call.gates.dtype;
  args.reverse = call.reverse;
  args.hidden = call.h0.shape[1];
  take_steps(args, call.gates, call.batch_sizes, call.h0.shape[0]);
  args.gates = call.gates.data, args.hidden_n = call.hidden_n.data;
  args.output = call.output.data, args.output_row = row_of(call.output);
  args.weight = call.weight.data, args.h0 = call.h0.data;
  args.grad_output = call.grad_output.data, args.grad_h_n = call.grad_h_n.data;
  args.grad_output_row = row_of(call.grad_output);
  args.grad_gates = call.grad_gates.data, args.grad_hidden = call.grad_hidden.data;
  args.grad_h0 = call.grad_h0.data, args.workspace = call.workspace.data;
  args.max_threads = threads.most();
  hologram::gru_backward(args);
}

}  // namespace cpu

}  // namespace hologram
