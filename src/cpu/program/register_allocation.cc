// SPDX-License-Identifier: MIT
// Classes for the values of a lowered kernel, and the tile length that keeps them in L1.
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "hologram/memory.h"
#include "src/cpu/program/lower.h"

namespace hologram::cpu {
namespace {

// Tiles are multiples of this: whole vectors of every type, whole cache lines.
constexpr int64_t kTileUnit = 64;
constexpr int64_t kShortestTile = 256;
// Elements at a time where nothing is kept between steps, or values of rows only.
constexpr int64_t kStraightTile = 8192;
// Rows so long that a straight tile has few enough for a class.
constexpr int64_t kFewRows = 16;

int64_t l1_bytes() {
  static const int64_t bytes = [] {
    const long known = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    return known > 0 ? int64_t{known} : int64_t{32} << 10;
  }();
  return bytes;
}

// Calls f(operand, is_output) for the operands of a step.
template <class F>
void for_operands(Program& program, const Step& step, F&& f) {
  const int reads = step.inputs + step.numbers;
  for (int k = 0; k < reads + step.outputs; ++k) f(program.operands[step.first + k], k >= reads);
}

// Whether the output may lie where an input lies that is not read again.
bool may_write_in_place(const Step& step) {
  return step.kind == StepKind::kOp || step.kind == StepKind::kSegment ||
         step.kind == StepKind::kRows;
}

class Assigner {
 public:
  Assigner(Program& program, std::vector<Register>& registers)
      : program_(program), registers_(registers) {}

  int64_t run() {
    for (const Step& step : program_.setup) note(step, -1);
    for (size_t i = 0; i < program_.steps.size(); ++i) note(program_.steps[i], static_cast<int>(i));
    for (Register& reg : registers_) {
      if (reg.setup && reg.last_read >= 0) reg.last_read = std::numeric_limits<int>::max();
    }
    for (Register& reg : registers_) {
      if (reg.setup) take(reg);
    }
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      assign(program_.steps[i], static_cast<int>(i));
    }
    program_.classes = static_cast<int>(sizes_.size());
    int64_t bytes = 0;
    for (const int64_t size : sizes_) bytes += size;
    const int64_t elements = program_.domain.grid.elements();
    for (const Register& reg : registers_) {
      const int64_t n = reg.row_values ? program_.domain.grid.block_rows : elements;
      program_.class_bytes = std::max(program_.class_bytes, n * reg.itemsize);
    }
    for (StepOperand& operand : program_.operands) {
      if (operand.place < kFirstRegister) continue;
      const Register& reg = registers_[operand.place - kFirstRegister];
      operand.place = static_cast<uint16_t>(program_.first_class() + reg.class_index);
    }
    return bytes;
  }

 private:
  void note(const Step& step, int index) {
    for_operands(program_, step, [&](const StepOperand& operand, bool output) {
      if (operand.place < kFirstRegister) return;
      Register& reg = registers_[operand.place - kFirstRegister];
      (output ? reg.written : reg.last_read) = index;
    });
  }

  void take(Register& reg) {
    const auto unused = std::find(used_.begin(), used_.end(), false);
    reg.class_index = static_cast<int>(unused - used_.begin());
    if (unused == used_.end()) {
      used_.push_back(true);
      sizes_.push_back(0);
    }
    used_[reg.class_index] = true;
    grow(reg);
  }

  void grow(const Register& reg) {
    int64_t& size = sizes_[reg.class_index];
    if (!reg.row_values) size = std::max<int64_t>(size, reg.itemsize);
  }

  void assign(const Step& step, int index) {
    for_operands(program_, step, [&](const StepOperand& operand, bool output) {
      if (!output || operand.place < kFirstRegister) return;
      Register& to = registers_[operand.place - kFirstRegister];
      if (to.class_index >= 0) return;
      if (may_write_in_place(step)) {
        for_operands(program_, step, [&](const StepOperand& in, bool is_output) {
          if (is_output || in.place < kFirstRegister || to.class_index >= 0) return;
          Register& from = registers_[in.place - kFirstRegister];
          if (from.last_read != index || from.class_index < 0 || from.itemsize != to.itemsize ||
              from.row_values != to.row_values || in.per_col == 0 || from.given_away) {
            return;
          }
          to.class_index = from.class_index;
          from.given_away = true;
          grow(to);
        });
      }
      if (to.class_index < 0) take(to);
    });
    for_operands(program_, step, [&](const StepOperand& operand, bool output) {
      if (operand.place < kFirstRegister) return;
      Register& reg = registers_[operand.place - kFirstRegister];
      const bool over = output ? reg.last_read < 0 : reg.last_read == index && !reg.given_away;
      if (over) used_[reg.class_index] = false;
    });
  }

  Program& program_;
  std::vector<Register>& registers_;
  std::vector<bool> used_;
  std::vector<int64_t> sizes_;  // bytes of an element, of the widest value
};

int64_t choose_tile(const Program& program, const std::vector<Register>& registers,
                    int64_t class_bytes_per_element) {
  if (program.steps.size() == 1 && class_bytes_per_element == 0) return kStraightTile;
  int64_t widest = 1, touched = 0;
  for (const int32_t size : program.itemsizes) {
    widest = std::max<int64_t>(widest, size);
    touched += size;
  }
  // Memory that only flows past takes less of L1 than what is kept.
  const int64_t live = std::max<int64_t>(1, class_bytes_per_element + touched / 4);
  for (const Register& reg : registers) widest = std::max<int64_t>(widest, reg.itemsize);
  const bool keeps_rows = class_bytes_per_element == 0 && program.domain.keeps_columns &&
                          program.domain.shape[program.domain.ndim - 1] >= kFewRows;
  const int64_t most =
      keeps_rows ? kStraightTile : static_cast<int64_t>(BoundaryPool::kClassBytes) / widest;
  const int64_t tile = l1_bytes() * 3 / 5 / live;
  return std::clamp(tile, kShortestTile, most) / kTileUnit * kTileUnit;
}

}  // namespace

int64_t assign_classes(Program& program, std::vector<Register>& registers) {
  return Assigner(program, registers).run();
}

Program make_program(const circuit::Kernel& kernel, Isa isa, bool jit) {
  int64_t tile = kTile;
  // Twice at most: how much of L1 a tile takes is known when everything is settled.
  for (bool first = true;; first = false) {
    Program program;
    program.isa = isa;
    Lowering lowering(kernel, tile, jit, program);
    lowering.run();
    const int64_t bytes = assign_classes(program, lowering.registers());
    if (!first) return program;
    const int64_t best = choose_tile(program, lowering.registers(), bytes);
    if (best == tile) return program;
    tile = best;
  }
}

size_t Program::bytes() const {
  const auto of = [](const auto& list) { return list.capacity() * sizeof(*list.data()); };
  size_t bytes = sizeof(Program) + of(domain.strides) + of(itemsizes) + of(moving) +
                 of(block_step) + of(operands) + of(folds) + of(prologue) + of(setup) + of(steps) +
                 of(loops);
  for (const JitLoop& loop : loops) bytes += loop.bytes();
  return bytes;
}

bool same_program(const circuit::Kernel& a, const circuit::Kernel& b) {
  const auto all = [](const auto& x, const auto& y, auto&& same) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
  };
  if (a.ndim != b.ndim || a.whole_rows != b.whole_rows ||
      !std::equal(a.shape.begin(), a.shape.begin() + a.ndim, b.shape.begin())) {
    return false;
  }
  const auto same_access = [](const circuit::Access& x, const circuit::Access& y) {
    return x.dtype == y.dtype && x.rank == y.rank && x.loaded == y.loaded && x.stored == y.stored &&
           x.strides == y.strides;
  };
  const auto same_temp = [](const circuit::Temp& x, const circuit::Temp& y) {
    return x.dtype == y.dtype && x.rank == y.rank;
  };
  const auto same_ref = [](const circuit::Ref& x, const circuit::Ref& y) {
    return x.kind == y.kind && (x.kind == circuit::Ref::kImmediate || x.index == y.index);
  };
  const auto same_instr = [&](const circuit::Instr& x, const circuit::Instr& y) {
    bool same = x.code == y.code && x.attr == y.attr && x.compute == y.compute &&
                x.result == y.result && x.rank == y.rank && x.arity == y.arity &&
                x.parameter == y.parameter && same_ref(x.out, y.out);
    for (int k = 0; same && k < x.arity; ++k) same = same_ref(x.in[k], y.in[k]);
    return same;
  };
  if (!all(a.accesses, b.accesses, same_access) || !all(a.temps, b.temps, same_temp) ||
      !all(a.instrs, b.instrs, same_instr)) {
    return false;
  }
  // Which accesses share a slot decides what a store makes out of date.
  for (size_t i = 0; i < a.accesses.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if ((a.accesses[i].slot == a.accesses[j].slot) != (b.accesses[i].slot == b.accesses[j].slot))
        return false;
    }
  }
  return true;
}

}  // namespace hologram::cpu
