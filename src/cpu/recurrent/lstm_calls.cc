// SPDX-License-Identifier: MIT
// The call of an LSTM layer: from the operands of a call to the kernel.
#include "hologram/call_frame.h"
#include "hologram/lstm.h"

namespace hologram::cpu {

void run_lstm_recurrence(CallFrame& call) {
  const View gates = call.view(), weight = call.view(), bias = call.view();
  const View h0 = call.view(), c0 = call.view(), output = call.view();
  const View h_n = call.view(), c_n = call.view(), workspace = call.view();
  LstmArgs args;
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

}  // namespace hologram::cpu
