// SPDX-License-Identifier: MIT
// Writes down what is computed with sizes, and computes it again for others.
#include "src/circuit/size.h"

#include <algorithm>
#include <utility>

namespace hologram::circuit {
namespace {

thread_local SizeTrace* open_trace = nullptr;

}  // namespace

SizeTrace::SizeTrace(std::span<const int64_t> symbols) : before_(std::exchange(open_trace, this)) {
  formulas_.symbols_ = symbols.size();
  uint32_t id = 1;
  for (const int64_t symbol : symbols) symbols_.emplace(symbol, id++);
}

SizeTrace::~SizeTrace() { open_trace = before_; }

Size size_of_tape(int64_t value) {
  if (open_trace == nullptr) return value;
  const auto known = open_trace->symbols_.find(value);
  return known == open_trace->symbols_.end() ? Size(value) : Size(value, known->second);
}

uint32_t SizeTrace::add(SizeFormulas::Formula formula) {
  formulas_.formulas_.push_back(formula);
  return static_cast<uint32_t>(formulas_.symbols_ + formulas_.formulas_.size());
}

uint32_t SizeTrace::id_of(Size size) {
  if (size.id() != 0) return size.id();
  uint32_t& id = numbers_[size.value()];
  if (id == 0) id = add({'n', 0, 0, size.value()});
  return id;
}

Size Size::traced(char op, Size a, Size b) {
  const int64_t value = op == '+'   ? a.value_ + b.value_
                        : op == '-' ? a.value_ - b.value_
                        : op == '*' ? a.value_ * b.value_
                        : op == '/' ? a.value_ / b.value_
                                    : a.value_ % b.value_;
  // What is the same whatever the operand is.
  if (b.id_ == 0) {
    if (b.value_ == 0 && (op == '+' || op == '-')) return a;
    if (b.value_ == 1 && (op == '*' || op == '/')) return a;
    if (b.value_ == 0 && op == '*') return 0;
  } else if (a.id_ == 0) {
    if (a.value_ == 0 && op == '+') return b;
    if (a.value_ == 1 && op == '*') return b;
    if (a.value_ == 0 && op == '*') return 0;
  }
  return open_trace->compute(op, a, b, value);
}

void Size::asked(char op, Size a, Size b, bool holds) {
  if (a.id_ != b.id_) open_trace->answer(op, a, b, holds);
}

Size SizeTrace::compute(char op, Size a, Size b, int64_t value) {
  Key key{op, id_of(a), id_of(b)};
  if ((op == '+' || op == '*') && key.b < key.a) std::swap(key.a, key.b);
  uint32_t& id = known_[key];
  if (id == 0) id = add({op, key.a, key.b});
  return {value, id};
}

void SizeTrace::answer(char op, Size a, Size b, bool holds) {
  const Key key{op, id_of(a), id_of(b)};
  if (known_.try_emplace(key, 1).second) {
    formulas_.answers_.push_back({op, holds, key.a, key.b});
  }
}

bool SizeFormulas::evaluate(std::span<const int64_t> symbols, std::vector<int64_t>& values) const {
  values.resize(1 + symbols_ + formulas_.size());
  values[0] = 0;
  int64_t* next = std::copy(symbols.begin(), symbols.end(), values.data() + 1);
  for (const Formula& formula : formulas_) {
    const int64_t a = values[formula.a], b = values[formula.b];
    switch (formula.op) {
      case '+':
        *next++ = a + b;
        break;
      case '-':
        *next++ = a - b;
        break;
      case '*':
        *next++ = a * b;
        break;
      case '/':
      case '%':
        if (b == 0) return false;
        *next++ = formula.op == '/' ? a / b : a % b;
        break;
      default:
        *next++ = formula.value;
    }
  }
  for (const Answer& answer : answers_) {
    const int64_t a = values[answer.a], b = values[answer.b];
    if ((answer.op == '=' ? a == b : a < b) != answer.holds) return false;
  }
  return true;
}

size_t SizeFormulas::bytes() const {
  return formulas_.capacity() * sizeof(Formula) + answers_.capacity() * sizeof(Answer);
}

}  // namespace hologram::circuit
