// SPDX-License-Identifier: MIT
// The recurrence of a GRU and its gradient: a product and the cells, step by step.
#include "hologram/recurrent.h"
#include "src/cpu/recurrent/gru_kernels.h"
#include "src/cpu/recurrent/recurrence.h"

namespace hologram {
namespace cpu {
namespace {

constexpr int kGruGates = 3;

// One direction of one layer over a batch of sequences, float32 or float64 (Cho et al. 2014, with
// the reset gate after the product, as torch.nn.GRU computes it):
//
//   hr, hz, hn = h weight^T + bias, side by side, each `hidden` wide; xr, xz, xn = gates[t]
//   r = sigmoid(xr + hr)
//   z = sigmoid(xz + hz)
//   n = tanh(xn + r hn)
//   h = n + z (h - n)
//
// gates become r, z, n; hidden_n is hn of every step. All are contiguous but for the output. h_n
// may be h0; nothing else overlaps.
template <class T>
struct GruForward {
  const calls::GruForward<>& call;
  const GruKernels<T> kernels;
  const int64_t batch, hidden, output_row;
  const Steps steps;
  const GateWeight<T> weight;

  explicit GruForward(const calls::GruForward<>& c)
      : call(c),
        kernels(gru_kernels(current_isa(), T())),
        batch(c.h0.shape[0]),
        hidden(c.h0.shape[1]),
        output_row(row_of(c.output)),
        steps("gru", c.gates, c.batch_sizes, batch, c.reverse),
        weight{gemm_kernel(current_isa(), T()),
               data_of<T>(c.weight),
               data_of<T>(c.workspace),
               kGruGates,
               hidden,
               hidden,
               steps.total() > kFewRecurrentRows} {}

  void run(int threads) const {
    if (batch == 0 || hidden == 0) return;
    const UnitShares shares(batch * kGruGates * hidden * hidden, hidden, threads);
    if (weight.packs) shares.run([&](Units u) { weight.pack(u); });
    RunningState<T> h(data_of<T>(call.h0), data_of<T>(call.h_n), batch, hidden);
    for (int64_t step = 0; step < steps.count(); ++step) {
      const StepRows at = steps[step];
      h.begin(at.count);
      T* const next = element_of<T>(call.output, at.first * output_row);
      shares.run([&](Units u) { compute_step(at, h.data(), h.row(), next, u); });
      h.end(next, output_row);
    }
    h.finish();
  }

  void compute_step(StepRows at, const T* h, int64_t h_row, T* next, Units u) const {
    const int64_t wide = kGruGates * hidden;
    GruCells<T> s;
    s.rows = at.count, s.units = u.end - u.begin, s.gate = hidden;
    s.gates = element_of<T>(call.gates, at.first * wide + u.begin), s.gates_row = wide;
    s.hidden_n = element_of<T>(call.hidden_n, at.first * hidden + u.begin);
    s.hidden_row = hidden;
    s.bias = element_of<T>(call.bias, u.begin);
    s.h = h + u.begin, s.h_row = h_row;
    s.h_next = next + u.begin, s.next_row = output_row;
    weight.multiply_gate(0, at.count, h, h_row, u, s.gates, wide, T(1));
    weight.multiply_gate(1, at.count, h, h_row, u, s.gates + hidden, wide, T(1));
    weight.multiply_gate(2, at.count, h, h_row, u, s.hidden_n, hidden, T(0));
    kernels.cells(s);
  }
};

// Through time, from the gradients of the results. That of `gates` is grad_gates. The gradients of
// bias and weight are those of a product of h: the sums of grad_hidden, which is of hr, hz and hn,
// over steps and batch, and over the steps of grad_hidden[t]^T h[t-1].
//
// All are contiguous but for output and grad_output; nothing overlaps.
template <class T>
struct GruBackward {
  const calls::GruBackward<>& call;
  const GruKernels<T> kernels;
  const int64_t batch, hidden, wide;  // wide: a row of gates
  const int64_t output_row, grad_output_row;
  const Steps steps;
  const StateWeight<T> weight;

  explicit GruBackward(const calls::GruBackward<>& c)
      : call(c),
        kernels(gru_kernels(current_isa(), T())),
        batch(c.h0.shape[0]),
        hidden(c.h0.shape[1]),
        wide(kGruGates * hidden),
        output_row(row_of(c.output)),
        grad_output_row(row_of(c.grad_output)),
        steps("gru_backward", c.gates, c.batch_sizes, batch, c.reverse),
        weight{gemm_kernel(current_isa(), T()), data_of<T>(c.weight), data_of<T>(c.workspace), wide,
               hidden} {}

  void run(int threads) const {
    if (batch == 0 || hidden == 0) return;
    const UnitShares shares(batch * wide * hidden, hidden, threads);
    shares.run([&](Units u) { weight.pack(u); });
    copy_or_zero(batch * hidden, data_of<T>(call.grad_h_n), data_of<T>(call.grad_h0));
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
    weight.multiply_grad(at.count, element_of<T>(call.grad_hidden, at.first * wide), u,
                         data_of<T>(call.grad_h0), T(1));
  }

  void compute_cells(int64_t step, Units u) const {
    const auto part = [&](StepRows at, int64_t first, const T* h_before, int64_t before_row) {
      GruCellGrads<T> s;
      s.rows = at.count, s.units = u.end - u.begin, s.gate = hidden;
      s.gates = element_of<T>(call.gates, at.first * wide + u.begin), s.gates_row = wide;
      s.state_row = hidden;
      s.hidden_n = element_of<T>(call.hidden_n, at.first * hidden + u.begin);
      s.h_before = h_before + u.begin, s.before_row = before_row;
      s.grad_output = element_of<T>(call.grad_output, at.first * grad_output_row + u.begin);
      s.grad_output_row = grad_output_row;
      s.grad_h_before = element_of<T>(call.grad_h0, first * hidden + u.begin);
      s.grad_h = s.grad_h_before;
      s.grad_gates = element_of<T>(call.grad_gates, at.first * wide + u.begin);
      s.grad_hidden = element_of<T>(call.grad_hidden, at.first * wide + u.begin);
      kernels.grads(s);
    };
    const StepRows at = steps[step];
    const int64_t continued = steps.continued(step);
    if (continued > 0) {
      part({at.first, continued}, 0, element_of<T>(call.output, steps[step - 1].first * output_row),
           output_row);
    }
    if (continued < at.count) {
      part({at.first + continued, at.count - continued}, continued,
           element_of<T>(call.h0, continued * hidden), hidden);
    }
  }
};

}  // namespace

void run(const calls::GruForward<>& call, CallThreads threads) {
  call.gates.dtype == Dtype::kFloat32 ? GruForward<float>(call).run(threads.most())
                                      : GruForward<double>(call).run(threads.most());
}

void run(const calls::GruBackward<>& call, CallThreads threads) {
  call.gates.dtype == Dtype::kFloat32 ? GruBackward<float>(call).run(threads.most())
                                      : GruBackward<double>(call).run(threads.most());
}

}  // namespace cpu

int64_t gru_workspace(int64_t steps, int64_t batch, int64_t hidden) {
  return steps * batch <= cpu::kFewRecurrentRows
             ? 0
             : cpu::packed_weight_size(cpu::kGruGates, hidden, hidden);
}

int64_t gru_backward_workspace(int64_t batch, int64_t hidden) {
  return batch == 0 ? 0 : cpu::packed_weight_size(1, hidden, cpu::kGruGates * hidden);
}

}  // namespace hologram
