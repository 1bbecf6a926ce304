// SPDX-License-Identifier: MIT
// The recurrence of an LSTM and its gradient: a product and the cells, step by step.
#include "hologram/recurrent.h"
#include "src/cpu/recurrent/lstm_kernels.h"
#include "src/cpu/recurrent/recurrence.h"

namespace hologram {
namespace cpu {
namespace {

constexpr int kLstmGates = 4;

// One direction of one layer over a batch of sequences, float32 or float64 (Hochreiter and
// Schmidhuber 1997, with the forget gate of Gers et al. 2000, as torch.nn.LSTM computes it):
//
//   i, f, g, o = gates[t] + bias + h weight^T, side by side, each `hidden` wide
//   c = sigmoid(f) c + sigmoid(i) tanh(g)
//   h = sigmoid(o) tanh(c)           or, with a projection, weight_hr (sigmoid(o) tanh(c))
//
// All are contiguous but for the output. c_n may be c0 and h_n may be h0; nothing else overlaps.
// Call: LstmForward, whose gates hold sigmoid(i), sigmoid(f), tanh(g) and sigmoid(o) afterwards, or
// LstmRecurrence, which keeps no cells.
template <class T, class Call>
struct LstmSteps {
  static constexpr bool kKeeps = requires(const Call& c) { c.cells; };

  const Call& call;
  const LstmKernel<T> cells;
  const int64_t batch, hidden, columns, output_row;  // columns: of h
  const Steps steps;
  const bool packs, projects;
  const GateWeight<T> weight, projection;
  // h before the projection, of one step.
  T* const wide_h;

  explicit LstmSteps(const Call& c)
      : call(c),
        cells(lstm_kernel(current_isa(), T())),
        batch(c.c0.shape[0]),
        hidden(c.c0.shape[1]),
        columns(c.h0.shape[1]),
        output_row(row_of(c.output)),
        steps("lstm", c.gates, c.batch_sizes, batch, c.reverse),
        packs(steps.total() > kFewRecurrentRows),
        projects(c.weight_hr.has_data()),
        weight{gemm_kernel(current_isa(), T()),
               data_of<T>(c.weight),
               data_of<T>(c.workspace),
               kLstmGates,
               hidden,
               columns,
               packs},
        projection{
            weight.product,
            data_of<T>(c.weight_hr),
            packs ? weight.workspace + packed_weight_size(kLstmGates, hidden, columns) : nullptr,
            1,
            columns,
            hidden,
            packs},
        wide_h(!packs ? weight.workspace
                      : projection.workspace + packed_weight_size(1, columns, hidden)) {}

  void run(int threads) const {
    if (batch == 0 || hidden == 0) return;
    const UnitShares shares(batch * kLstmGates * hidden * columns, hidden, threads);
    const UnitShares outputs(batch * hidden * columns, columns, threads);
    if (packs) shares.run([&](Units u) { weight.pack(u); });
    if (packs && projects) outputs.run([&](Units u) { projection.pack(u); });

    RunningState<T> h(data_of<T>(call.h0), data_of<T>(call.h_n), batch, columns);
    RunningState<T> c(data_of<T>(call.c0), data_of<T>(call.c_n), batch, hidden);
    for (int64_t step = 0; step < steps.count(); ++step) {
      const StepRows at = steps[step];
      h.begin(at.count), c.begin(at.count);
      T* const next = element_of<T>(call.output, at.first * output_row);
      shares.run([&](Units u) {
        for (int64_t g = 0; g < kLstmGates; ++g) {
          weight.multiply_gate(g, at.count, h.data(), h.row(), u, gates(at) + g * hidden + u.begin,
                               kLstmGates * hidden, T(1));
        }
        compute_cells(at, c.data(), projects ? wide_h : next, projects ? hidden : output_row, u);
      });
      if (projects) {
        outputs.run([&](Units u) {
          projection.multiply_gate(0, at.count, wide_h, hidden, u, next + u.begin, output_row,
                                   T(0));
        });
      }
      h.end(next, output_row), c.end(c_after(at), hidden);
    }
    h.finish(), c.finish();
  }

  T* c_after(StepRows at) const {
    if constexpr (kKeeps) {
      return element_of<T>(call.cells, at.first * hidden);
    } else {
      return data_of<T>(call.c_n);
    }
  }

  T* gates(StepRows at) const { return element_of<T>(call.gates, at.first * kLstmGates * hidden); }

  void compute_cells(StepRows at, const T* c, T* h, int64_t h_row, Units u) const {
    LstmCells<T> s;
    s.rows = at.count, s.units = u.end - u.begin, s.gate = hidden;
    s.gates = gates(at) + u.begin, s.gates_row = kLstmGates * hidden;
    s.bias = element_of<T>(call.bias, u.begin);
    s.keeps_gates = kKeeps;
    s.c = c + u.begin, s.c_next = c_after(at) + u.begin, s.c_row = hidden;
    s.h = h + u.begin, s.h_row = h_row;
    cells(s);
  }
};

// The way back, from the gradients of the results: each step is a product with the weight and the
// cells of the step before. The gradients of the inputs and weights are products of grad_gates:
// that of gates is grad_gates, that of the bias its sum over steps and batch, and that of the
// weight the sum over the steps of grad_gates[t]^T h[t-1], that of weight_hr the product
// grad_projection^T projected of all rows: all that reaches h, and what was projected.
//
// All are contiguous but for grad_output; nothing overlaps, but grad_gates may be gates.
template <class T>
struct LstmBackward {
  const calls::LstmBackward<>& call;
  const LstmGradKernel<T> cells;
  const int64_t batch, hidden, columns, wide;  // columns and wide: of h, and of the gates
  const int64_t grad_output_row;
  const bool projects;
  const Steps steps;
  const StateWeight<T> weight, projection;
  // The gradient of h before the projection, of one step.
  T* const wide_grad;

  explicit LstmBackward(const calls::LstmBackward<>& c)
      : call(c),
        cells(lstm_grad_kernel(current_isa(), T())),
        batch(c.c0.shape[0]),
        hidden(c.c0.shape[1]),
        columns(c.weight.shape[1]),
        wide(kLstmGates * hidden),
        grad_output_row(row_of(c.grad_output)),
        projects(c.weight_hr.has_data()),
        steps("lstm_backward", c.gates, c.batch_sizes, batch, c.reverse),
        weight{gemm_kernel(current_isa(), T()), data_of<T>(c.weight), data_of<T>(c.workspace), wide,
               columns},
        projection{weight.product, data_of<T>(c.weight_hr),
                   element_of<T>(c.workspace, packed_weight_size(1, columns, wide)), columns,
                   hidden},
        wide_grad(element_of<T>(c.workspace, packed_weight_size(1, columns, wide) +
                                                 packed_weight_size(1, hidden, columns))) {}

  void run(int threads) const {
    if (batch == 0 || hidden == 0) return;
    const UnitShares shares(batch * wide * columns, hidden, threads);
    const UnitShares inputs(batch * wide * columns, columns, threads);
    inputs.run([&](Units u) { weight.pack(u); });
    if (projects) shares.run([&](Units u) { projection.pack(u); });
    T* const grad_h = data_of<T>(call.grad_h0);
    copy_or_zero(batch * columns, data_of<T>(call.grad_h_n), grad_h);
    copy_or_zero(batch * hidden, data_of<T>(call.grad_c_n), data_of<T>(call.grad_c0));
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
      T* const grad_output = element_of<T>(call.grad_projection, at.first * columns);
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
    weight.multiply_grad(at.count, element_of<T>(call.grad_gates, at.first * wide), u,
                         data_of<T>(call.grad_h0), T(0));
  }

  // sum = the gradient of h, from the output and from the next step.
  void add_outputs(StepRows at, Units u, T* sum) const {
    for (int64_t r = 0; r < at.count; ++r) {
      const T* const from_next = element_of<T>(call.grad_h0, r * columns);
      const T* const from_output =
          element_of<T>(call.grad_output, (at.first + r) * grad_output_row);
      for (int64_t i = u.begin; i < u.end; ++i) {
        sum[r * columns + i] =
            from_output != nullptr ? from_output[i] + from_next[i] : from_next[i];
      }
    }
  }

  void compute_cells(int64_t step, const T* grad_h, Units u) const {
    const auto part = [&](StepRows at, int64_t first, const T* c_before) {
      LstmCellGrads<T> s;
      s.rows = at.count, s.units = u.end - u.begin, s.gate = hidden;
      s.gates = element_of<T>(call.gates, at.first * wide + u.begin), s.gates_row = wide;
      s.state_row = hidden;
      s.c = element_of<T>(call.cells, at.first * hidden + u.begin);
      s.c_before = c_before + u.begin;
      if (projects) {
        s.h = element_of<T>(call.projected, at.first * hidden + u.begin);
      } else {
        s.grad_output = element_of<T>(call.grad_output, at.first * grad_output_row + u.begin);
        s.grad_output_row = grad_output_row;
      }
      s.grad_h = grad_h + first * hidden + u.begin;
      s.grad_c_before = element_of<T>(call.grad_c0, first * hidden + u.begin);
      s.grad_c = s.grad_c_before;
      s.grad_gates = element_of<T>(call.grad_gates, at.first * wide + u.begin);
      cells(s);
    };
    const StepRows at = steps[step];
    const int64_t continued = steps.continued(step);
    if (continued > 0) {
      part({at.first, continued}, 0, element_of<T>(call.cells, steps[step - 1].first * hidden));
    }
    if (continued < at.count) {
      part({at.first + continued, at.count - continued}, continued,
           element_of<T>(call.c0, continued * hidden));
    }
  }
};

template <class Call>
void run_steps(const Call& call, CallThreads threads) {
  call.gates.dtype == Dtype::kFloat32 ? LstmSteps<float, Call>(call).run(threads.most())
                                      : LstmSteps<double, Call>(call).run(threads.most());
}

}  // namespace

void run(const calls::LstmRecurrence<>& call, CallThreads threads) { run_steps(call, threads); }
void run(const calls::LstmForward<>& call, CallThreads threads) { run_steps(call, threads); }

void run(const calls::LstmBackward<>& call, CallThreads threads) {
  call.gates.dtype == Dtype::kFloat32 ? LstmBackward<float>(call).run(threads.most())
                                      : LstmBackward<double>(call).run(threads.most());
}

}  // namespace cpu

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

}  // namespace hologram
