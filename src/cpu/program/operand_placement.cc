// SPDX-License-Identifier: MIT
// Where instructions find what they read and leave what they make: in memory, in registers, copied
// or repeated.
#include <algorithm>

#include "hologram/error.h"
#include "src/cpu/program/lower.h"

namespace hologram::cpu {

using circuit::Instr;
using circuit::Rank;
using circuit::Ref;

namespace {

// Repeated rows below this are worth a tile that keeps them.
constexpr int64_t kRepeatedRow = 256;

int32_t size_of(Dtype dtype) { return static_cast<int32_t>(itemsize(dtype)); }

}  // namespace

// ---- values ----

Lowering::Value Lowering::value_of(int index, int k) const {
  const Instr& instr = kernel_.instrs[static_cast<size_t>(index)];
  const Ref& ref = instr.in[k];
  Value value;
  switch (ref.kind) {
    case Ref::kTemp:
      return temps_[ref.index];
    case Ref::kImmediate: {
      // Numbers are in the order of their instructions.
      int number = first_number_[static_cast<size_t>(index)];
      for (int i = 0; i < k; ++i) number += instr.in[i].kind == Ref::kImmediate;
      return {Rank::kOne, instr.compute, kNone, kNone, program_.first_immediate() + number};
    }
    case Ref::kAccess: {
      const Memory& memory = memory_[ref.index];
      value.access = static_cast<int>(ref.index);
      value.dtype = kernel_.accesses[ref.index].dtype;
      if (memory.layout == Layout::kOne) {
        value.rank = Rank::kOne;
        value.place = value.access;
      } else if (memory.is_row) {
        value.rank = Rank::kRow;
      }
      return value;
    }
    case Ref::kNone:
      break;
  }
  fail(ErrorKind::kInternal, "instruction ", index, " of a plan lacks operand ", k);
}

int Lowering::new_register(Dtype dtype, bool row_values) {
  Register reg;
  reg.itemsize = size_of(dtype);
  reg.row_values = row_values;
  registers_.push_back(reg);
  return static_cast<int>(registers_.size()) - 1;
}

StepOperand Lowering::of_register(int reg) const {
  return {static_cast<uint16_t>(kFirstRegister + reg), registers_[reg].itemsize, 0};
}

StepOperand Lowering::of_access(int access) const {
  return {static_cast<uint16_t>(access), memory_[access].itemsize, 0};
}

Step& Lowering::add(std::vector<Step>& list, StepKind kind,
                    std::initializer_list<StepOperand> operands) {
  Step step;
  step.kind = kind;
  step.inputs = static_cast<uint8_t>(operands.size() - 1);
  step.outputs = 1;
  step.first = static_cast<uint32_t>(program_.operands.size());
  program_.operands.insert(program_.operands.end(), operands);
  list.push_back(step);
  return list.back();
}

void Lowering::copy_between(StepKind kind, const StepOperand& from, const StepOperand& to,
                            int64_t row_stride, int64_t col_stride, int32_t itemsize,
                            bool row_values, bool setup) {
  Step& step = add(setup ? program_.setup : program_.steps, kind, {from, to});
  step.row_stride = row_stride;
  step.col_stride = col_stride;
  step.itemsize = itemsize;
  step.row_values = row_values;
}

StepOperand Lowering::repeated_tile(int place, Dtype dtype) {
  for (const auto& [known, reg] : tiles_) {
    if (known == place && registers_[reg].itemsize == size_of(dtype)) return of_register(reg);
  }
  const int reg = new_register(dtype, false);
  registers_[reg].setup = true;
  copy_between(StepKind::kGather, {static_cast<uint16_t>(place), 0, 0}, of_register(reg), 0, 0,
               size_of(dtype), false, true);
  tiles_.emplace_back(place, reg);
  return of_register(reg);
}

StepOperand Lowering::whole(const Value& value) {
  if (value.place != kNone) return repeated_tile(value.place, value.dtype);
  if (value.reg != kNone) {
    if (!registers_[value.reg].row_values || single_cols_) return of_register(value.reg);
    if (const int known = registers_[value.reg].repeated; known != kNone) return of_register(known);
    const int reg = new_register(value.dtype, false);
    registers_[value.reg].repeated = reg;
    copy_between(StepKind::kGather, of_register(value.reg), of_register(reg), 1, 0,
                 size_of(value.dtype), false);
    return of_register(reg);
  }
  Memory& memory = memory_[value.access];
  if (memory.full != kNone) return of_register(memory.full);
  if (memory.layout == Layout::kDense) return of_access(value.access);
  const int reg = new_register(value.dtype, false);
  const bool setup = memory.repeated && !kernel_.accesses[value.access].stored;
  registers_[reg].setup = setup;
  copy_between(StepKind::kGather, of_access(value.access), of_register(reg), memory.row_stride,
               memory.col_stride, memory.itemsize, false, setup);
  memory_[value.access].full = reg;
  return of_register(reg);
}

StepOperand Lowering::row_vector(const Value& value) {
  if (value.place != kNone) return repeated_tile(value.place, value.dtype);
  if (value.reg != kNone) return of_register(value.reg);
  Memory& memory = memory_[value.access];
  if (memory.row != kNone) return of_register(memory.row);
  if (memory.row_dense) return of_access(value.access);
  const int reg = new_register(value.dtype, true);
  copy_between(StepKind::kGather, of_access(value.access), of_register(reg), memory.row_stride, 0,
               memory.itemsize, true);
  memory_[value.access].row = reg;
  return of_register(reg);
}

bool Lowering::is_single(const Value& value) const {
  if (value.place != kNone) return true;
  if (single_cols_ || !long_rows_) return false;
  if (value.reg != kNone) return registers_[value.reg].row_values;
  return value.rank == Rank::kRow && memory_[value.access].full == kNone;
}

bool Lowering::goes_by_row(const Value& value) const {
  if (value.place != kNone || program_.domain.grid.block_rows == 1) return false;
  if (is_single(value)) return true;
  if (value.reg != kNone) return false;
  const Memory& memory = memory_[value.access];
  const bool worth_tile = memory.repeated && program_.domain.grid.block_cols < kRepeatedRow;
  return long_rows_ && memory.layout == Layout::kRowVector && memory.full == kNone && !worth_tile;
}

bool Lowering::results_by_row(const Ref& out, Dtype dtype) const {
  return out.kind == Ref::kAccess && kernel_.accesses[out.index].dtype == dtype &&
         memory_[out.index].layout == Layout::kRowVector && long_rows_ &&
         program_.domain.grid.block_rows > 1;
}

Lowering::Settled Lowering::direct(const Value& value) {
  const bool rows = program_.domain.grid.block_rows > 1;
  const int32_t size = size_of(value.dtype);
  if (value.place != kNone) return {{static_cast<uint16_t>(value.place), 0, 0}, false, true};
  if (value.reg != kNone) {
    if (!is_single(value)) return {whole(value)};
    return {{of_register(value.reg).place, 0, size}, rows, true};
  }
  const Memory& memory = memory_[value.access];
  const StepOperand row_by_row{static_cast<uint16_t>(value.access), 0, memory.row_stride * size};
  if (is_single(value)) {
    if (memory.row == kNone) return {row_by_row, rows, true};
    return {{of_register(memory.row).place, 0, size}, rows, true};
  }
  const bool worth_tile = memory.repeated && program_.domain.grid.block_cols < kRepeatedRow;
  if (long_rows_ && memory.layout == Layout::kRowVector && memory.full == kNone && !worth_tile) {
    return {row_by_row, rows, false};
  }
  return {whole(value)};
}

Lowering::Value Lowering::cast(const Value& value, Dtype to) {
  if (value.dtype == to) return value;
  if (is_complex(to)) {
    fail(ErrorKind::kInternal, "a plan asks for a conversion to ", dtype_name(to));
  }
  Value result{value.rank, to, kNone, kNone, kNone};
  Settled in;
  StepOperand out;
  std::vector<Step>* list = &program_.steps;
  if (value.rank == Rank::kOne) {
    result.place = program_.first_one() + program_.ones++;
    in = direct(value);
    out = {static_cast<uint16_t>(result.place), 0, 0};
    list = &program_.prologue;
  } else {
    result.reg = new_register(to, value.rank == Rank::kRow);
    in = value.rank == Rank::kRow ? Settled{row_vector(value)} : direct(value);
    out = of_register(result.reg);
  }
  Step& step = add(*list, StepKind::kConvert, {in.operand, out});
  step.by_row = in.by_row;
  step.row_values = value.rank == Rank::kRow;
  step.from = value.dtype, step.to = to;
  step.convert =
      convert_table(program_.isa).kernels[static_cast<int>(value.dtype)][static_cast<int>(to)];
  return result;
}

// ---- results ----

Dtype Lowering::dtype_of_out(const Ref& out, Dtype otherwise) const {
  if (out.kind == Ref::kAccess) return kernel_.accesses[out.index].dtype;
  return out.kind == Ref::kTemp ? kernel_.temps[out.index].dtype : otherwise;
}

Rank Lowering::rank_of_out(const Ref& out) const {
  if (out.kind != Ref::kAccess) return Rank::kFull;
  const Memory& memory = memory_[out.index];
  if (memory.layout == Layout::kOne) return Rank::kOne;
  return memory.is_row ? Rank::kRow : Rank::kFull;
}

Lowering::Settled Lowering::result_operand(const Ref& out, Rank rank, Dtype dtype) {
  if (out.kind == Ref::kAccess && kernel_.accesses[out.index].dtype == dtype) {
    const int access = static_cast<int>(out.index);
    const Memory& memory = memory_[access];
    const Rank own = rank_of_out(out);
    if (rank == Rank::kRow && memory.row_dense &&
        (own == Rank::kRow || (own == Rank::kOne && program_.one_row()))) {
      return {of_access(access)};
    }
    if (rank == Rank::kFull && memory.layout == Layout::kDense) return {of_access(access)};
    if (rank == Rank::kFull && memory.layout == Layout::kRowVector && long_rows_) {
      return {{static_cast<uint16_t>(access), 0, memory.row_stride * memory.itemsize},
              program_.domain.grid.block_rows > 1,
              false};
    }
  }
  return {of_register(new_register(dtype, rank == Rank::kRow))};
}

// What was copied out of this slot is out of date.
void Lowering::forget_copies(int access) {
  for (size_t k = 0; k < memory_.size(); ++k) {
    if (kernel_.accesses[k].slot != kernel_.accesses[access].slot) continue;
    memory_[k].full = memory_[k].row = kNone;
  }
}

void Lowering::store(const Value& value, int access) {
  const Dtype dtype = kernel_.accesses[access].dtype;
  const Value same = cast(value, dtype);
  const Memory memory = memory_[access];
  const Rank own = rank_of_out({Ref::kAccess, static_cast<uint32_t>(access)});
  forget_copies(access);
  if (own == Rank::kOne) {
    // A value of the only row is the one element there is.
    if (same.place == kNone && !program_.one_row()) {
      fail(ErrorKind::kInternal, "a plan stores ", program_.domain.numel,
           " elements where one has room");
    }
    Step& step = add(same.place != kNone ? program_.prologue : program_.steps, StepKind::kGather,
                     {same.place != kNone ? StepOperand{static_cast<uint16_t>(same.place), 0, 0}
                                          : row_vector(same),
                      of_access(access)});
    step.row_values = true;
    step.itemsize = memory.itemsize;
    return;
  }
  if (own == Rank::kRow) {
    const StepOperand from = row_vector(same);
    copy_between(StepKind::kScatter, from, of_access(access), memory.row_stride, 0, memory.itemsize,
                 true);
    return;
  }
  if (memory.layout == Layout::kDense && same.rank != Rank::kFull && !single_cols_) {
    // Repeated straight into memory.
    const bool one = same.place != kNone;
    const StepOperand from =
        one ? StepOperand{static_cast<uint16_t>(same.place), 0, 0} : row_vector(same);
    copy_between(StepKind::kGather, from, of_access(access), one ? 0 : 1, 0, memory.itemsize,
                 false);
    return;
  }
  copy_between(StepKind::kScatter, whole(same), of_access(access), memory.row_stride,
               memory.col_stride, memory.itemsize, false);
}

void Lowering::settle_result(const Ref& out, Rank rank, Dtype dtype, const StepOperand& operand) {
  Value value{rank, dtype, kNone, kNone, kNone};
  if (operand.place >= kFirstRegister) {
    value.reg = operand.place - kFirstRegister;
  } else {
    value.access = operand.place;
  }
  if (out.kind == Ref::kTemp) {
    temps_[out.index] = cast(value, dtype_of_out(out, dtype));
    return;
  }
  const int access = static_cast<int>(out.index);
  if (value.access == access) {
    forget_copies(access);
    return;
  }
  store(value, access);
  if (rank_of_out(out) == rank && dtype == kernel_.accesses[access].dtype) {
    (rank == Rank::kRow ? memory_[access].row : memory_[access].full) = value.reg;
  }
}

}  // namespace hologram::cpu
