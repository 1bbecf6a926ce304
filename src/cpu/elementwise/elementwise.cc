// SPDX-License-Identifier: MIT
// The tile machine: runs a row of the op table over operands of any dtype and stride, a tile at a
// time.
#include "hologram/elementwise.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "hologram/error.h"
#include "hologram/memory.h"
#include "hologram/parallel.h"
#include "src/base/dtype_check.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/device/kernel_table.h"
#include "src/cpu/device/scratch.h"
#include "src/cpu/elementwise/iteration.h"

namespace hologram {
namespace {

using cpu::Block;
using cpu::is_dense;
using cpu::Iteration;
using cpu::kMaxOperands;
using cpu::kTile;
using cpu::Scratch;

// One call, settled: what each operand needs before and after the kernel.
struct Program {
  OpId op;
  Dtype compute;
  Dtype result;  // what the kernel writes
  int arity;
  int64_t tile = kTile;                        // elements of a block
  std::array<Dtype, kMaxOperands> dtypes{};    // as stored, the result first
  std::array<bool, kMaxOperands> scalar{};     // one element for the whole call
  alignas(16) char scalars[kMaxOperands][16];  // those elements, in dtype `compute`

  // The kernel for inputs of which those in `mask` (bit k for input k) are single elements, or
  // null.
  ElementwiseKernel kernel(unsigned mask) const {
    const auto& forms =
        cpu::kernel_table(current_isa()).kernels[static_cast<int>(op)][static_cast<int>(compute)];
    const cpu::FormChoice choice = cpu::choose_form(forms, op_info(op), mask);
    return choice.single == mask ? forms[static_cast<int>(choice.form)] : nullptr;
  }
};

// Runs blocks of a call on one thread, with its scratch.
class Runner {
 public:
  Runner(const Program& program, const Iteration& iteration)
      : program_(program), iteration_(iteration) {
    for (int k = 0; k < program.arity; ++k) {
      if (program.scalar[k + 1]) scalar_mask_ |= 1u << k;
    }
    kernel_ = program.kernel(scalar_mask_);
    constants_as_tiles_ = kernel_ == nullptr;
    if (constants_as_tiles_) kernel_ = program.kernel(0);
  }

  void run(int64_t block_index) {
    std::array<Block, kMaxOperands> blocks;
    const auto extent = iteration_.block(block_index, blocks);
    if (run_rows(blocks, extent.rows, extent.cols)) return;
    run_tile(blocks, extent.rows, extent.cols);
  }

 private:
  static constexpr int64_t kShortRow = 32;

  // Long rows in which every operand is contiguous or one element need no gathering, even where
  // rows repeat or lie apart.
  bool run_rows(const std::array<Block, kMaxOperands>& blocks, int64_t rows, int64_t cols) const {
    if (cols < kShortRow || blocks[0].col_stride != 1 || program_.dtypes[0] != program_.result) {
      return false;
    }
    unsigned mask = 0;
    bool dense = is_dense(blocks[0], rows, cols);
    for (int k = 0; k < program_.arity; ++k) {
      const Block& block = blocks[k + 1];
      const bool scalar = program_.scalar[k + 1];
      if (scalar || block.col_stride == 0) mask |= 1u << k;
      if (scalar) continue;
      if (program_.dtypes[k + 1] != program_.compute) return false;
      if (block.col_stride != 0 && block.col_stride != 1) return false;
      dense = dense && is_dense(block, rows, cols);
    }
    const ElementwiseKernel kernel =
        mask == scalar_mask_ && !constants_as_tiles_ ? kernel_ : program_.kernel(mask);
    if (kernel == nullptr) return false;
    const int64_t in_size = static_cast<int64_t>(itemsize(program_.compute));
    const int64_t out_size = static_cast<int64_t>(itemsize(program_.result));
    if (dense) {
      cols *= rows;
      rows = 1;
    }
    for (int64_t r = 0; r < rows; ++r) {
      const void* in[4];
      for (int k = 0; k < program_.arity; ++k) {
        in[k] = program_.scalar[k + 1]
                    ? program_.scalars[k + 1]
                    : blocks[k + 1].data + r * blocks[k + 1].row_stride * in_size;
      }
      kernel(in, blocks[0].data + r * blocks[0].row_stride * out_size, cols);
    }
    return true;
  }

  void run_tile(const std::array<Block, kMaxOperands>& blocks, int64_t rows, int64_t cols) {
    const int64_t n = rows * cols;
    const void* in[4];
    for (int k = 0; k < program_.arity; ++k) {
      in[k] = program_.scalar[k + 1] ? constant(k + 1) : load(k + 1, blocks[k + 1], rows, cols);
    }
    const Block& target = blocks[0];
    const Dtype out_dtype = program_.dtypes[0];
    const bool dense = is_dense(target, rows, cols);
    const bool same = out_dtype == program_.result;
    char* computed = dense && same ? target.data : scratch_.slot(0);
    kernel_(in, computed, n);
    if (dense && same) return;
    if (dense) {
      convert(program_.result, computed, out_dtype, target.data, n);
      return;
    }
    if (!same) {
      char* converted = scratch_.slot(1);
      convert(program_.result, computed, out_dtype, converted, n);
      computed = converted;
    }
    cpu::copy_block({computed, cols, 1}, target, rows, cols,
                    static_cast<int64_t>(itemsize(out_dtype)));
  }

  // The operand's elements of this block, contiguous and in the compute dtype.
  const void* load(int operand, const Block& block, int64_t rows, int64_t cols) {
    const Dtype dtype = program_.dtypes[operand];
    const char* data = block.data;
    if (!is_dense(block, rows, cols)) {
      char* gathered = scratch_.slot(2 * operand);
      cpu::copy_block(block, {gathered, cols, 1}, rows, cols,
                      static_cast<int64_t>(itemsize(dtype)));
      data = gathered;
    }
    if (dtype == program_.compute) return data;
    char* converted = scratch_.slot(2 * operand + 1);
    convert(dtype, data, program_.compute, converted, rows * cols);
    return converted;
  }

  const void* constant(int operand) {
    if (!constants_as_tiles_) return program_.scalars[operand];
    char* tile = scratch_.slot(2 * operand);
    if (!filled_[operand]) {
      cpu::copy_block({const_cast<char*>(program_.scalars[operand]), 0, 0}, {tile, kTile, 1}, 1,
                      program_.tile, static_cast<int64_t>(itemsize(program_.compute)));
      filled_[operand] = true;
    }
    return tile;
  }

  const Program& program_;
  const Iteration& iteration_;
  ElementwiseKernel kernel_;
  unsigned scalar_mask_ = 0;
  bool constants_as_tiles_ = false;
  std::array<bool, kMaxOperands> filled_{};
  Scratch scratch_;
};

// Some rows have kernels of complex numbers.
bool has_row(const OpInfo& row, Dtype compute) {
  if (!is_complex(compute)) return row.supports(compute);
  return elementwise_kernel(row.id, compute) != nullptr;
}

// Contiguous operands in the kernel's own types: no tiles. Stores are plain ones, for streaming
// past the caches would take a second pass over each tile and costs more than it saves.
void run_flat(const Program& program, const Iteration& iteration, ElementwiseKernel kernel,
              int max_threads, bool heavy) {
  const int64_t in_size = static_cast<int64_t>(itemsize(program.compute));
  const int64_t out_size = static_cast<int64_t>(itemsize(program.result));
  char* out = iteration.data(0);
  cpu::for_chunks(iteration.numel(), cpu::grain(heavy), max_threads,
                  [&](int64_t begin, int64_t end) {
                    const void* in[4];
                    for (int k = 0; k < program.arity; ++k) {
                      in[k] = program.scalar[k + 1] ? program.scalars[k + 1]
                                                    : iteration.data(k + 1) + begin * in_size;
                    }
                    kernel(in, out + begin * out_size, end - begin);
                  });
}

}  // namespace

void elementwise(OpId op, Dtype compute, const View* inputs, int arity, const View& out,
                 int max_threads) {
  const OpInfo& row = op_info(op);
  if (arity != row.arity) {
    fail(ErrorKind::kInvalidArgument, row.name, " takes ", int{row.arity}, " operands, got ",
         arity);
  }
  if (!has_row(row, compute)) {
    fail(ErrorKind::kTypeMismatch, row.name, " does not compute in ", dtype_name(compute));
  }
  Program program;
  program.op = op;
  program.compute = compute;
  program.result = row.result(compute);
  program.arity = arity;
  std::array<View, kMaxOperands> operands;
  operands[0] = out;
  bool native = out.dtype == program.result;
  for (int k = 0; k <= arity; ++k) {
    if (k > 0) operands[k] = inputs[k - 1];
    program.dtypes[k] = operands[k].dtype;
    check_has_kernels("elementwise", operands[k].dtype);
    if (is_complex(operands[k].dtype) && !is_complex(compute)) {
      fail(ErrorKind::kTypeMismatch, row.name, " does not take ", dtype_name(operands[k].dtype));
    }
  }
  const std::string name(row.name);
  Iteration iteration(name.c_str(), operands.data(), arity + 1);
  if (iteration.numel() == 0) return;
  unsigned scalar_mask = 0;
  for (int k = 1; k <= arity; ++k) {
    // With one element in all, an operand is as good a vector as it is a scalar.
    program.scalar[k] = iteration.is_scalar(k) && (iteration.numel() > 1 || arity > 1);
    if (program.scalar[k]) {
      convert(program.dtypes[k], iteration.data(k), compute, program.scalars[k], 1);
      scalar_mask |= 1u << (k - 1);
    } else {
      native = native && program.dtypes[k] == compute;
    }
  }
  if (max_threads <= 0) max_threads = num_threads();
  if (native && iteration.is_flat()) {
    if (const ElementwiseKernel kernel = program.kernel(scalar_mask)) {
      run_flat(program, iteration, kernel, max_threads, row.is_heavy());
      return;
    }
  }
  // A slot of the scratch holds fewer of the widest numbers.
  if (compute == Dtype::kComplex128) program.tile = kTile / 2;
  iteration.cut(program.tile);
  const int64_t blocks_per_chunk =
      std::max<int64_t>(1, cpu::grain(row.is_heavy()) / iteration.block_elements());
  cpu::for_chunks(iteration.block_count(), blocks_per_chunk, max_threads,
                  [&](int64_t begin, int64_t end) {
                    Runner runner(program, iteration);
                    for (int64_t b = begin; b < end; ++b) runner.run(b);
                  });
}

void cpu::run(const calls::Elementwise<>& call, CallThreads threads) {
  const std::vector<View> inputs(call.inputs.begin(), call.inputs.end());
  elementwise(static_cast<OpId>(call.op), static_cast<Dtype>(call.dtype), inputs.data(),
              static_cast<int>(inputs.size()), call.out, threads(call.out.numel()));
}

}  // namespace hologram
