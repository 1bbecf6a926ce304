// SPDX-License-Identifier: MIT
// The calls of recurrent layers: from the operands of a call to the kernels.
#include <numeric>

#include "hologram/error.h"
#include "hologram/gru.h"
#include "hologram/lstm.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/recurrent/rnn.h"

namespace hologram::cpu {

namespace {

// The steps of rows of all of them, and elements between the rows of what has them.
template <class Args>
void take_steps(Args& args, const View& rows, const View& sizes, int64_t batch) {
  args.batch = batch;
  args.steps = sizes.data == nullptr ? rows.shape[0] : sizes.shape[0];
  args.batch_sizes = static_cast<const int64_t*>(sizes.data);
  if (sizes.data == nullptr) return;
  const int64_t total = std::accumulate(args.batch_sizes, args.batch_sizes + args.steps, int64_t{});
  if (total != rows.shape[0]) {
    fail(ErrorKind::kInvalidArgument, "packed sequences: batch_sizes adds up to ", total,
         " rows, given were ", rows.shape[0]);
  }
}
int64_t row_of(const View& rows) { return rows.data != nullptr ? rows.strides[rows.ndim - 2] : 0; }

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

}  // namespace hologram::cpu
