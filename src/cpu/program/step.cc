// SPDX-License-Identifier: MIT
// Runs one step of a lowered kernel on one block.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "src/cpu/program/program.h"

namespace hologram::cpu {
namespace {

// in[0..count) of the operands' addresses.
template <class Pointer>
void gather_addresses(const StepOperand* operands, int count, char* const* at, Pointer* out) {
  for (int k = 0; k < count; ++k) out[k] = at[operands[k].place];
}

template <class Pointer>
void advance(const StepOperand* operands, int count, int64_t cols, Pointer* pointers) {
  for (int k = 0; k < count; ++k) {
    pointers[k] = const_cast<char*>(static_cast<const char*>(pointers[k])) + operands[k].fixed +
                  operands[k].per_col * cols;
  }
}

void run_op(const Step& step, const StepOperand* operands, char* const* at, int64_t rows,
            int64_t cols, int64_t n) {
  const void* in[circuit::kMaxArity];
  gather_addresses(operands, step.inputs, at, in);
  void* out = at[operands[step.inputs].place];
  if (!step.by_row) return step.op(in, out, n);
  for (int64_t r = 0; r < rows; ++r) {
    step.op(in, out, cols);
    advance(operands, step.inputs, cols, in);
    advance(operands + step.inputs, 1, cols, &out);
  }
}

// The analyzer does not see that a step has as many operands as its loops go through, nor that its
// caller's arrays of addresses end with it.
// NOLINTBEGIN(clang-analyzer-core.*)

// The loop for results that lie at these addresses, in rows with these steps.
SegmentKernel segment_for(const Step& step, void* const* out, const int64_t* steps) {
  if (step.streaming == nullptr) [[likely]]
    return step.segment;
  for (int k = 0; k < step.outputs - step.folds; ++k) {
    if ((step.streamed >> k & 1) == 0) continue;
    const uintptr_t row = steps == nullptr ? 0 : static_cast<uintptr_t>(steps[k]);
    if ((reinterpret_cast<uintptr_t>(out[k]) | row) % 64 != 0) return step.segment;
  }
  return step.streaming;
}

// A segment that goes from row to row, and finishes the rows' folds.
void run_rows(const Program& program, const Step& step, const StepOperand* operands,
              const void** in, void** out, int64_t rows, int64_t cols) {
  int64_t steps[256];
  const int reads = step.inputs + step.numbers, arrays = step.outputs - step.folds;
  for (int k = 0; k < reads + arrays; ++k) {
    steps[k] = operands[k].fixed + operands[k].per_col * cols;
  }
  const SegmentKernel kernel = segment_for(step, out, steps + reads);
  if (step.folds == 0) return kernel(in, in + step.inputs, out, cols, rows, steps);
  alignas(64) double blocks[kMostFolds][kRowsTogether];
  char* results[kMostFolds];
  for (int f = 0; f < step.folds; ++f) {
    results[f] = static_cast<char*>(out[arrays + f]);
    out[arrays + f] = blocks[f];
  }
  for (int64_t r = 0; r < rows; r += kRowsTogether) {
    const int64_t together = std::min(kRowsTogether, rows - r);
    kernel(in, in + step.inputs, out, cols, together, steps);
    for (int f = 0; f < step.folds; ++f) {
      const SettledFold& fold =
          program.folds[static_cast<size_t>(step.first_fold) + static_cast<size_t>(f)];
      finish_blocks(fold, blocks[f], together, cols, results[f]);
      results[f] += together * static_cast<int64_t>(itemsize(fold.result));
    }
    for (int k = 0; k < reads; ++k) in[k] = static_cast<const char*>(in[k]) + steps[k] * together;
    for (int k = 0; k < arrays; ++k) {
      out[k] = static_cast<char*>(out[k]) + steps[reads + k] * together;
    }
  }
}

// NOLINTEND(clang-analyzer-core.*)

void run_segment(const Program& program, const Step& step, const StepOperand* operands,
                 char* const* at, int64_t rows, int64_t cols, int64_t n) {
  const void* in[128];
  void* out[128];
  const int inputs = step.inputs, numbers = step.numbers;
  gather_addresses(operands, inputs + numbers, at, in);
  gather_addresses(operands + inputs + numbers, step.outputs, at, out);
  if (step.walks_rows) return run_rows(program, step, operands, in, out, rows, cols);
  if (!step.by_row) return segment_for(step, out, nullptr)(in, in + inputs, out, n, 1, nullptr);
  for (int64_t r = 0; r < rows; ++r) {
    step.segment(in, in + inputs, out, cols, 1, nullptr);
    advance(operands, inputs + numbers, cols, in);
    advance(operands + inputs + numbers, step.outputs, cols, out);
  }
}

void run_convert(Isa isa, const Step& step, const StepOperand* operands, char* const* at,
                 int64_t rows, int64_t cols, int64_t n) {
  const void* in = at[operands[0].place];
  void* out = at[operands[1].place];
  if (!step.by_row) rows = 1, cols = n;
  if (step.streams && reinterpret_cast<uintptr_t>(out) % 64 == 0) {
    const int64_t bytes = n * static_cast<int64_t>(itemsize(step.to));
    const int64_t streamed = bytes / 64 * 64;
    convert_table(isa).stream(in, out, streamed);
    std::memcpy(static_cast<char*>(out) + streamed, static_cast<const char*>(in) + streamed,
                static_cast<size_t>(bytes - streamed));
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    if (step.convert != nullptr) {
      step.convert(in, out, cols);
    } else if (in != out) {
      convert(step.from, in, step.to, out, cols);
    }
    if (r + 1 < rows) {
      advance(operands, 1, cols, &in);
      advance(operands + 1, 1, cols, &out);
    }
  }
}

// Elements from one row of a dense or row-wise operand to the next.
int64_t row_elements(const StepOperand& operand, Dtype dtype, int64_t cols) {
  return (operand.fixed + operand.per_col * cols) / static_cast<int64_t>(itemsize(dtype));
}

}  // namespace

void run_step(const Program& program, const Step& step, char* const* at, int64_t rows,
              int64_t cols) {
  const StepOperand* operands = &program.operands[step.first];
  const int64_t n = step.row_values ? rows : rows * cols;
  switch (step.kind) {
    case StepKind::kOp:
      return run_op(step, operands, at, rows, cols, n);
    case StepKind::kSegment:
      return run_segment(program, step, operands, at, rows, cols, n);
    case StepKind::kConvert:
      return run_convert(program.isa, step, operands, at, rows, cols, n);
    case StepKind::kGather:
    case StepKind::kScatter: {
      if (step.row_values) cols = 1;
      Block from{at[operands[0].place], step.row_stride, step.col_stride};
      Block to{at[operands[1].place], cols, 1};
      if (step.kind == StepKind::kScatter) {
        from = {from.data, cols, 1};
        to = {to.data, step.row_stride, step.col_stride};
      }
      return copy_block(from, to, rows, cols, step.itemsize);
    }
    case StepKind::kFold: {
      const SettledFold& fold = program.folds[step.fold];
      return fold_contiguous_rows(fold, at[operands[0].place], rows, cols,
                                  row_elements(operands[0], fold.compute, cols), program.one_row(),
                                  at[operands[1].place]);
    }
    case StepKind::kRows: {
      const int b = step.inputs - 1;
      const int64_t strides[3] = {row_elements(operands[0], step.from, cols),
                                  row_elements(operands[b], step.from, cols),
                                  row_elements(operands[step.inputs], step.from, cols)};
      return step.rows->rows({at[operands[0].place], b > 0 ? at[operands[b].place] : nullptr,
                              at[operands[step.inputs].place]},
                             rows, cols, strides);
    }
  }
}

}  // namespace hologram::cpu
