// SPDX-License-Identifier: MIT
// Schedule: a loop graph in order, phases of straight-line code with calls of kernels between them.
// make_schedule() makes it, Emitter reads it.
#pragma once

#include <cstdint>
#include <vector>

#include "src/cpu/jit/loop_graph.h"

namespace hologram::cpu::jit {

// Memory that a loop reads or writes element by element.
struct Array {
  enum Kind : uint8_t { kInput, kOutput, kStrip } kind = kInput;
  Dtype dtype = Dtype::kFloat32;
  int index = 0;       // of the input or output
  int64_t offset = 0;  // of the strip, in bytes from the first
};

inline constexpr int kCompute = -1;
inline constexpr int kPreload = -2;
inline constexpr int kFirstFold = -3;  // fold k: kFirstFold - k

struct Item {
  int node = 0;
  // The array to store the node to; kCompute; kPreload: only have it in a register; or the fold
  // that takes it in.
  int store = kCompute;

  bool is_fold() const { return store <= kFirstFold; }
};

struct CallArgument {
  int array = -1;   // n elements of it; else
  int single = -1;  // the first lane of this invariant
};

struct StripCall {
  int node = 0;
  int form = 0;
  CallArgument in[4];
  int out = 0;  // array
};

// A loop over a strip, then calls over the strip.
struct Phase {
  std::vector<Item> items;
  std::vector<StripCall> calls;
  // By node: the array that the phase loads it from, or -1.
  std::vector<int> source;
};

struct Schedule {
  std::vector<Array> arrays;  // inputs, outputs, strips
  std::vector<Phase> phases;
  // Nodes that do not change from element to element, in order of computation.
  std::vector<int> invariants;
  std::vector<char> is_invariant;  // by node
  // Strips that hold an invariant, for kernels without a form for single elements.
  struct Fill {
    int node;
    int array;
  };
  std::vector<Fill> fills;
  int lanes = 0;            // elements a vector
  int64_t strip = 0;        // elements of a strip; 0: all in one
  int64_t strip_bytes = 0;  // of all strips
};

Schedule make_schedule(const LoopGraph& graph);

}  // namespace hologram::cpu::jit
