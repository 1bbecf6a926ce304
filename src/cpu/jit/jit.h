// SPDX-License-Identifier: MIT
// JitLoop: machine code for a chain of elementwise instructions as one pass over contiguous
// operands, bit-identical to the ops' kernels run one after another. Lowering says what it computes
// (LoopGraph), jit_compile() makes it, the steps of a program call it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"
#include "src/circuit/plan.h"
#include "src/cpu/reduce/reduce_kernels.h"

namespace hologram::cpu {

namespace jit {
struct LoopGraph;
}

// inputs[i], outputs[i]: n contiguous elements, any alignment; an output may coincide exactly with
// an input of the same item size. numbers[i]: address of the number. n >= 0.
// by_rows: `rows` >= 1 such rows; steps: bytes from each input's, number's and output's row to the
// next, in this order. outputs then ends with the folds' results, one element after another for
// each row, of the dtype that is folded.
// has_gaps: steps is read as bits, bit i % 64 of word i / 64 and a word more: only elements whose
// bit is set are stored, and those are all that packed operands have. Unused otherwise.
using LoopFunction = void (*)(const void* const* inputs, const void* const* numbers,
                              void* const* outputs, int64_t n, int64_t rows, const int64_t* steps);

// A use of a generated loop, shared by its copies: the loop stays as long as there is one.
class JitLoop {
 public:
  JitLoop() = default;
  JitLoop(LoopFunction kernel, size_t bytes, std::shared_ptr<const void> use)
      : kernel_(kernel), bytes_(bytes), use_(std::move(use)) {}

  // Null where there is no loop. For as long as this, or a copy, lives.
  LoopFunction get() const { return kernel_; }
  // Memory that its code takes.
  size_t bytes() const { return bytes_; }
  bool operator==(const JitLoop& other) const { return kernel_ == other.kernel_; }
  bool operator==(std::nullptr_t) const { return kernel_ == nullptr; }

 private:
  LoopFunction kernel_ = nullptr;
  size_t bytes_ = 0;
  std::shared_ptr<const void> use_;
};

// Whether an instruction can be part of a loop on this instruction set.
bool jit_takes(Isa isa, const circuit::Instr& instr);
// Whether folds of rows this long can be: they are one block of the fold's kernel.
bool jit_takes_fold(Isa isa, Fold fold, Dtype dtype, int64_t cols);
// Generates the loop, or finds it among those generated before. Null where the machine, the
// instruction set or HOLOGRAM_JIT=0 forbids it, registers do not suffice, or where a loop by rows
// has an op that needs a call. Thread-safe.
//
// Loops out of use are kept, in case they are asked for again. Where the room for code is used up,
// the ones longest unused go; where all are in use, the plan cache gives up plans. Null only where
// all are in use by plans that others hold.
JitLoop jit_compile(const jit::LoopGraph& graph);

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
