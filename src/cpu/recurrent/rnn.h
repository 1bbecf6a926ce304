// SPDX-License-Identifier: MIT
// The recurrence of a layer without gates, and its gradient.
#pragma once

#include <cstdint>

#include "hologram/dtype.h"

namespace hologram {

// One direction of one layer over a batch of sequences, float32 or float64 (Elman 1990, as
// torch.nn.RNN computes it):
//
//   h = f(gates[t] + bias + h weight^T), f = tanh or relu
//
// All are contiguous but for the output. h_n may be h0; nothing else overlaps. With batch_sizes the
// sequences are packed, as those of lstm() (src/cpu/recurrent/lstm.h).
struct RnnArgs {
  Dtype dtype = Dtype::kFloat32;
  bool relu = false;
  bool reverse = false;  // from the last step to the first
  int64_t steps = 0, batch = 0, hidden = 0;
  const void* gates = nullptr;   // (steps, batch, hidden): what the inputs bring
  const void* weight = nullptr;  // (hidden, hidden)
  const void* bias = nullptr;    // (hidden), or null
  const void* h0 = nullptr;      // (batch, hidden)
  void* output = nullptr;        // (steps, batch, hidden): h of every step
  int64_t output_row = 0;        // elements between its rows, at least `hidden`
  void* h_n = nullptr;           // (batch, hidden): h after the last step
  int max_threads = 0;           // 0: num_threads()
  const int64_t* batch_sizes = nullptr;
};

// The same bits for any number of threads. Error(kInvalidArgument) for negative sizes, rows of the
// output that overlap, batch_sizes that lstm() refuses and missing operands, Error(kNotSupported)
// for other dtypes.
void rnn(const RnnArgs& args);

// The gradient of rnn() through time, from those of its results. That of `gates` is grad_gates; the
// gradients of bias and weight are those of a product of h with it.
//
// All are contiguous but for output and grad_output; nothing overlaps.
struct RnnBackwardArgs {
  Dtype dtype = Dtype::kFloat32;
  bool relu = false;
  bool reverse = false;
  int64_t steps = 0, batch = 0, hidden = 0;
  const void* output = nullptr;  // (steps, batch, hidden)
  int64_t output_row = 0;        // elements between its rows, at least `hidden`
  const void* weight = nullptr;  // (hidden, hidden)
  // Gradients of the results; null: zeros.
  const void* grad_output = nullptr;  // (steps, batch, hidden)
  int64_t grad_output_row = 0;        // as output_row
  const void* grad_h_n = nullptr;     // (batch, hidden)
  void* grad_gates = nullptr;         // (steps, batch, hidden)
  void* grad_h0 = nullptr;            // (batch, hidden)
  int max_threads = 0;                // 0: num_threads()
  const int64_t* batch_sizes = nullptr;
};

// The same bits for any number of threads; errors as of rnn().
void rnn_backward(const RnnBackwardArgs& args);

}  // namespace hologram
