// SPDX-License-Identifier: MIT
// Calls: ops that run as one piece of code over whole tensors, such as a product, a loss, a norm or
// an optimizer's step. What they are; recorder.h says how they are recorded.
#pragma once

#include <cstdint>

#include "hologram/api.h"
#include "hologram/device.h"
#include "hologram/dtype.h"

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

// A result without gaps, rows one after another.
struct CallResult {
  Dtype dtype = Dtype::kFloat32;
  int64_t rows = 0;
  int64_t cols = 0;
  // Rows that belong together, as the channels of an image: no block has rows of two groups. What
  // differs from row to row may then be the same in every group, as the bias of a channel is.
  int64_t group = 0;  // divides rows; 0: all of them
  int operand = 0;    // which operand the result is
};

// An operand that a call also takes as elements of a narrower type, in the same order and without
// gaps: as the kind named for that type, which has the same operands and attributes and gives the
// bits of converting first. -1: there is none.
struct CallNarrowing {
  int operand = 0;
  Dtype dtype = Dtype::kFloat32;  // of its elements otherwise
  int of_int8 = -1, of_float16 = -1, of_bfloat16 = -1;
};

// A block of a result that is done: rows [row, row + rows) of columns [col, col + cols).
struct CallBlock {
  int64_t row = 0, rows = 0;
  int64_t col = 0, cols = 0;
  char* data = nullptr;  // the first element
  int64_t pitch = 0;     // elements from one row to the next
};

// What becomes of a result block by block.
struct CallEpilogue {
  // Any thread, several at once.
  void (*run)(void* context, const CallBlock& block) = nullptr;
  void* context = nullptr;
  bool whole_rows = false;  // blocks must have all columns
};

// A kind of call.
//
// run() depends on its operands, attributes and numbers only: nothing else may be read, and
// nothing but the operands written. It touches the bytes that the record named and no others, gives
// the same bits for any number of threads, and does not look at what is recorded (materialize,
// flush). It may run on any thread, or twice on copies of its operands, or not at all where no
// later code can see what it writes. What it throws reaches the code that waits for the circuit.
//
// A kind may let ops that read its result join its kernel: they then run on blocks of the result
// while those are in the caches, and a result with no other reader never reaches memory.
struct CallKind {
  const char* name = nullptr;  // as plans, traces and profiles show it: "nll_loss"
  void (*run)(const CallArguments& arguments) = nullptr;

  // Optional: whether calls with these attributes have such a result, and which. Its NaNs are quiet
  // ones, and run() writes the same bits wherever its operand is.
  bool (*result)(const uint64_t* attributes, CallResult& result) = nullptr;
  // Optional, of kinds with results: does what run() does and hands over each element once, when it
  // is done. Its operand may be null: then a block is there for as long as the epilogue runs. How
  // the result is cut changes no bits. False, with nothing done, where run() is better.
  bool (*run_blocks)(const CallArguments& arguments, const CallEpilogue& epilogue) = nullptr;
  // Optional: whether calls with these attributes have such an operand, and which. A conversion
  // before the call then becomes part of it.
  bool (*narrowing)(const uint64_t* attributes, CallNarrowing& narrowing) = nullptr;
};

// Makes a backend's functions of a kind known for the life of the process and returns the kind's
// number. Calls of the catalogue (call_ops.h) have their numbers from the start; other kinds get
// one when the first backend names them, which other processes need not give to the same kind. The
// name is copied. A function that is known already keeps its place; Error(kInvalidArgument) for a
// known name with another function, or without one. Thread-safe.
HOLOGRAM_API uint16_t register_call(const CallKind& kind, BackendType backend = BackendType::kCpu);

// Runs a call at once, on operands that a backend's kernel may touch now. Throws what the kernel
// throws; Error(kNotSupported) where the backend has no kernel of the kind.
HOLOGRAM_API void run_call(uint16_t kind, const CallArguments& arguments,
                           BackendType backend = BackendType::kCpu);

}  // namespace hologram
