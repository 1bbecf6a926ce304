// SPDX-License-Identifier: MIT
// What a GRU does to a row of gates, and back.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// `units` units of some rows. Row r of gates holds the three gates of a unit `gate` elements apart,
// as do the biases, if any. Gates become r, z and n, hidden_n gets its bias.
template <class T>
struct GruCells {
  int64_t rows = 0, units = 0, gate = 0;
  T* gates = nullptr;
  int64_t gates_row = 0;
  T* hidden_n = nullptr;
  int64_t hidden_row = 0;
  const T* bias = nullptr;
  const T* h = nullptr;  // before
  int64_t h_row = 0;
  T* h_next = nullptr;
  int64_t next_row = 0;
};

// The same units backwards. Rows of what has no row length of its own lie state_row elements apart.
template <class T>
struct GruCellGrads {
  int64_t rows = 0, units = 0, gate = 0;
  const T* gates = nullptr;
  int64_t gates_row = 0;  // of grad_gates and grad_hidden, too
  int64_t state_row = 0;
  const T* hidden_n = nullptr;
  const T* h_before = nullptr;
  int64_t before_row = 0;
  // The two parts of h's gradient, either may be null: from the output, and from the next step.
  const T* grad_output = nullptr;
  int64_t grad_output_row = 0;
  const T* grad_h = nullptr;   // may be grad_h_before
  T* grad_h_before = nullptr;  // what reaches h before the step without the product
  T* grad_gates = nullptr;
  T* grad_hidden = nullptr;
};

template <class T>
struct GruKernels {
  void (*cells)(const GruCells<T>& cells);
  void (*grads)(const GruCellGrads<T>& cells);
};

GruKernels<float> gru_kernels(Isa isa, float);
GruKernels<double> gru_kernels(Isa isa, double);

}  // namespace hologram::cpu
