// SPDX-License-Identifier: MIT
// Turns a kernel's instructions into steps over blocks, and settles where they find what they read
// and leave what they make: in memory, in registers, copied or repeated.
#include "src/cpu/program/lower.h"

#include <algorithm>
#include <bit>

#include "hologram/error.h"
#include "hologram/op.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/device/kernel_table.h"

namespace hologram::cpu {

using circuit::Instr;
using circuit::Kernel;
using circuit::Rank;
using circuit::Ref;

namespace {

int32_t size_of(Dtype dtype) { return static_cast<int32_t>(itemsize(dtype)); }

}  // namespace

// A number's place is where its 8 bytes are: narrower types are their first bytes.
static_assert(std::endian::native == std::endian::little);

Lowering::Lowering(const Kernel& kernel, bool jit, Program& program)
    : kernel_(kernel), program_(program), jit_(jit) {
  const BlockDomain& domain = program_.domain;
  const BlockGrid& grid = domain.grid;
  program_.accesses = static_cast<int>(kernel.accesses.size());
  long_rows_ = grid.block_cols >= kShortRow || grid.block_rows == 1;
  single_cols_ = grid.block_cols == 1;
  for (int k = 0; k < program_.accesses; ++k) {
    const Dtype dtype = kernel.accesses[k].dtype;
    if (is_complex(dtype)) {
      fail(ErrorKind::kInternal, "a fused kernel was planned over ", dtype_name(dtype),
           ", which kernels do not compute in");
    }
    Memory memory;
    memory.layout = domain.layout(k);
    memory.repeated = domain.is_repeated(k);
    memory.is_row = memory.layout == Layout::kRowScalar ||
                    (domain.keeps_columns && kernel.accesses[k].rank == Rank::kRow);
    memory.row_dense = grid.block_rows == 1 || domain.row_stride(k) == 1;
    memory_.push_back(memory);
    program_.itemsizes.push_back(size_of(dtype));
    if (domain.moves(k)) program_.moving.push_back(static_cast<uint16_t>(k));
  }
  program_.settle_walk();
  for (const Instr& instr : kernel.instrs) {
    first_number_.push_back(program_.immediates);
    for (int k = 0; k < instr.arity; ++k) {
      program_.immediates += instr.in[k].kind == Ref::kImmediate;
    }
  }
  temps_.resize(kernel.temps.size());
}

void Lowering::lower_one(const Instr& instr, const Source* inputs) {
  Source result{Rank::kOne, instr.result, kNone, kNone, program_.first_one() + program_.ones++};
  StepOperand operands[circuit::kMaxArity + 1];
  for (int k = 0; k < instr.arity; ++k) operands[k] = of_place(inputs[k].place);
  operands[instr.arity] = of_place(result.place);
  Step step;
  step.kind = StepKind::kOp;
  step.op = elementwise_kernel(instr.op(), instr.compute, Form::kVectors);
  add(program_.prologue, step, {operands, instr.arity + size_t{1}});
  if (instr.out.kind == Ref::kTemp) {
    temps_[instr.out.index] = result;
  } else {
    store(result, static_cast<int>(instr.out.index));
  }
}

void Lowering::lower_op(const Instr& instr, int index) {
  const OpInfo& row = op_info(instr.op());
  if (instr.arity != row.arity || !row.supports(instr.compute)) {
    fail(ErrorKind::kInternal, "a plan asks for ", row.name, " of ", int{instr.arity},
         " operands in ", dtype_name(instr.compute));
  }
  const int arity = instr.arity;
  Source inputs[circuit::kMaxArity];
  Rank rank = Rank::kOne;
  for (int k = 0; k < arity; ++k) {
    inputs[k] = source_of(index, k);
    rank = std::min(rank, inputs[k].rank);
  }
  if (rank == Rank::kOne) return lower_one(instr, inputs);
  const bool by_rows = rank == Rank::kRow;
  program_.cost += by_rows ? 0 : row.is_heavy() ? kHeavy : 1;
  unsigned single = 0;
  Settled settled[circuit::kMaxArity + 1];
  for (int k = 0; k < arity; ++k) {
    settled[k] =
        by_rows && inputs[k].place == kNone ? Settled{row_vector(inputs[k])} : direct(inputs[k]);
    single |= settled[k].scalar ? 1u << k : 0;
  }
  const auto& forms = kernel_table(current_isa())
                          .kernels[static_cast<int>(instr.op())][static_cast<int>(instr.compute)];
  const FormChoice choice = choose_form(forms, row, single);
  for (int k = 0; k < arity; ++k) {
    if ((single & ~choice.single) >> k & 1) {
      settled[k] = {by_rows ? row_vector(inputs[k]) : whole(inputs[k])};
    }
  }
  settled[arity] = result_operand(instr.out, rank, instr.result);
  Step step;
  step.kind = StepKind::kOp;
  step.op = forms[static_cast<int>(choice.form)];
  step.row_values = by_rows;
  StepOperand operands[circuit::kMaxArity + 1];
  for (int k = 0; k <= arity; ++k) {
    operands[k] = settled[k].operand;
    step.by_row |= settled[k].by_row && !by_rows;
  }
  add(program_.steps, step, {operands, arity + size_t{1}});
  settle_result(instr.out, rank, instr.result, operands[arity]);
}

bool Lowering::takes_results(const Memory& memory) const {
  return memory.layout == Layout::kDense || (memory.layout == Layout::kRowVector && long_rows_);
}

// Whether a copy may take the value's scattered elements straight to where they end up.
bool Lowering::gathers_into(const Source& value, const Ref& out) const {
  if (value.access == kNone || out.kind != Ref::kAccess) return false;
  const Memory& from = memory_[value.access];
  const bool by_row = long_rows_ && from.layout == Layout::kRowVector;
  return from.full == kNone && from.layout != Layout::kDense && !by_row &&
         memory_[out.index].layout == Layout::kDense &&
         kernel_.accesses[out.index].slot != kernel_.accesses[value.access].slot;
}

// Whether a copy may take the value's elements, which lie side by side, straight to memory in which
// they lie apart.
bool Lowering::scatters_into(const Source& value, const Ref& out) const {
  if (out.kind != Ref::kAccess || takes_results(memory_[out.index])) return false;
  return value.access == kNone ||
         kernel_.accesses[out.index].slot != kernel_.accesses[value.access].slot;
}

void Lowering::lower_convert(const Instr& instr, int index) {
  const Source value = source_of(index, 0);
  const Dtype to = instr.result;
  // Registers and numbers are never written again, so a temp may be another name for one.
  if (instr.out.kind == Ref::kTemp && (value.access == kNone || value.dtype != to)) {
    temps_[instr.out.index] = cast(value, to);
    return;
  }
  if (value.rank == Rank::kFull && value.dtype == to && gathers_into(value, instr.out)) {
    copy_access(StepKind::kGather, value.access, of_access(static_cast<int>(instr.out.index)),
                false);
    forget_copies(static_cast<int>(instr.out.index));
    return;
  }
  if (value.rank == Rank::kFull && value.dtype == to && scatters_into(value, instr.out)) {
    return store(value, static_cast<int>(instr.out.index));
  }
  if (value.rank == Rank::kFull) {
    const Settled in = direct(value);
    const Settled out = result_operand(instr.out, Rank::kFull, to);
    Step& step = add(program_.steps, StepKind::kConvert, {in.operand, out.operand});
    step.by_row = in.by_row || out.by_row;
    step.from = value.dtype, step.to = to;
    step.convert =
        convert_table(program_.isa).kernels[static_cast<int>(value.dtype)][static_cast<int>(to)];
    if (value.dtype == to) step.convert = nullptr;
    // Large copies would only push out of the caches what is there.
    step.streams = value.dtype == to && kernel_.instrs.size() == 1 && !step.by_row &&
                   out.operand.place < kFirstRegister &&
                   program_.domain.numel * static_cast<int64_t>(itemsize(to)) >= kStreamBytes;
    settle_result(instr.out, Rank::kFull, to, out.operand);
    return;
  }
  if (instr.out.kind == Ref::kAccess) {
    store(value, static_cast<int>(instr.out.index));
    return;
  }
  // A temp keeps what the memory holds now.
  Source kept{value.rank, to, kNone, kNone, kNone};
  if (value.rank == Rank::kOne) {
    kept.place = program_.first_one() + program_.ones++;
    Step& step =
        add(program_.prologue, StepKind::kGather, {of_place(value.place), of_place(kept.place)});
    step.itemsize = size_of(to);
  } else {
    kept.reg = new_register(to, true);
    copy_access(StepKind::kGather, value.access, of_register(kept.reg), true);
  }
  temps_[instr.out.index] = kept;
}

SettledFold Lowering::fold_of(const Instr& instr, Dtype in) const {
  const auto op = static_cast<Reduction>(instr.attr);
  return settle_fold(reduction_name(op).data(), op, instr.parameter, instr.parameter, in,
                     instr.result);
}

void Lowering::lower_fold(const Instr& instr, int index) {
  const Source value = source_of(index, 0);
  const SettledFold fold = fold_of(instr, value.dtype);
  const Source ready = cast(value, fold.compute);
  const StepOperand in = elements(ready);
  const Settled out = result_operand(instr.out, Rank::kRow, fold.result);
  program_.folds.push_back(fold);
  program_.cost += fold.fold == Fold::kLogSumExp ? kHeavy : 1;
  Step& step = add(program_.steps, StepKind::kFold, {in, out.operand});
  step.fold = static_cast<int32_t>(program_.folds.size()) - 1;
  settle_result(instr.out, Rank::kRow, fold.result, out.operand);
}

void Lowering::lower_rows(const Instr& instr, int index) {
  const Dtype compute =
      compute_dtype(instr.compute) == Dtype::kFloat64 ? Dtype::kFloat64 : Dtype::kFloat32;
  std::vector<StepOperand> operands;
  operands.reserve(instr.arity + 1u);
  for (int k = 0; k < instr.arity; ++k) {
    operands.push_back(elements(cast(source_of(index, k), compute)));
  }
  operands.push_back(result_operand(instr.out, Rank::kFull, compute).operand);
  Step step;
  step.kind = StepKind::kRows;
  step.from = compute;
  step.rows = &softmax_kernel(program_.isa, static_cast<SoftmaxOp>(instr.attr), compute);
  add(program_.steps, step, operands);
  program_.cost += 2 * kHeavy;
  settle_result(instr.out, Rank::kFull, compute, operands.back());
}

void Lowering::run() {
  if (jit_) {
    find_makers();
    walks_rows_ = !long_rows_ && walks_short_rows();
    long_rows_ |= walks_rows_;
    depths_ = heavy_depths();
    order_ = order_for_loops();
    last_read_.assign(kernel_.temps.size(), kNone);
    for (size_t i = 0; i < order_.size(); ++i) {
      const Instr& instr = this->instr(order_[i]);
      for (int k = 0; k < instr.arity; ++k) {
        if (instr.in[k].kind == Ref::kTemp) last_read_[instr.in[k].index] = static_cast<int>(i);
      }
    }
  }
  for (size_t i = 0; i < kernel_.instrs.size();) {
    const int index = jit_ ? order_[i] : static_cast<int>(i);
    const size_t taken = jit_ ? lower_loop(i) : 0;
    if (taken == 0) lower_instr(instr(index), index);
    i += std::max<size_t>(taken, 1);
  }
  for (const Step& step : program_.steps) {
    const bool copies = step.kind == StepKind::kConvert || step.kind == StepKind::kGather ||
                        step.kind == StepKind::kScatter;
    program_.cost += copies && !step.row_values ? 1 : 0;
  }
}

void Lowering::lower_instr(const Instr& instr, int index) {
  if (instr.is_op()) {
    lower_op(instr, index);
  } else if (instr.code == circuit::kCodeConvert) {
    lower_convert(instr, index);
  } else if (instr.code == circuit::kCodeReduction) {
    lower_fold(instr, index);
  } else if (instr.code == circuit::kCodeRow) {
    lower_rows(instr, index);
  } else {
    fail(ErrorKind::kInternal, "instruction ", index, " of a plan has the unknown code ",
         instr.code);
  }
}

// ---- where operands are ----

Lowering::Source Lowering::source_of(int index, int k) const {
  const Instr& instr = kernel_.instrs[static_cast<size_t>(index)];
  const Ref& ref = instr.in[k];
  Source value;
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

StepOperand Lowering::of_rows(int access) const {
  const int64_t stride = program_.domain.row_stride(access);
  return {static_cast<uint16_t>(access), 0, stride * program_.itemsizes[access]};
}

StepOperand Lowering::of_access(int access) const {
  return {static_cast<uint16_t>(access), program_.itemsizes[access], 0};
}

Step& Lowering::add(std::vector<Step>& list, StepKind kind,
                    std::initializer_list<StepOperand> operands) {
  Step step;
  step.kind = kind;
  return add(list, step, {operands.begin(), operands.size()});
}

Step& Lowering::add(std::vector<Step>& list, Step step, std::span<const StepOperand> operands,
                    size_t outputs) {
  step.inputs = static_cast<uint16_t>(operands.size() - outputs - step.numbers);
  step.outputs = static_cast<uint16_t>(outputs);
  step.first = static_cast<uint32_t>(program_.operands.size());
  program_.operands.insert(program_.operands.end(), operands.begin(), operands.end());
  return list.emplace_back(step);
}

Step& Lowering::copy_between(StepKind kind, const StepOperand& from, const StepOperand& to,
                             int64_t row_stride, int64_t col_stride, int32_t itemsize,
                             bool row_values, bool setup) {
  Step& step = add(setup ? program_.setup : program_.steps, kind, {from, to});
  step.row_stride = row_stride;
  step.col_stride = col_stride;
  step.itemsize = itemsize;
  step.row_values = row_values;
  return step;
}

void Lowering::copy_access(StepKind kind, int access, const StepOperand& other, bool row_values,
                           bool setup) {
  const BlockDomain& domain = program_.domain;
  const bool scatters = kind == StepKind::kScatter;
  copy_between(kind, scatters ? other : of_access(access), scatters ? of_access(access) : other,
               domain.row_stride(access), row_values ? 0 : domain.col_stride(access),
               program_.itemsizes[access], row_values, setup)
      .strided = static_cast<int16_t>(access);
}

StepOperand Lowering::repeated_tile(int place, Dtype dtype) {
  for (const auto& [known, reg] : tiles_) {
    if (known == place && registers_[reg].itemsize == size_of(dtype)) return of_register(reg);
  }
  const int reg = new_register(dtype, false);
  registers_[reg].setup = true;
  copy_between(StepKind::kGather, of_place(place), of_register(reg), 0, 0, size_of(dtype), false,
               true);
  tiles_.emplace_back(place, reg);
  return of_register(reg);
}

StepOperand Lowering::whole(const Source& value) {
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
  copy_access(StepKind::kGather, value.access, of_register(reg), false, setup);
  memory.full = reg;
  return of_register(reg);
}

StepOperand Lowering::row_vector(const Source& value) {
  if (value.place != kNone) return repeated_tile(value.place, value.dtype);
  if (value.reg != kNone) return of_register(value.reg);
  Memory& memory = memory_[value.access];
  if (memory.row != kNone) return of_register(memory.row);
  if (memory.row_dense) return of_access(value.access);
  const int reg = new_register(value.dtype, true);
  copy_access(StepKind::kGather, value.access, of_register(reg), true);
  memory.row = reg;
  return of_register(reg);
}

bool Lowering::is_single(const Source& value) const {
  if (value.place != kNone) return true;
  if (single_cols_ || !long_rows_) return false;
  if (value.reg != kNone) return registers_[value.reg].row_values;
  return value.rank == Rank::kRow && memory_[value.access].full == kNone;
}

bool Lowering::goes_by_row(const Source& value) const {
  if (value.place != kNone || program_.domain.grid.block_rows == 1) return false;
  return is_single(value) || (value.reg == kNone && stays_in_rows(memory_[value.access]));
}

bool Lowering::stays_in_rows(const Memory& memory) const {
  const bool worth_tile = memory.repeated && program_.domain.grid.block_cols < kRepeatedRow;
  return long_rows_ && memory.layout == Layout::kRowVector && memory.full == kNone && !worth_tile;
}

StepOperand Lowering::elements(const Source& value) {
  const Settled settled = direct(value);
  return settled.scalar ? whole(value) : settled.operand;
}

bool Lowering::results_by_row(const Ref& out) const {
  return out.kind == Ref::kAccess && memory_[out.index].layout == Layout::kRowVector &&
         long_rows_ && program_.domain.grid.block_rows > 1;
}

Lowering::Settled Lowering::direct(const Source& value) {
  const bool rows = program_.domain.grid.block_rows > 1;
  const int32_t size = size_of(value.dtype);
  if (value.place != kNone) return {of_place(value.place), false, true};
  if (value.reg != kNone) {
    if (!is_single(value)) return {whole(value)};
    return {{of_register(value.reg).place, 0, size}, rows, true};
  }
  const Memory& memory = memory_[value.access];
  if (is_single(value)) {
    if (memory.row == kNone) return {of_rows(value.access), rows, true};
    return {{of_register(memory.row).place, 0, size}, rows, true};
  }
  if (stays_in_rows(memory)) return {of_rows(value.access), rows, false};
  return {whole(value)};
}

Lowering::Source Lowering::cast(const Source& value, Dtype to) {
  if (value.dtype == to) return value;
  if (is_complex(to)) {
    fail(ErrorKind::kInternal, "a plan asks for a conversion to ", dtype_name(to));
  }
  Source result{value.rank, to, kNone, kNone, kNone};
  Settled in;
  StepOperand out;
  std::vector<Step>* list = &program_.steps;
  if (value.rank == Rank::kOne) {
    result.place = program_.first_one() + program_.ones++;
    in = direct(value);
    out = of_place(result.place);
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
    const Rank out_rank = rank_of_out(out);
    if (rank == Rank::kRow && memory.row_dense &&
        (out_rank == Rank::kRow || (out_rank == Rank::kOne && program_.one_row()))) {
      return {of_access(access)};
    }
    if (rank == Rank::kFull && memory.layout == Layout::kDense) return {of_access(access)};
    if (rank == Rank::kFull && takes_results(memory)) {
      return {of_rows(access), program_.domain.grid.block_rows > 1, false};
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

void Lowering::store(const Source& value, int access) {
  const Dtype dtype = kernel_.accesses[access].dtype;
  const Source same = cast(value, dtype);
  const Memory memory = memory_[access];
  const Rank out_rank = rank_of_out({Ref::kAccess, static_cast<uint32_t>(access)});
  forget_copies(access);
  if (out_rank == Rank::kOne) {
    // A value of the only row is the one element there is.
    if (same.place == kNone && !program_.one_row()) {
      fail(ErrorKind::kInternal, "a plan stores ", program_.domain.numel,
           " elements where one has room");
    }
    Step& step =
        add(same.place != kNone ? program_.prologue : program_.steps, StepKind::kGather,
            {same.place != kNone ? of_place(same.place) : row_vector(same), of_access(access)});
    step.row_values = true;
    step.itemsize = size_of(dtype);
    return;
  }
  if (out_rank == Rank::kRow) {
    copy_access(StepKind::kScatter, access, row_vector(same), true);
    return;
  }
  if (memory.layout == Layout::kDense && same.rank != Rank::kFull && !single_cols_) {
    // Repeated straight into memory.
    const bool one = same.place != kNone;
    const StepOperand from = one ? of_place(same.place) : row_vector(same);
    copy_between(StepKind::kGather, from, of_access(access), one ? 0 : 1, 0, size_of(dtype), false);
    return;
  }
  copy_access(StepKind::kScatter, access, whole(same), false);
}

void Lowering::settle_result(const Ref& out, Rank rank, Dtype dtype, const StepOperand& operand) {
  Source value{rank, dtype, kNone, kNone, kNone};
  if (operand.place >= kFirstRegister) {
    value.reg = operand.place - kFirstRegister;
  } else {
    value.access = operand.place;
  }
  if (out.kind == Ref::kTemp) {
    temps_[out.index] = cast(value, dtype_of(out));
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
