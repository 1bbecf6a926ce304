// SPDX-License-Identifier: MIT
// The recurrence of a layer without gates and its gradient: a product and the cells, step by step.
#include <algorithm>

#include "src/cpu/gemm/pack_buffer.h"
#include "src/cpu/recurrent/recurrence.h"
#include "src/cpu/recurrent/rnn_kernels.h"

namespace hologram::cpu {
namespace {

// One direction of one layer over a batch of sequences, float32 or float64 (Elman 1990, as
// torch.nn.RNN computes it):
//
//   h = f(gates[t] + bias + h weight^T), f = tanh or relu
//
// All are contiguous but for the output. h_n may be h0; nothing else overlaps.
template <class T>
void run_forward(const calls::RnnForward<>& call, int threads) {
  const RnnKernels<T> kernels = rnn_kernels(current_isa(), T());
  const int64_t batch = call.h0.shape[0], hidden = call.h0.shape[1], row = row_of(call.output);
  const Steps steps("rnn", call.gates, call.batch_sizes, batch, call.reverse);
  if (batch == 0 || hidden == 0) return;
  const bool packs = steps.total() > kFewRecurrentRows;
  PackBuffer packed;
  const GateWeight<T> weight{gemm_kernel(current_isa(), T()),
                             data_of<T>(call.weight),
                             packs ? packed.get<T>(packed_weight_size(1, hidden, hidden)) : nullptr,
                             1,
                             hidden,
                             hidden,
                             packs};
  const UnitShares shares(batch * hidden * hidden, hidden, threads);
  if (packs) shares.run([&](Units u) { weight.pack(u); });
  RunningState<T> h(data_of<T>(call.h0), data_of<T>(call.h_n), batch, hidden);
  for (int64_t step = 0; step < steps.count(); ++step) {
    const StepRows at = steps[step];
    h.begin(at.count);
    T* const next = element_of<T>(call.output, at.first * row);
    const T* const gates = element_of<T>(call.gates, at.first * hidden);
    shares.run([&](Units u) {
      T* const sums = next + u.begin;
      for (int64_t r = 0; r < at.count; ++r) {
        std::copy_n(gates + r * hidden + u.begin, u.end - u.begin, sums + r * row);
      }
      weight.multiply_gate(0, at.count, h.data(), h.row(), u, sums, row, T(1));
      kernels.cells(
          {at.count, u.end - u.begin, sums, row, element_of<T>(call.bias, u.begin), call.relu});
    });
    h.end(next, row);
  }
  h.finish();
}

// Through time, from the gradients of the results. That of `gates` is grad_gates; the gradients of
// bias and weight are those of a product of h with it.
//
// All are contiguous but for output and grad_output; nothing overlaps.
template <class T>
void run_backward(const calls::RnnBackward<>& call, int threads) {
  const RnnKernels<T> kernels = rnn_kernels(current_isa(), T());
  const int64_t batch = call.grad_h0.shape[0], hidden = call.grad_h0.shape[1];
  const int64_t row = row_of(call.output), grad_row = row_of(call.grad_output);
  const Steps steps("rnn_backward", call.output, call.batch_sizes, batch, call.reverse);
  if (batch == 0 || hidden == 0) return;
  T* const grad_h0 = data_of<T>(call.grad_h0);
  copy_or_zero(batch * hidden, data_of<T>(call.grad_h_n), grad_h0);
  if (steps.count() == 0) return;
  PackBuffer packed;
  const StateWeight<T> weight{gemm_kernel(current_isa(), T()), data_of<T>(call.weight),
                              packed.get<T>(packed_weight_size(1, hidden, hidden)), hidden, hidden};
  // grad_h0 is all that reaches the step before from this one.
  const auto multiply = [&](int64_t step, Units u) {
    const StepRows at = steps[step];
    weight.multiply_grad(at.count, element_of<T>(call.grad_gates, at.first * hidden), u, grad_h0,
                         T(0));
  };
  const auto compute_cells = [&](StepRows at, Units u) {
    RnnCellGrads<T> s;
    s.rows = at.count, s.units = u.end - u.begin;
    s.output = element_of<T>(call.output, at.first * row + u.begin);
    s.output_row = row;
    s.grad_output = element_of<T>(call.grad_output, at.first * grad_row + u.begin);
    s.grad_output_row = grad_row;
    s.grad_h = grad_h0 + u.begin;
    s.grad_gates = element_of<T>(call.grad_gates, at.first * hidden + u.begin);
    s.row = hidden;
    s.relu = call.relu;
    kernels.grads(s);
  };
  const UnitShares shares(batch * hidden * hidden, hidden, threads);
  shares.run([&](Units u) { weight.pack(u); });
  for (int64_t step = steps.count() - 1; step >= 0; --step) {
    shares.run([&](Units u) {
      if (step < steps.count() - 1) multiply(step + 1, u);
      compute_cells(steps[step], u);
    });
  }
  shares.run([&](Units u) { multiply(0, u); });
}

}  // namespace

void run(const calls::RnnForward<>& call, CallThreads threads) {
  call.gates.dtype == Dtype::kFloat32 ? run_forward<float>(call, threads.most())
                                      : run_forward<double>(call, threads.most());
}

void run(const calls::RnnBackward<>& call, CallThreads threads) {
  call.output.dtype == Dtype::kFloat32 ? run_backward<float>(call, threads.most())
                                       : run_backward<double>(call, threads.most());
}

}  // namespace hologram::cpu
