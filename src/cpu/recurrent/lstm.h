// SPDX-License-Identifier: MIT
// The recurrence of a long short-term memory layer, and its gradient.
#pragma once

#include <cstdint>

#include "hologram/dtype.h"

namespace hologram {

// One direction of one layer over a batch of sequences, float32 or float64 (Hochreiter and
// Schmidhuber 1997, with the forget gate of Gers et al. 2000, as torch.nn.LSTM computes it):
//
//   i, f, g, o = gates[t] + bias + h weight^T, side by side, each `hidden` wide
//   c = sigmoid(f) c + sigmoid(i) tanh(g)
//   h = sigmoid(o) tanh(c)           or, with a projection, weight_hr (sigmoid(o) tanh(c))
//
// All are contiguous but for the output. c_n may be c0 and h_n may be h0; nothing else overlaps.
//
// Sequences of different lengths are packed, as torch.nn.utils.rnn packs them: longest first, so
// that step t is of the first batch_sizes[t]. What has shape (steps, batch, n) has their sum of
// rows then, and each sequence's last state is that after its own last step.
struct LstmArgs {
  Dtype dtype = Dtype::kFloat32;
  bool reverse = false;  // from the last step to the first
  int64_t steps = 0, batch = 0, hidden = 0;
  // (steps), from `batch` on, never increasing, 1 or more; null: `batch` at each step.
  const int64_t* batch_sizes = nullptr;
  void* gates = nullptr;         // (steps, batch, 4 hidden): what the inputs bring; overwritten
  const void* weight = nullptr;  // (4 hidden, columns): columns of h, `projection` or `hidden`
  const void* bias = nullptr;    // (4 hidden), or null
  int64_t projection = 0;
  const void* weight_hr = nullptr;  // (projection, hidden), or null
  const void* h0 = nullptr;         // (batch, columns)
  const void* c0 = nullptr;         // (batch, hidden)
  void* output = nullptr;           // (steps, batch, columns): h of every step
  int64_t output_row = 0;           // elements between its rows, at least `columns`
  void* h_n = nullptr;              // as h0 and c0: after the last step
  void* c_n = nullptr;
  // For the gradient: (steps, batch, hidden), c of every step, or null. `gates` then holds
  // sigmoid(i), sigmoid(f), tanh(g) and sigmoid(o) afterwards.
  void* cells = nullptr;
  void* workspace = nullptr;  // lstm_workspace() elements
  int max_threads = 0;        // 0: num_threads()
};

// The same bits for any number of threads. Error(kInvalidArgument) for negative sizes, rows of the
// output that overlap, other batch_sizes and missing operands, Error(kNotSupported) for other
// dtypes.
void lstm(const LstmArgs& args);

// The gradient of lstm() through time, from those of its results. What it takes from the forward
// pass is `gates` and `cells`. The gradients of the inputs and weights are products of grad_gates:
// that of gates is grad_gates, that of the bias its sum over steps and batch, and that of the
// weight the sum over the steps of grad_gates[t]^T h[t-1], that of weight_hr the product
// grad_projection^T projected of all rows.
//
// All are contiguous but for grad_output; nothing overlaps, but grad_gates may be gates.
struct LstmBackwardArgs {
  Dtype dtype = Dtype::kFloat32;
  bool reverse = false;
  int64_t steps = 0, batch = 0, hidden = 0;
  const int64_t* batch_sizes = nullptr;  // as in LstmArgs, as are these shapes
  const void* gates = nullptr;           // (steps, batch, 4 hidden)
  const void* cells = nullptr;           // (steps, batch, hidden)
  const void* weight = nullptr;          // (4 hidden, columns)
  int64_t projection = 0;
  const void* weight_hr = nullptr;  // (projection, hidden), or null
  const void* c0 = nullptr;         // (batch, hidden)
  // Gradients of the results; null: zeros.
  const void* grad_output = nullptr;  // (steps, batch, columns)
  int64_t grad_output_row = 0;        // elements between its rows, at least `columns`
  const void* grad_h_n = nullptr;     // (batch, columns)
  const void* grad_c_n = nullptr;     // (batch, hidden)
  void* grad_gates = nullptr;         // (steps, batch, 4 hidden)
  void* grad_h0 = nullptr;            // (batch, columns)
  void* grad_c0 = nullptr;            // (batch, hidden)
  // With a projection: all that reaches h of each step, (steps, batch, projection), and what was
  // projected, (steps, batch, hidden).
  void* grad_projection = nullptr;
  void* projected = nullptr;
  void* workspace = nullptr;  // lstm_backward_workspace() elements
  int max_threads = 0;        // 0: num_threads()
};

// The same bits for any number of threads; errors as of lstm().
void lstm_backward(const LstmBackwardArgs& args);

}  // namespace hologram
