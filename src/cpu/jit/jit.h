// SPDX-License-Identifier: MIT
// Segment: a chain of simple ops as one pass over contiguous operands. Lowering makes it,
// jit_compile() makes machine code of it (JitLoop), bit-identical to the ops' kernels run one after
// another; the steps of a program call that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"
#include "hologram/op_ids.h"
#include "src/cpu/reduce/reduce_kernels.h"

namespace hologram::cpu {

// An operand of a step: an input array, a number (one for the whole call), or an earlier step.
struct SegmentRef {
  enum Kind : uint8_t { kInput, kNumber, kStep } kind = kInput;
  uint8_t index = 0;
};

struct SegmentStep {
  bool convert = false;  // else a row of the op table
  OpId op{};
  Dtype compute = Dtype::kFloat32;  // of the operands; for a conversion what is converted from
  Dtype result = Dtype::kFloat32;   // bool for predicates
  uint8_t arity = 0;
  SegmentRef in[4];
  int output = -1;  // also stored to this output array
};

// A reduction of each row that rounds as the reduction's kernel does on one block. Its operand is
// an array or a step of float32 or float64.
struct SegmentFold {
  Fold fold = Fold::kSum;
  SegmentRef of;
};

struct Segment {
  std::vector<Dtype> inputs;   // arrays of n elements
  std::vector<Dtype> numbers;  // 8 bytes each, the value in its dtype at the start
  std::vector<Dtype> outputs;
  std::vector<SegmentStep> steps;
  // Walks rows of n elements, each with numbers of its own.
  bool by_rows = false;
  std::vector<SegmentFold> folds;  // by_rows only
  // Outputs (bit k: output k, of 4 or 8 bytes an element) whose whole vectors go past the caches:
  // their rows begin at multiples of 64 bytes.
  uint64_t streams = 0;
  // By rows: the input, or none, of which the row `rows` rows after each one is fetched into the
  // cache meanwhile.
  int fetched = -1;
};

// inputs[i], outputs[i]: n contiguous elements, any alignment; an output may coincide exactly with
// an input of the same item size. numbers[i]: address of the number. n >= 0.
// by_rows: `rows` >= 1 such rows; steps: bytes from each input's, number's and output's row to the
// next, in this order. outputs then ends with the folds' results, one element after another for
// each row, of the dtype that is folded. Unused otherwise.
using SegmentKernel = void (*)(const void* const* inputs, const void* const* numbers,
                               void* const* outputs, int64_t n, int64_t rows, const int64_t* steps);

// A use of a generated loop, shared by its copies: the loop stays as long as there is one.
class JitLoop {
 public:
  JitLoop() = default;
  JitLoop(SegmentKernel kernel, size_t bytes, std::shared_ptr<const void> use)
      : kernel_(kernel), bytes_(bytes), use_(std::move(use)) {}

  // Null where there is no loop. For as long as this, or a copy, lives.
  SegmentKernel get() const { return kernel_; }
  // Memory that its code takes.
  size_t bytes() const { return bytes_; }
  void operator()(const void* const* inputs, const void* const* numbers, void* const* outputs,
                  int64_t n, int64_t rows, const int64_t* steps) const {
    kernel_(inputs, numbers, outputs, n, rows, steps);
  }
  bool operator==(const JitLoop& other) const { return kernel_ == other.kernel_; }
  bool operator==(std::nullptr_t) const { return kernel_ == nullptr; }

 private:
  SegmentKernel kernel_ = nullptr;
  size_t bytes_ = 0;
  std::shared_ptr<const void> use_;
};

// Whether a step can be part of a segment on this instruction set.
bool jit_takes(Isa isa, const SegmentStep& step);
// Whether folds of rows this long can be: they are one block of the fold's kernel.
bool jit_takes_fold(Isa isa, Fold fold, Dtype dtype, int64_t cols);
// Generates the loop, or finds it among those generated before. Null where the machine, the
// instruction set or HOLOGRAM_JIT=0 forbids it, a step is not taken, registers do not suffice, or
// where a segment by rows has an op that needs a call. Thread-safe.
//
// Loops out of use are kept, in case they are asked for again. Where the room for code is used up,
// the ones longest unused go; where all are in use, the plan cache gives up plans. Null only where
// all are in use by plans that others hold.
JitLoop jit_compile(Isa isa, const Segment& segment);

struct JitStats {
  int64_t kernels = 0;     // loops generated
  int64_t code_bytes = 0;  // of all these
  int64_t hits = 0;
  double compile_us = 0;   // all together
  int64_t evictions = 0;   // loops given up for others
  int64_t refused = 0;     // not generated, because all others were in use
  int64_t kept = 0;        // loops there are
  int64_t kept_bytes = 0;  // in pages, and of what tells them apart
};
JitStats jit_stats();

// Room for code, and for what tells loops apart.
inline constexpr size_t kMaxCodeBytes = size_t{32} << 20;

namespace testing {
// Until called with kMaxCodeBytes.
void limit_code(size_t bytes);
}  // namespace testing

}  // namespace hologram::cpu
