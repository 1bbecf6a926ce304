// SPDX-License-Identifier: MIT
// Runs one step of a lowered kernel on one block.
#include <cstdint>
#include <cstring>

#include "src/cpu/plan_program.h"

namespace hologram::cpu {
namespace {

// in[0..count) of the operands' addresses.
template <class Pointer>
void gather_addresses(const Operand* operands, int count, char* const* at, Pointer* out) {
  for (int k = 0; k < count; ++k) out[k] = at[operands[k].place];
}

template <class Pointer>
void advance(const Operand* operands, int count, int64_t cols, Pointer* pointers) {
  for (int k = 0; k < count; ++k) {
    pointers[k] = const_cast<char*>(static_cast<const char*>(pointers[k])) + operands[k].fixed +
                  operands[k].per_col * cols;
  }
}

void run_op(const Step& step, const Operand* operands, char* const* at, int64_t rows, int64_t cols,
            int64_t n) {
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

void run_segment(const Step& step, const Operand* operands, char* const* at, int64_t rows,
                 int64_t cols, int64_t n) {
  const void* in[128];
  void* out[128];
  const int inputs = step.inputs, numbers = step.numbers;
  gather_addresses(operands, inputs + numbers, at, in);
  gather_addresses(operands + inputs + numbers, step.outputs, at, out);
  if (!step.by_row) return step.segment(in, in + inputs, out, n);
  for (int64_t r = 0; r < rows; ++r) {
    step.segment(in, in + inputs, out, cols);
    advance(operands, inputs + numbers, cols, in);
    advance(operands + inputs + numbers, step.outputs, cols, out);
  }
}

void run_convert(Isa isa, const Step& step, const Operand* operands, char* const* at, int64_t rows,
                 int64_t cols, int64_t n) {
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
int64_t row_elements(const Operand& operand, Dtype dtype, int64_t cols) {
  return (operand.fixed + operand.per_col * cols) / static_cast<int64_t>(itemsize(dtype));
}

}  // namespace

void run_step(const Program& program, const Step& step, char* const* at, int64_t rows,
              int64_t cols) {
  const Operand* operands = &program.operands[step.first];
  const int64_t n = step.row_values ? rows : rows * cols;
  switch (step.kind) {
    case StepKind::kOp:
      return run_op(step, operands, at, rows, cols, n);
    case StepKind::kSegment:
      return run_segment(step, operands, at, rows, cols, n);
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
