// SPDX-License-Identifier: MIT
// The calls of recurrent layers: from the operands of a call to the kernels.
#include <numeric>

#include "hologram/call_frame.h"
#include "hologram/error.h"
#include "hologram/gru.h"
#include "hologram/lstm.h"
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

void run_forward(CallFrame& call, bool keeps) {
  const View gates = call.view(), weight = call.view(), bias = call.view();
  const View h0 = call.view(), c0 = call.view(), weight_hr = call.view(), sizes = call.view();
  const View output = call.view(), h_n = call.view(), c_n = call.view();
  LstmArgs args;
  if (keeps) args.cells = call.view().data;
  const View workspace = call.view();
  args.dtype = gates.dtype;
  args.reverse = call.flag();
  args.hidden = c0.shape[1];
  take_steps(args, gates, sizes, c0.shape[0]);
  args.gates = gates.data, args.weight = weight.data, args.bias = bias.data;
  args.projection = h0.shape[1], args.weight_hr = weight_hr.data;
  args.h0 = h0.data, args.c0 = c0.data;
  args.output = output.data, args.output_row = row_of(output);
  args.h_n = h_n.data, args.c_n = c_n.data, args.workspace = workspace.data;
  args.max_threads = call.threads();
  hologram::lstm(args);
}

}  // namespace

void run_lstm_recurrence(CallFrame& call) { run_forward(call, false); }
void run_lstm_forward(CallFrame& call) { run_forward(call, true); }

void run_gru_forward(CallFrame& call) {
  const View gates = call.view(), weight = call.view(), bias = call.view(), h0 = call.view();
  const View sizes = call.view();
  const View output = call.view(), h_n = call.view(), hidden_n = call.view();
  const View workspace = call.view();
  GruArgs args;
  args.dtype = gates.dtype;
  args.reverse = call.flag();
  args.hidden = h0.shape[1];
  take_steps(args, gates, sizes, h0.shape[0]);
  args.gates = gates.data, args.weight = weight.data, args.bias = bias.data, args.h0 = h0.data;
  args.output = output.data, args.output_row = row_of(output);
  args.h_n = h_n.data, args.hidden_n = hidden_n.data, args.workspace = workspace.data;
  args.max_threads = call.threads();
  hologram::gru(args);
}

void run_gru_backward(CallFrame& call) {
  const View gates = call.view(), hidden_n = call.view(), output = call.view();
  const View weight = call.view(), h0 = call.view();
  const View grad_output = call.view(), grad_h_n = call.view(), sizes = call.view();
  const View grad_gates = call.view(), grad_hidden = call.view(), grad_h0 = call.view();
  const View workspace = call.view();
  GruBackwardArgs args;
  args.dtype = gates.dtype;
  args.reverse = call.flag();
  args.hidden = h0.shape[1];
  take_steps(args, gates, sizes, h0.shape[0]);
  args.gates = gates.data, args.hidden_n = hidden_n.data;
  args.output = output.data, args.output_row = row_of(output);
  args.weight = weight.data, args.h0 = h0.data;
  args.grad_output = grad_output.data, args.grad_h_n = grad_h_n.data;
  args.grad_output_row = row_of(grad_output);
  args.grad_gates = grad_gates.data, args.grad_hidden = grad_hidden.data;
  args.grad_h0 = grad_h0.data, args.workspace = workspace.data;
  args.max_threads = call.threads();
  hologram::gru_backward(args);
}

void run_rnn_forward(CallFrame& call) {
  const View gates = call.view(), weight = call.view(), bias = call.view(), h0 = call.view();
  const View sizes = call.view();
  const View output = call.view(), h_n = call.view();
  RnnArgs args;
  args.dtype = gates.dtype;
  args.relu = call.flag(), args.reverse = call.flag();
  args.hidden = h0.shape[1];
  take_steps(args, gates, sizes, h0.shape[0]);
  args.gates = gates.data, args.weight = weight.data, args.bias = bias.data, args.h0 = h0.data;
  args.output = output.data, args.output_row = row_of(output);
  args.h_n = h_n.data;
  args.max_threads = call.threads();
  hologram::rnn(args);
}

void run_rnn_backward(CallFrame& call) {
  const View output = call.view(), weight = call.view();
  const View grad_output = call.view(), grad_h_n = call.view(), sizes = call.view();
  const View grad_gates = call.view(), grad_h0 = call.view();
  RnnBackwardArgs args;
  args.dtype = output.dtype;
  args.relu = call.flag(), args.reverse = call.flag();
  args.hidden = grad_h0.shape[1];
  take_steps(args, output, sizes, grad_h0.shape[0]);
  args.output = output.data, args.output_row = row_of(output);
  args.weight = weight.data;
  args.grad_output = grad_output.data, args.grad_h_n = grad_h_n.data;
  args.grad_output_row = row_of(grad_output);
  args.grad_gates = grad_gates.data, args.grad_h0 = grad_h0.data;
  args.max_threads = call.threads();
  hologram::rnn_backward(args);
}

void run_lstm_backward(CallFrame& call) {
  const View gates = call.view(), cells = call.view(), weight = call.view(), c0 = call.view();
  const View grad_output = call.view(), grad_h_n = call.view(), grad_c_n = call.view();
  const View weight_hr = call.view(), sizes = call.view();
  const View grad_projection = call.view(), projected = call.view();
  const View grad_gates = call.view(), grad_h0 = call.view(), grad_c0 = call.view();
  const View workspace = call.view();
  LstmBackwardArgs args;
  args.dtype = gates.dtype;
  args.reverse = call.flag();
  args.hidden = c0.shape[1];
  take_steps(args, gates, sizes, c0.shape[0]);
  args.projection = weight.shape[1], args.weight_hr = weight_hr.data;
  args.grad_projection = grad_projection.data, args.projected = projected.data;
  args.gates = gates.data, args.cells = cells.data, args.weight = weight.data, args.c0 = c0.data;
  args.grad_output = grad_output.data, args.grad_h_n = grad_h_n.data;
  args.grad_output_row = row_of(grad_output);
  args.grad_c_n = grad_c_n.data, args.grad_gates = grad_gates.data;
  args.grad_h0 = grad_h0.data, args.grad_c0 = grad_c0.data, args.workspace = workspace.data;
  args.max_threads = call.threads();
  hologram::lstm_backward(args);
}

}  // namespace hologram::cpu
