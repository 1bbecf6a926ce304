// SPDX-License-Identifier: MIT
// The calls of recurrent layers: from the operands of a call to the kernels.
#include "hologram/call_frame.h"
#include "hologram/gru.h"
#include "hologram/lstm.h"
#include "src/cpu/recurrent/rnn.h"

namespace hologram::cpu {

namespace {

void run_forward(CallFrame& call, bool keeps) {
  const View gates = call.view(), weight = call.view(), bias = call.view();
  const View h0 = call.view(), c0 = call.view(), output = call.view();
  const View h_n = call.view(), c_n = call.view();
  LstmArgs args;
  if (keeps) args.cells = call.view().data;
  const View workspace = call.view();
  args.dtype = gates.dtype;
  args.reverse = call.flag();
  args.steps = gates.shape[0], args.batch = gates.shape[1], args.hidden = h0.shape[1];
  args.gates = gates.data, args.weight = weight.data, args.bias = bias.data;
  args.h0 = h0.data, args.c0 = c0.data;
  args.output = output.data, args.output_row = output.strides[1];
  args.h_n = h_n.data, args.c_n = c_n.data, args.workspace = workspace.data;
  args.max_threads = call.threads();
  hologram::lstm(args);
}

}  // namespace

void run_lstm_recurrence(CallFrame& call) { run_forward(call, false); }
void run_lstm_forward(CallFrame& call) { run_forward(call, true); }

void run_gru_forward(CallFrame& call) {
  const View gates = call.view(), weight = call.view(), bias = call.view(), h0 = call.view();
  const View output = call.view(), h_n = call.view(), hidden_n = call.view();
  const View workspace = call.view();
  GruArgs args;
  args.dtype = gates.dtype;
  args.reverse = call.flag();
  args.steps = gates.shape[0], args.batch = gates.shape[1], args.hidden = h0.shape[1];
  args.gates = gates.data, args.weight = weight.data, args.bias = bias.data, args.h0 = h0.data;
  args.output = output.data, args.output_row = output.strides[1];
  args.h_n = h_n.data, args.hidden_n = hidden_n.data, args.workspace = workspace.data;
  args.max_threads = call.threads();
  hologram::gru(args);
}

void run_gru_backward(CallFrame& call) {
  const View gates = call.view(), hidden_n = call.view(), output = call.view();
  const View weight = call.view(), h0 = call.view();
  const View grad_output = call.view(), grad_h_n = call.view();
  const View grad_gates = call.view(), grad_hidden = call.view(), grad_h0 = call.view();
  const View workspace = call.view();
  GruBackwardArgs args;
  args.dtype = gates.dtype;
  args.reverse = call.flag();
  args.steps = gates.shape[0], args.batch = gates.shape[1], args.hidden = h0.shape[1];
  args.gates = gates.data, args.hidden_n = hidden_n.data;
  args.output = output.data, args.output_row = output.strides[1];
  args.weight = weight.data, args.h0 = h0.data;
  args.grad_output = grad_output.data, args.grad_h_n = grad_h_n.data;
  if (grad_output.data != nullptr) args.grad_output_row = grad_output.strides[1];
  args.grad_gates = grad_gates.data, args.grad_hidden = grad_hidden.data;
  args.grad_h0 = grad_h0.data, args.workspace = workspace.data;
  args.max_threads = call.threads();
  hologram::gru_backward(args);
}

void run_rnn_forward(CallFrame& call) {
  const View gates = call.view(), weight = call.view(), bias = call.view(), h0 = call.view();
  const View output = call.view(), h_n = call.view();
  RnnArgs args;
  args.dtype = gates.dtype;
  args.relu = call.flag(), args.reverse = call.flag();
  args.steps = gates.shape[0], args.batch = gates.shape[1], args.hidden = h0.shape[1];
  args.gates = gates.data, args.weight = weight.data, args.bias = bias.data, args.h0 = h0.data;
  args.output = output.data, args.output_row = output.strides[1];
  args.h_n = h_n.data;
  args.max_threads = call.threads();
  hologram::rnn(args);
}

void run_rnn_backward(CallFrame& call) {
  const View output = call.view(), weight = call.view();
  const View grad_output = call.view(), grad_h_n = call.view();
  const View grad_gates = call.view(), grad_h0 = call.view();
  RnnBackwardArgs args;
  args.dtype = output.dtype;
  args.relu = call.flag(), args.reverse = call.flag();
  args.steps = output.shape[0], args.batch = output.shape[1], args.hidden = output.shape[2];
  args.output = output.data, args.output_row = output.strides[1];
  args.weight = weight.data;
  args.grad_output = grad_output.data, args.grad_h_n = grad_h_n.data;
  if (grad_output.data != nullptr) args.grad_output_row = grad_output.strides[1];
  args.grad_gates = grad_gates.data, args.grad_h0 = grad_h0.data;
  args.max_threads = call.threads();
  hologram::rnn_backward(args);
}

void run_lstm_backward(CallFrame& call) {
  const View gates = call.view(), cells = call.view(), weight = call.view(), c0 = call.view();
  const View grad_output = call.view(), grad_h_n = call.view(), grad_c_n = call.view();
  const View grad_gates = call.view(), grad_h0 = call.view(), grad_c0 = call.view();
  const View workspace = call.view();
  LstmBackwardArgs args;
  args.dtype = gates.dtype;
  args.reverse = call.flag();
  args.steps = gates.shape[0], args.batch = gates.shape[1], args.hidden = c0.shape[1];
  args.gates = gates.data, args.cells = cells.data, args.weight = weight.data, args.c0 = c0.data;
  args.grad_output = grad_output.data, args.grad_h_n = grad_h_n.data;
  if (grad_output.data != nullptr) args.grad_output_row = grad_output.strides[1];
  args.grad_c_n = grad_c_n.data, args.grad_gates = grad_gates.data;
  args.grad_h0 = grad_h0.data, args.grad_c0 = grad_c0.data, args.workspace = workspace.data;
  args.max_threads = call.threads();
  hologram::lstm_backward(args);
}

}  // namespace hologram::cpu
