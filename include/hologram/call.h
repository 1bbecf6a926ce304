// SPDX-License-Identifier: MIT
// Calls: ops that run as one piece of code over whole tensors, such as a product, a loss, a norm or
// an optimizer's step. What they are; recorder.h says how they are recorded.
#pragma once

#include <cstdint>

#include "hologram/api.h"

namespace hologram {

// What a call is given when it runs.
struct CallArguments {
  // The first byte of each operand, in the order in which they were recorded. Null for operands
  // that are not there or touch no bytes.
  char* const* operands = nullptr;
  // Shapes, strides, dtypes, flags: what makes two calls equal. The kind knows how many there are.
  const uint64_t* attributes = nullptr;
  // Learning rates, Philox offsets...: what may differ between equal calls.
  const uint64_t* numbers = nullptr;
  int max_threads = 1;
};

// A kind of call.
//
// run() depends on its operands, attributes and numbers only: nothing else may be read, and
// nothing but the operands written. It touches the bytes that the record named and no others, gives
// the same bits for any number of threads, and does not look at what is recorded (materialize,
// flush). It may run on any thread, or twice on copies of its operands, or not at all where nobody
// sees what it writes. What it throws reaches whoever waits for the circuit.
struct CallKind {
  const char* name = nullptr;  // as plans, traces and profiles show it: "nll_loss"
  void (*run)(const CallArguments& arguments) = nullptr;
};

// Makes a kind known for the life of the process and returns its number, which other processes need
// not give to the same kind. The name is copied. A kind that is known already keeps its number;
// Error(kInvalidArgument) for a known name with another function, or without one. Thread-safe.
HOLOGRAM_API uint16_t register_call(const CallKind& kind);

}  // namespace hologram
