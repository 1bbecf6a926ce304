// SPDX-License-Identifier: MIT
// The recurrence of a layer without gates and its gradient: a product and the cells, step by step.
#include "src/cpu/recurrent/rnn.h"

#include <algorithm>

#include "src/cpu/gemm/pack_buffer.h"
#include "src/cpu/recurrent/recurrence.h"
#include "src/cpu/recurrent/rnn_kernels.h"

namespace hologram {
namespace cpu {
namespace {

template <class T>
void run_forward(const RnnArgs& args) {
  const RnnKernels<T> kernels = rnn_kernels(current_isa(), T());
  const int64_t hidden = args.hidden, batch = args.batch;
  const Steps steps("rnn", args.steps, batch, args.batch_sizes, args.reverse);
  const bool packs = steps.total() > kFewRecurrentRows;
  PackBuffer packed;
  const GateWeight<T> weight{gemm_kernel(current_isa(), T()),
                             static_cast<const T*>(args.weight),
                             packs ? packed.get<T>(packed_weight_size(1, hidden, hidden)) : nullptr,
                             1,
                             hidden,
                             hidden,
                             packs};
  const UnitShares shares(batch * hidden * hidden, hidden, args.max_threads);
  if (packs) shares.run([&](Units u) { weight.pack(u); });
  RunningState<T> h(static_cast<const T*>(args.h0), static_cast<T*>(args.h_n), batch, hidden);
  for (int64_t step = 0; step < steps.count(); ++step) {
    const StepRows at = steps[step];
    h.begin(at.count);
    T* const next = static_cast<T*>(args.output) + at.first * args.output_row;
    const T* const gates = static_cast<const T*>(args.gates) + at.first * hidden;
    shares.run([&](Units u) {
      T* const sums = next + u.begin;
      for (int64_t r = 0; r < at.count; ++r) {
        std::copy_n(gates + r * hidden + u.begin, u.end - u.begin, sums + r * args.output_row);
      }
      weight.multiply_gate(0, at.count, h.data(), h.row(), u, sums, args.output_row, T(1));
      const T* const bias = static_cast<const T*>(args.bias);
      kernels.cells({at.count, u.end - u.begin, sums, args.output_row,
                     bias != nullptr ? bias + u.begin : nullptr, args.relu});
    });
    h.end(next, args.output_row);
  }
  h.finish();
}

template <class T>
void run_backward(const RnnBackwardArgs& args) {
  const RnnKernels<T> kernels = rnn_kernels(current_isa(), T());
  const int64_t hidden = args.hidden, batch = args.batch;
  const Steps steps("rnn_backward", args.steps, batch, args.batch_sizes, args.reverse);
  T* const grad_h0 = static_cast<T*>(args.grad_h0);
  copy_or_zero(batch * hidden, static_cast<const T*>(args.grad_h_n), grad_h0);
  if (args.steps == 0) return;
  PackBuffer packed;
  const StateWeight<T> weight{gemm_kernel(current_isa(), T()), static_cast<const T*>(args.weight),
                              packed.get<T>(packed_weight_size(1, hidden, hidden)), hidden, hidden};
  // grad_h0 is all that reaches the step before from this one.
  const auto multiply = [&](int64_t step, Units u) {
    const StepRows at = steps[step];
    weight.multiply_grad(at.count, static_cast<const T*>(args.grad_gates) + at.first * hidden, u,
                         grad_h0, T(0));
  };
  const auto compute_cells = [&](StepRows at, Units u) {
    RnnCellGrads<T> s;
    s.rows = at.count, s.units = u.end - u.begin;
    s.output = static_cast<const T*>(args.output) + at.first * args.output_row + u.begin;
    s.output_row = args.output_row;
    if (args.grad_output != nullptr) {
      s.grad_output =
          static_cast<const T*>(args.grad_output) + at.first * args.grad_output_row + u.begin;
      s.grad_output_row = args.grad_output_row;
    }
    s.grad_h = grad_h0 + u.begin;
    s.grad_gates = static_cast<T*>(args.grad_gates) + at.first * hidden + u.begin;
    s.row = hidden;
    s.relu = args.relu;
    kernels.grads(s);
  };
  const UnitShares shares(batch * hidden * hidden, hidden, args.max_threads);
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
}  // namespace cpu

void rnn(const RnnArgs& a) {
  cpu::check_recurrence("rnn", a.dtype, a.steps, a.batch, a.hidden, a.hidden, a.output_row);
  if (a.batch == 0 || a.hidden == 0) return;
  const bool has_steps = a.gates != nullptr && a.weight != nullptr && a.output != nullptr;
  if (a.h0 == nullptr || a.h_n == nullptr || (a.steps > 0 && !has_steps)) {
    cpu::fail_null_operand("rnn");
  }
  a.dtype == Dtype::kFloat32 ? cpu::run_forward<float>(a) : cpu::run_forward<double>(a);
}

void rnn_backward(const RnnBackwardArgs& a) {
  cpu::check_recurrence(
      "rnn_backward", a.dtype, a.steps, a.batch, a.hidden, a.hidden,
      a.grad_output != nullptr ? std::min(a.output_row, a.grad_output_row) : a.output_row);
  if (a.batch == 0 || a.hidden == 0) return;
  const bool has_steps = a.output != nullptr && a.weight != nullptr && a.grad_gates != nullptr;
  if (a.grad_h0 == nullptr || (a.steps > 0 && !has_steps)) cpu::fail_null_operand("rnn_backward");
  a.dtype == Dtype::kFloat32 ? cpu::run_backward<float>(a) : cpu::run_backward<double>(a);
}

namespace cpu {

void run(const calls::RnnForward<>& call, CallThreads threads) {
  RnnArgs args;
  args.dtype = call.gates.dtype;
  args.relu = call.relu, args.reverse = call.reverse;
  args.hidden = call.h0.shape[1];
  take_steps(args, call.gates, call.batch_sizes, call.h0.shape[0]);
  args.gates = call.gates.data, args.weight = call.weight.data, args.bias = call.bias.data;
  args.h0 = call.h0.data;
  args.output = call.output.data, args.output_row = row_of(call.output);
  args.h_n = call.h_n.data;
  args.max_threads = threads.most();
  hologram::rnn(args);
}

void run(const calls::RnnBackward<>& call, CallThreads threads) {
  RnnBackwardArgs args;
  args.dtype = call.output.dtype;
  args.relu = call.relu, args.reverse = call.reverse;
  args.hidden = call.grad_h0.shape[1];
  take_steps(args, call.output, call.batch_sizes, call.grad_h0.shape[0]);
  args.output = call.output.data, args.output_row = row_of(call.output);
  args.weight = call.weight.data;
  args.grad_output = call.grad_output.data, args.grad_h_n = call.grad_h_n.data;
  args.grad_output_row = row_of(call.grad_output);
  args.grad_gates = call.grad_gates.data, args.grad_h0 = call.grad_h0.data;
  args.max_threads = threads.most();
  hologram::rnn_backward(args);
}

}  // namespace cpu

}  // namespace hologram
