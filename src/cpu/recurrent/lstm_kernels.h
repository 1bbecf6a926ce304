// SPDX-License-Identifier: MIT
// What an LSTM does to a row of gates.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// `units` units of some rows. Row r of gates holds the four gates of a unit `gate` elements apart,
// as do the biases, if any.
template <class T>
struct LstmCells {
  int64_t rows = 0, units = 0, gate = 0;
  const T* gates = nullptr;
  int64_t gates_row = 0;
  const T* bias = nullptr;
  const T* c = nullptr;  // before; may be c_next
  T* c_next = nullptr;
  int64_t c_row = 0;  // of both
  T* h = nullptr;
  int64_t h_row = 0;
};

template <class T>
using LstmKernel = void (*)(const LstmCells<T>& cells);

LstmKernel<float> lstm_kernel(Isa isa, float);
LstmKernel<double> lstm_kernel(Isa isa, double);

}  // namespace hologram::cpu
