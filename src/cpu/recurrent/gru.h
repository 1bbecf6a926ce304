// SPDX-License-Identifier: MIT
// The recurrence of a layer of gated recurrent units, and its gradient.
#pragma once

#include <cstdint>

#include "hologram/dtype.h"

namespace hologram {

// One direction of one layer over a batch of sequences, float32 or float64 (Cho et al. 2014, with
// the reset gate after the product, as torch.nn.GRU computes it):
//
//   hr, hz, hn = h weight^T + bias, side by side, each `hidden` wide; xr, xz, xn = gates[t]
//   r = sigmoid(xr + hr)
//   z = sigmoid(xz + hz)
//   n = tanh(xn + r hn)
//   h = n + z (h - n)
//
// All are contiguous but for the output. h_n may be h0; nothing else overlaps. With batch_sizes the
// sequences are packed, as those of lstm() (lstm.h).
struct GruArgs {
  Dtype dtype = Dtype::kFloat32;
  bool reverse = false;  // from the last step to the first
  int64_t steps = 0, batch = 0, hidden = 0;
  const int64_t* batch_sizes = nullptr;
  void* gates = nullptr;         // (steps, batch, 3 hidden): what the inputs bring; becomes r, z, n
  const void* weight = nullptr;  // (3 hidden, hidden)
  const void* bias = nullptr;    // (3 hidden), or null
  const void* h0 = nullptr;      // (batch, hidden)
  void* output = nullptr;        // (steps, batch, hidden): h of every step
  int64_t output_row = 0;        // elements between its rows, at least `hidden`
  void* h_n = nullptr;           // (batch, hidden): h after the last step
  void* hidden_n = nullptr;      // (steps, batch, hidden): hn of every step, for the gradient
  void* workspace = nullptr;     // gru_workspace() elements
  int max_threads = 0;           // 0: num_threads()
};

// The same bits for any number of threads. Error(kInvalidArgument) for negative sizes, rows of the
// output that overlap, batch_sizes that lstm() refuses and missing operands, Error(kNotSupported)
// for other dtypes.
void gru(const GruArgs& args);

// The gradient of gru() through time, from those of its results. That of `gates` is grad_gates. The
// gradients of bias and weight are those of a product of h: the sums of grad_hidden over steps and
// batch, and over the steps of grad_hidden[t]^T h[t-1].
//
// All are contiguous but for output and grad_output; nothing overlaps.
struct GruBackwardArgs {
  Dtype dtype = Dtype::kFloat32;
  bool reverse = false;
  int64_t steps = 0, batch = 0, hidden = 0;
  const int64_t* batch_sizes = nullptr;
  const void* gates = nullptr;     // (steps, batch, 3 hidden), as gru() left them
  const void* hidden_n = nullptr;  // (steps, batch, hidden)
  const void* output = nullptr;    // (steps, batch, hidden)
  int64_t output_row = 0;          // elements between its rows, at least `hidden`
  const void* weight = nullptr;    // (3 hidden, hidden)
  const void* h0 = nullptr;        // (batch, hidden)
  // Gradients of the results; null: zeros.
  const void* grad_output = nullptr;  // (steps, batch, hidden)
  int64_t grad_output_row = 0;        // as output_row
  const void* grad_h_n = nullptr;     // (batch, hidden)
  void* grad_gates = nullptr;         // (steps, batch, 3 hidden)
  void* grad_hidden = nullptr;        // (steps, batch, 3 hidden): of hr, hz, hn
  void* grad_h0 = nullptr;            // (batch, hidden)
  void* workspace = nullptr;          // gru_backward_workspace() elements
  int max_threads = 0;                // 0: num_threads()
};

// The same bits for any number of threads; errors as of gru().
void gru_backward(const GruBackwardArgs& args);

}  // namespace hologram
