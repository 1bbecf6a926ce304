// SPDX-License-Identifier: MIT
// What a layer without gates does to rows of sums, and back.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// `units` units of some rows: sums become f(sum + bias).
template <class T>
struct RnnCells {
  int64_t rows = 0, units = 0;
  T* sums = nullptr;
  int64_t row = 0;  // elements from one row to the next
  const T* bias = nullptr;
  bool relu = false;  // f; else tanh
};

// The same units backwards.
template <class T>
struct RnnCellGrads {
  int64_t rows = 0, units = 0;
  const T* output = nullptr;
  int64_t output_row = 0;
  // The two parts of h's gradient, either may be null: from the output, and from the next step.
  const T* grad_output = nullptr;
  int64_t grad_output_row = 0;
  const T* grad_h = nullptr;
  T* grad_gates = nullptr;
  int64_t row = 0;  // of grad_h and grad_gates
  bool relu = false;
};

template <class T>
struct RnnKernels {
  void (*cells)(const RnnCells<T>& cells);
  void (*grads)(const RnnCellGrads<T>& cells);
};

RnnKernels<float> rnn_kernels(Isa isa, float);
RnnKernels<double> rnn_kernels(Isa isa, double);

}  // namespace hologram::cpu
