// SPDX-License-Identifier: MIT
// The recurrence of a long short-term memory layer.
#pragma once

#include <cstdint>

#include "hologram/api.h"
#include "hologram/dtype.h"

namespace hologram {

// One direction of one layer over a batch of sequences, float32 or float64 (Hochreiter and
// Schmidhuber 1997, with the forget gate of Gers et al. 2000, as torch.nn.LSTM computes it):
//
//   i, f, g, o = gates[t] + bias + h weight^T, side by side, each `hidden` wide
//   c = sigmoid(f) c + sigmoid(i) tanh(g)
//   h = sigmoid(o) tanh(c)
//
// All are contiguous but for the output. c_n may be c0 and h_n may be h0; nothing else overlaps.
struct LstmArgs {
  Dtype dtype = Dtype::kFloat32;
  bool reverse = false;  // from the last step to the first
  int64_t steps = 0, batch = 0, hidden = 0;
  void* gates = nullptr;         // (steps, batch, 4 hidden): what the inputs bring; overwritten
  const void* weight = nullptr;  // (4 hidden, hidden)
  const void* bias = nullptr;    // (4 hidden), or null
  const void* h0 = nullptr;      // (batch, hidden)
  const void* c0 = nullptr;
  void* output = nullptr;  // (steps, batch, hidden): h of every step
  int64_t output_row = 0;  // elements between its rows, at least `hidden`
  void* h_n = nullptr;     // (batch, hidden): h and c after the last step
  void* c_n = nullptr;
  void* workspace = nullptr;  // lstm_workspace() elements
  int max_threads = 0;        // 0: num_threads()
};

// The same bits for any number of threads. Error(kInvalidArgument) for negative sizes, rows of the
// output that overlap and missing operands, Error(kNotSupported) for other dtypes.
HOLOGRAM_API void lstm(const LstmArgs& args);

// Elements of scratch that sequences of these sizes take.
HOLOGRAM_API int64_t lstm_workspace(int64_t steps, int64_t batch, int64_t hidden);

}  // namespace hologram
