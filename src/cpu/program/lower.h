// SPDX-License-Identifier: MIT
// Lowering: turns a kernel's instructions into the steps of a program. Which operands are used
// where they lie, which are gathered or repeated, which form of each kernel runs. Part of
// make_program().
#pragma once

#include <array>
#include <span>
#include <vector>

#include "src/cpu/program/program.h"

namespace hologram::cpu {

// Contiguous memory for a value while a block is computed; becomes a class.
struct Register {
  int32_t itemsize = 0;
  bool row_values = false;
  bool setup = false;  // written once for each thread and kept
  int last_read = -1;  // by this step
  int class_index = -1;
  int repeated = -1;        // the register that repeats this one's values along the rows
  bool given_away = false;  // its class went to the output of the step that read it last
};

// What an op of many instructions costs in simple ones.
inline constexpr double kHeavy = 6;

inline bool is_elementwise(const circuit::Instr& instr) {
  return instr.is_op() || instr.code == circuit::kCodeConvert;
}

// Whether the kernel copies elements as they are, and nothing else.
inline bool is_copy(const circuit::Kernel& kernel) {
  const circuit::Instr& only = kernel.instrs[0];
  return kernel.instrs.size() == 1 && only.code == circuit::kCodeConvert &&
         only.compute == only.result;
}

// How many folds and row functions come before each instruction: loops of one level may be one.
std::vector<int> fold_levels(const circuit::Kernel& kernel);

// Registers stand for places from here on until classes are assigned.
inline constexpr int kFirstRegister = 1 << 14;

// Gives registers classes: a class is free again after the last read, and an op may write where
// an input of the same size was read for the last time. Operands then name places. Returns the
// bytes of all classes for one element.
int64_t assign_classes(Program& program, std::vector<Register>& registers);

// Makes the steps of a program that has its domain.
class Lowering {
 public:
  Lowering(const circuit::Kernel& kernel, bool jit, Program& program);
  void run();
  std::vector<Register>& registers() { return registers_; }

 private:
  using Rank = circuit::Rank;
  using Ref = circuit::Ref;
  static constexpr int kNone = -1;

  // Something an instruction reads: an access, a register, or a place that holds one element.
  struct Source {
    Rank rank = Rank::kFull;
    Dtype dtype = Dtype::kFloat32;
    int access = kNone, reg = kNone, place = kNone;
  };
  struct Memory {
    Layout layout = Layout::kDense;
    bool repeated = false;
    bool is_row = false;     // one element for each row
    bool row_dense = false;  // as one element for each row
    // Registers that hold the block's elements or row values now.
    int full = kNone, row = kNone;
  };
  // An operand settled: by_row where it needs one call a row, scalar where it is one element there.
  struct Settled {
    StepOperand operand;
    bool by_row = false, scalar = false;
  };

  Source source_of(int index, int k) const;
  Source cast(const Source& value, Dtype to);
  int new_register(Dtype dtype, bool row_values);
  StepOperand of_register(int reg) const;
  StepOperand of_access(int access) const;
  StepOperand of_rows(int access) const;  // one row for each call
  static StepOperand of_place(int place) { return {static_cast<uint16_t>(place), 0, 0}; }

  // The value as contiguous elements of the block, or one for each row; copied where it must be.
  StepOperand whole(const Source& value);
  StepOperand row_vector(const Source& value);
  StepOperand repeated_tile(int place, Dtype dtype);
  // Whether direct() gives one element: for the block, or for each of its rows.
  bool is_single(const Source& value) const;
  // Without a copy where that serves.
  Settled direct(const Source& value);
  // Whether direct() then needs one call a row.
  bool goes_by_row(const Source& value) const;
  bool stays_in_rows(const Memory& memory) const;
  // Elements of the block, without a copy where that serves.
  StepOperand elements(const Source& value);
  // Whether results of this rank go row by row straight to memory.
  bool results_by_row(const circuit::Ref& out) const;

  // The step with these operands, of which the last are its outputs.
  Step& add(std::vector<Step>& list, Step step, std::span<const StepOperand> operands,
            size_t outputs = 1);
  Step& add(std::vector<Step>& list, StepKind kind, std::initializer_list<StepOperand> operands);
  Step& copy_between(StepKind kind, const StepOperand& from, const StepOperand& to,
                     int64_t row_stride, int64_t col_stride, int32_t itemsize, bool row_values,
                     bool setup = false);

  // The same between an access and contiguous memory: elements, or values of rows.
  void copy_access(StepKind kind, int access, const StepOperand& other, bool row_values,
                   bool setup = false);

  // Where an instruction's result goes: straight to memory, or to a register and from there on by
  // settle_result().
  Settled result_operand(const circuit::Ref& out, Rank rank, Dtype dtype);
  void settle_result(const circuit::Ref& out, Rank rank, Dtype dtype, const StepOperand& operand);
  void store(const Source& value, int access);
  void forget_copies(int access);

  void find_makers();
  std::vector<int> heavy_depths() const;
  std::vector<int> late_levels() const;
  std::vector<int> order_for_loops() const;
  // One generated loop for as many instructions from order_[at] on as it takes; how many.
  size_t lower_loop(size_t at);
  size_t shortened(size_t begin, size_t end) const;
  bool emit_loop(size_t begin, size_t end);
  bool fits_loop(int index) const;
  // Whether short rows that lie apart are best read where they are, by loops that walk them.
  bool walks_short_rows() const;
  // Whether the fold can end a loop.
  bool fits_fold(int index) const;
  SettledFold fold_of(const circuit::Instr& instr, Dtype in) const;
  // Whether a step so far reads the access.
  bool is_read_before(int access) const;
  int fetched_ahead(const std::vector<Source>& inputs) const;
  // Whether a result is worth being written past the caches.
  bool is_streamed(const Ref& out) const;

  void lower_instr(const circuit::Instr& instr, int index);
  void lower_op(const circuit::Instr& instr, int index);
  void lower_one(const circuit::Instr& instr, const Source* inputs);
  // Whether a step writes to the memory itself, not to a block that is scattered afterwards.
  bool takes_results(const Memory& memory) const;
  bool gathers_into(const Source& value, const circuit::Ref& out) const;
  bool scatters_into(const Source& value, const circuit::Ref& out) const;
  void lower_convert(const circuit::Instr& instr, int index);
  void lower_fold(const circuit::Instr& instr, int index);
  void lower_rows(const circuit::Instr& instr, int index);
  const circuit::Instr& instr(int index) const {
    return kernel_.instrs[static_cast<size_t>(index)];
  }
  // Of an access or a temp.
  Dtype dtype_of(const circuit::Ref& ref) const {
    return ref.kind == Ref::kAccess ? kernel_.accesses[ref.index].dtype
                                    : kernel_.temps[ref.index].dtype;
  }
  Rank rank_of_out(const circuit::Ref& out) const;

  const circuit::Kernel& kernel_;
  Program& program_;
  bool jit_;
  bool long_rows_;           // of a block: worth a call each
  bool walks_rows_ = false;  // they are not, but loops take all that is done
  bool single_cols_;         // one column: a value for each row is a value for each element
  std::vector<Memory> memory_;
  std::vector<Source> temps_;
  std::vector<Register> registers_;
  std::vector<std::pair<int, int>> tiles_;  // place, register that repeats it
  std::vector<int> first_number_;           // of each instruction
  // Where loops are generated, of each one: the instructions that wrote its operands last, or
  // kNone; the rank of what it reads, which may be lower than the plan says; heavy_depths().
  std::vector<std::array<int, circuit::kMaxArity>> makers_;
  std::vector<Rank> ranks_;
  std::vector<int> depths_;
  std::vector<int> order_;
  std::vector<int> last_read_;  // position in order_, of each temp
};

}  // namespace hologram::cpu
