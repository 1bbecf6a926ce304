// SPDX-License-Identifier: MIT
// What an LSTM does to a row of gates, and back.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// `units` units of some rows. Row r of gates holds the four gates of a unit `gate` elements apart,
// as do the biases, if any.
template <class T>
struct LstmCells {
  int64_t rows = 0, units = 0, gate = 0;
  T* gates = nullptr;
  int64_t gates_row = 0;
  bool keeps_gates = false;  // they become what the activations make of them
  const T* bias = nullptr;
  const T* c = nullptr;  // before; may be c_next
  T* c_next = nullptr;
  int64_t c_row = 0;  // of both
  T* h = nullptr;
  int64_t h_row = 0;
};

template <class T>
using LstmKernel = void (*)(const LstmCells<T>& cells);

// The same units backwards, from activated gates. Rows of what has no row length of its own lie
// state_row elements apart.
template <class T>
struct LstmCellGrads {
  int64_t rows = 0, units = 0, gate = 0;
  const T* gates = nullptr;  // may be grad_gates
  int64_t gates_row = 0;     // of both
  int64_t state_row = 0;
  const T* c = nullptr;         // after the step
  const T* c_before = nullptr;  // before it
  // The two parts of h's gradient, either may be null: from the output, and from the next step.
  const T* grad_output = nullptr;
  int64_t grad_output_row = 0;
  const T* grad_h = nullptr;
  const T* grad_c = nullptr;   // of c after the step; null: zeros
  T* grad_c_before = nullptr;  // may be grad_c
  T* grad_gates = nullptr;     // of what the activations took
  T* h = nullptr;              // after the step; null: not asked for
};

template <class T>
using LstmGradKernel = void (*)(const LstmCellGrads<T>& cells);

LstmGradKernel<float> lstm_grad_kernel(Isa isa, float);
LstmGradKernel<double> lstm_grad_kernel(Isa isa, double);

LstmKernel<float> lstm_kernel(Isa isa, float);
LstmKernel<double> lstm_kernel(Isa isa, double);

}  // namespace hologram::cpu
