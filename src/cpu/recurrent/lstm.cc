// SPDX-License-Identifier: MIT
// The recurrence of an LSTM and its gradient: a product and the cells, step by step.

#include <algorithm>

#include "hologram/recurrent.h"
#include "src/cpu/recurrent/lstm.h"
#include "src/cpu/recurrent/lstm_kernels.h"
#include "src/cpu/recurrent/recurrence.h"

namespace hologram {
namespace cpu {
namespace {

constexpr int kLstmGates = 4;

// Columns of h.
template <class Args>
int64_t columns_of(const Args& a) {
  return a.weight_hr != nullptr ? a.projection : a.hidden;
}

template <class T>
struct LstmForward {
  const LstmArgs& args;
  const LstmKernel<T> cells;
  const int64_t columns;  // of h
  const Steps steps;
  const bool packs;
  const GateWeight<T> weight, projection;
  // h before the projection, of one step.
  T* const wide_h;

  explicit LstmForward(const LstmArgs& a)
      : args(a),
        cells(lstm_kernel(current_isa(), T())),
        columns(columns_of(a)),
        steps("lstm", a.steps, a.batch, a.batch_sizes, a.reverse),
        packs(steps.total() > kFewRecurrentRows),
        weight{gemm_kernel(current_isa(), T()),
               static_cast<const T*>(a.weight),
               static_cast<T*>(a.workspace),
               kLstmGates,
               a.hidden,
               columns,
               packs},
        projection{
            weight.product,
            static_cast<const T*>(a.weight_hr),
            packs ? weight.workspace + packed_weight_size(kLstmGates, a.hidden, columns) : nullptr,
            1,
            columns,
            a.hidden,
            packs},
        wide_h(!packs ? weight.workspace
                      : projection.workspace + packed_weight_size(1, columns, a.hidden)) {}

  void run() const {
    const int64_t hidden = args.hidden, batch = args.batch;
    const bool projects = args.weight_hr != nullptr;
    const UnitShares shares(batch * kLstmGates * hidden * columns, hidden, args.max_threads);
    const UnitShares outputs(batch * hidden * columns, columns, args.max_threads);
    if (packs) shares.run([&](Units u) { weight.pack(u); });
    if (packs && projects) outputs.run([&](Units u) { projection.pack(u); });

    RunningState<T> h(static_cast<const T*>(args.h0), static_cast<T*>(args.h_n), batch, columns);
    RunningState<T> c(static_cast<const T*>(args.c0), static_cast<T*>(args.c_n), batch, hidden);
    for (int64_t step = 0; step < steps.count(); ++step) {
      const StepRows at = steps[step];
      h.begin(at.count), c.begin(at.count);
      T* const next = static_cast<T*>(args.output) + at.first * args.output_row;
      shares.run([&](Units u) {
        for (int64_t g = 0; g < kLstmGates; ++g) {
          weight.multiply_gate(g, at.count, h.data(), h.row(), u, gates(at) + g * hidden + u.begin,
                               kLstmGates * hidden, T(1));
        }
        compute_cells(at, c.data(), projects ? wide_h : next, projects ? hidden : args.output_row,
                      u);
      });
      if (projects) {
        outputs.run([&](Units u) {
          projection.multiply_gate(0, at.count, wide_h, hidden, u, next + u.begin, args.output_row,
                                   T(0));
        });
      }
      h.end(next, args.output_row), c.end(c_after(at), hidden);
    }
    h.finish(), c.finish();
  }

  T* c_after(StepRows at) const {
    if (args.cells == nullptr) return static_cast<T*>(args.c_n);
    return static_cast<T*>(args.cells) + at.first * args.hidden;
  }

  T* gates(StepRows at) const {
    return static_cast<T*>(args.gates) + at.first * kLstmGates * args.hidden;
  }

  void compute_cells(StepRows at, const T* c, T* h, int64_t h_row, Units u) const {
    LstmCells<T> s;
    s.rows = at.count, s.units = u.end - u.begin, s.gate = args.hidden;
    s.gates = gates(at) + u.begin, s.gates_row = kLstmGates * args.hidden;
    s.bias = args.bias != nullptr ? static_cast<const T*>(args.bias) + u.begin : nullptr;
    s.keeps_gates = args.cells != nullptr;
    s.c = c + u.begin, s.c_next = c_after(at) + u.begin, s.c_row = args.hidden;
    s.h = h + u.begin, s.h_row = h_row;
    cells(s);
  }
};

// The way back: each step is a product with the weight and the cells of the step before.
template <class T>
struct LstmBackward {
  const LstmBackwardArgs& args;
  const LstmGradKernel<T> cells;
  const int64_t columns, wide;  // of h, and of the gates
  const Steps steps;
  const StateWeight<T> weight, projection;
  // The gradient of h before the projection, of one step.
  T* const wide_grad;

  explicit LstmBackward(const LstmBackwardArgs& a)
      : args(a),
        cells(lstm_grad_kernel(current_isa(), T())),
        columns(columns_of(a)),
        wide(kLstmGates * a.hidden),
        steps("lstm_backward", a.steps, a.batch, a.batch_sizes, a.reverse),
        weight{gemm_kernel(current_isa(), T()), static_cast<const T*>(a.weight),
               static_cast<T*>(a.workspace), wide, columns},
        projection{weight.product, static_cast<const T*>(a.weight_hr),
                   weight.workspace + packed_weight_size(1, columns, wide), columns, a.hidden},
        wide_grad(projection.workspace + packed_weight_size(1, a.hidden, columns)) {}

  void run() const {
    const int64_t hidden = args.hidden, batch = args.batch;
    const bool projects = args.weight_hr != nullptr;
    const UnitShares shares(batch * wide * columns, hidden, args.max_threads);
    const UnitShares inputs(batch * wide * columns, columns, args.max_threads);
    inputs.run([&](Units u) { weight.pack(u); });
    if (projects) shares.run([&](Units u) { projection.pack(u); });
    T* const grad_h = static_cast<T*>(args.grad_h0);
    copy_or_zero(batch * columns, static_cast<const T*>(args.grad_h_n), grad_h);
    copy_or_zero(batch * hidden, static_cast<const T*>(args.grad_c_n),
                 static_cast<T*>(args.grad_c0));
    for (int64_t step = steps.count() - 1; step >= 0; --step) {
      const bool is_last = step == steps.count() - 1;
      const StepRows at = steps[step];
      if (!projects) {
        shares.run([&](Units u) {
          if (!is_last) multiply(step + 1, u);
          compute_cells(step, grad_h, u);
        });
        continue;
      }
      T* const grad_output = static_cast<T*>(args.grad_projection) + at.first * columns;
      inputs.run([&](Units u) {
        if (!is_last) multiply(step + 1, u);
        add_outputs(at, u, grad_output);
      });
      shares.run([&](Units u) {
        projection.multiply_grad(at.count, grad_output, u, wide_grad, T(0));
        compute_cells(step, wide_grad, u);
      });
    }
    if (steps.count() > 0) inputs.run([&](Units u) { multiply(0, u); });
  }

  // grad_h0 = grad_gates[step] weight: what step - 1 adds to its h's gradient.
  void multiply(int64_t step, Units u) const {
    const StepRows at = steps[step];
    weight.multiply_grad(at.count, static_cast<const T*>(args.grad_gates) + at.first * wide, u,
                         static_cast<T*>(args.grad_h0), T(0));
  }

  // sum = the gradient of h, from the output and from the next step.
  void add_outputs(StepRows at, Units u, T* sum) const {
    for (int64_t r = 0; r < at.count; ++r) {
      const T* const from_next = static_cast<const T*>(args.grad_h0) + r * columns;
      const T* const from_output = static_cast<const T*>(args.grad_output);
      for (int64_t i = u.begin; i < u.end; ++i) {
        sum[r * columns + i] =
            from_output != nullptr
                ? from_output[(at.first + r) * args.grad_output_row + i] + from_next[i]
                : from_next[i];
      }
    }
  }

  void compute_cells(int64_t step, const T* grad_h, Units u) const {
    const int64_t hidden = args.hidden;
    const auto states = static_cast<const T*>(args.cells);
    const auto part = [&](StepRows at, int64_t first, const T* c_before) {
      LstmCellGrads<T> s;
      s.rows = at.count, s.units = u.end - u.begin, s.gate = hidden;
      s.gates = static_cast<const T*>(args.gates) + at.first * wide + u.begin, s.gates_row = wide;
      s.state_row = hidden;
      s.c = states + at.first * hidden + u.begin;
      s.c_before = c_before + u.begin;
      s.grad_output_row = args.grad_output_row;
      if (args.grad_output != nullptr && args.weight_hr == nullptr) {
        s.grad_output =
            static_cast<const T*>(args.grad_output) + at.first * args.grad_output_row + u.begin;
      }
      s.grad_h = grad_h + first * hidden + u.begin;
      s.grad_c_before = static_cast<T*>(args.grad_c0) + first * hidden + u.begin;
      s.grad_c = s.grad_c_before;
      s.grad_gates = static_cast<T*>(args.grad_gates) + at.first * wide + u.begin;
      if (args.weight_hr != nullptr) {
        s.h = static_cast<T*>(args.projected) + at.first * hidden + u.begin;
      }
      cells(s);
    };
    const StepRows at = steps[step];
    const int64_t continued = steps.continued(step);
    if (continued > 0) {
      part({at.first, continued}, 0, states + steps[step - 1].first * hidden);
    }
    if (continued < at.count) {
      part({at.first + continued, at.count - continued}, continued,
           static_cast<const T*>(args.c0) + continued * hidden);
    }
  }
};

template <class Args>
void check_projection(const char* name, const Args& a) {
  if (a.weight_hr != nullptr && a.projection < 1) {
    fail(ErrorKind::kInvalidArgument, name, ": h is projected to ", a.projection,
         " columns; it has to have 1 or more");
  }
}

void check(const LstmArgs& a) {
  check_projection("lstm", a);
  check_recurrence("lstm", a.dtype, a.steps, a.batch, a.hidden, columns_of(a), a.output_row);
  if (a.batch == 0 || a.hidden == 0) return;
  const bool has_states =
      a.h0 != nullptr && a.c0 != nullptr && a.h_n != nullptr && a.c_n != nullptr;
  const bool needs_workspace = a.steps * a.batch > kFewRecurrentRows || a.weight_hr != nullptr;
  const bool has_steps = a.gates != nullptr && a.weight != nullptr && a.output != nullptr &&
                         (a.workspace != nullptr || !needs_workspace);
  if (!has_states || (a.steps > 0 && !has_steps)) fail_null_operand("lstm");
}

void check(const LstmBackwardArgs& a) {
  check_projection("lstm_backward", a);
  check_recurrence("lstm_backward", a.dtype, a.steps, a.batch, a.hidden, columns_of(a),
                   a.grad_output != nullptr ? a.grad_output_row : columns_of(a));
  if (a.batch == 0 || a.hidden == 0) return;
  const bool has_projected =
      a.weight_hr == nullptr || (a.grad_projection != nullptr && a.projected != nullptr);
  const bool has_steps =
      a.gates != nullptr && a.cells != nullptr && a.grad_gates != nullptr && has_projected;
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

int64_t lstm_backward_workspace(int64_t batch, int64_t hidden, int64_t projection) {
  if (batch == 0) return 0;
  if (projection == 0) return cpu::packed_weight_size(1, hidden, cpu::kLstmGates * hidden);
  return cpu::packed_weight_size(1, projection, cpu::kLstmGates * hidden) +
         cpu::packed_weight_size(1, hidden, projection) + batch * hidden;
}

int64_t lstm_workspace(int64_t steps, int64_t batch, int64_t hidden, int64_t projection) {
  const bool packs = steps * batch > cpu::kFewRecurrentRows;
  if (projection == 0) return packs ? cpu::packed_weight_size(cpu::kLstmGates, hidden, hidden) : 0;
  const int64_t packed = cpu::packed_weight_size(cpu::kLstmGates, hidden, projection) +
                         cpu::packed_weight_size(1, projection, hidden);
  return (packs ? packed : 0) + batch * hidden;
}

namespace cpu {

namespace {

// Without `cells` and with those of every step.
template <class Call>
LstmArgs lstm_arguments(const Call& call, CallThreads threads) {
  LstmArgs args;
  args.dtype = call.gates.dtype;
  args.reverse = call.reverse;
  args.hidden = call.c0.shape[1];
  take_steps(args, call.gates, call.batch_sizes, call.c0.shape[0]);
  args.gates = call.gates.data, args.weight = call.weight.data, args.bias = call.bias.data;
  args.projection = call.h0.shape[1], args.weight_hr = call.weight_hr.data;
  args.h0 = call.h0.data, args.c0 = call.c0.data;
  args.output = call.output.data, args.output_row = row_of(call.output);
  args.h_n = call.h_n.data, args.c_n = call.c_n.data, args.workspace = call.workspace.data;
  args.max_threads = threads.most();
  return args;
}

}  // namespace

void run(const calls::LstmRecurrence<>& call, CallThreads threads) {
  hologram::lstm(lstm_arguments(call, threads));
}

void run(const calls::LstmForward<>& call, CallThreads threads) {
  LstmArgs args = lstm_arguments(call, threads);
  args.cells = call.cells.data;
  hologram::lstm(args);
}

void run(const calls::LstmBackward<>& call, CallThreads threads) {
  LstmBackwardArgs args;
  args.dtype = call.gates.dtype;
  args.reverse = call.reverse;
  args.hidden = call.c0.shape[1];
  take_steps(args, call.gates, call.batch_sizes, call.c0.shape[0]);
  args.projection = call.weight.shape[1], args.weight_hr = call.weight_hr.data;
  args.grad_projection = call.grad_projection.data, args.projected = call.projected.data;
  args.gates = call.gates.data, args.cells = call.cells.data;
  args.weight = call.weight.data, args.c0 = call.c0.data;
  args.grad_output = call.grad_output.data, args.grad_h_n = call.grad_h_n.data;
  args.grad_output_row = row_of(call.grad_output);
  args.grad_c_n = call.grad_c_n.data, args.grad_gates = call.grad_gates.data;
  args.grad_h0 = call.grad_h0.data, args.grad_c0 = call.grad_c0.data;
  args.workspace = call.workspace.data;
  args.max_threads = threads.most();
  hologram::lstm_backward(args);
}

}  // namespace cpu

}  // namespace hologram
