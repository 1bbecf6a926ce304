// SPDX-License-Identifier: MIT
// assign_classes: memory for the values that are kept between the steps of a block.
#include <algorithm>
#include <limits>
#include <vector>

#include "src/cpu/program/lower.h"

namespace hologram::cpu {
namespace {

// Calls f(operand, is_output) for the operands of a step.
template <class F>
void for_operands(Program& program, const Step& step, F&& f) {
  const int reads = step.inputs + step.numbers;
  for (int k = 0; k < reads + step.outputs; ++k) f(program.operands[step.first + k], k >= reads);
}

// Whether the output may lie where an input lies that is not read again.
bool may_write_in_place(const Step& step) {
  return step.kind == StepKind::kOp || step.kind == StepKind::kLoop || step.kind == StepKind::kRows;
}

class Assigner {
 public:
  Assigner(Program& program, std::vector<Register>& registers)
      : program_(program), registers_(registers) {}

  int64_t run() {
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
    for (const Register& reg : registers_) {
      int64_t& widest = reg.row_values ? program_.widest_of_row : program_.widest;
      widest = std::max<int64_t>(widest, reg.itemsize);
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
      if (output || operand.place < kFirstRegister) return;
      registers_[operand.place - kFirstRegister].last_read = index;
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

}  // namespace

int64_t assign_classes(Program& program, std::vector<Register>& registers) {
  return Assigner(program, registers).run();
}

}  // namespace hologram::cpu
