// SPDX-License-Identifier: MIT
// Size: a number of elements or bytes as planning computes with it. While a SizeTrace is open,
// sizes remember how they follow from those of the tape, and what planning asks of them is written
// down. A plan then serves all tapes of its structure of whose sizes the same is true: see
// plan_template.h.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace hologram::circuit {

class Size {
 public:
  constexpr Size(int64_t value = 0) : value_(value) {}  // NOLINT: sizes are written as numbers
  constexpr Size(int64_t value, uint32_t id) : value_(value), id_(id) {}

  constexpr int64_t value() const { return value_; }
  // What computes it, of the open trace; 0: nothing, it is the same in every tape.
  constexpr uint32_t id() const { return id_; }

  friend Size operator+(Size a, Size b) {
    return plain(a, b) ? Size(a.value_ + b.value_) : traced('+', a, b);
  }
  friend Size operator-(Size a, Size b) {
    return plain(a, b) ? Size(a.value_ - b.value_) : traced('-', a, b);
  }
  friend Size operator*(Size a, Size b) {
    return plain(a, b) ? Size(a.value_ * b.value_) : traced('*', a, b);
  }
  friend Size operator/(Size a, Size b) {
    return plain(a, b) ? Size(a.value_ / b.value_) : traced('/', a, b);
  }
  friend Size operator%(Size a, Size b) {
    return plain(a, b) ? Size(a.value_ % b.value_) : traced('%', a, b);
  }
  Size& operator+=(Size other) { return *this = *this + other; }
  Size& operator*=(Size other) { return *this = *this * other; }

  friend bool operator==(Size a, Size b) {
    const bool holds = a.value_ == b.value_;
    if (!plain(a, b)) asked('=', a, b, holds);
    return holds;
  }
  friend bool operator<(Size a, Size b) {
    const bool holds = a.value_ < b.value_;
    if (!plain(a, b)) asked('<', a, b, holds);
    return holds;
  }
  friend bool operator!=(Size a, Size b) { return !(a == b); }
  friend bool operator>(Size a, Size b) { return b < a; }
  friend bool operator<=(Size a, Size b) { return !(b < a); }
  friend bool operator>=(Size a, Size b) { return !(a < b); }

 private:
  static bool plain(Size a, Size b) { return (a.id_ | b.id_) == 0; }
  static Size traced(char op, Size a, Size b);
  static void asked(char op, Size a, Size b, bool holds);

  int64_t value_;
  uint32_t id_ = 0;
};

// A number of the tape, or of what a call says of its result, as a size.
Size size_of_tape(int64_t value);

// Sizes computed one from another, and the answers that planning was given.
class SizeFormulas {
 public:
  // Fills `values`, by id, for other numbers in place of the symbols; false where one of the
  // answers would be another.
  bool evaluate(std::span<const int64_t> symbols, std::vector<int64_t>& values) const;
  size_t bytes() const;

 private:
  friend class SizeTrace;
  // Symbols come first, after id 0.
  struct Formula {
    char op;         // 'n': the number `value`; else what is done to a and b
    uint32_t a = 0;  // ids
    uint32_t b = 0;
    int64_t value = 0;
  };
  struct Answer {
    char op;
    bool holds;
    uint32_t a, b;
  };
  size_t symbols_ = 0;
  std::vector<Formula> formulas_;
  std::vector<Answer> answers_;
};

// While it lives, what this thread computes with sizes is written down. Symbols are the numbers
// that may be others in other tapes: each value once, none 0 or 1.
class SizeTrace {
 public:
  explicit SizeTrace(std::span<const int64_t> symbols);
  ~SizeTrace();
  SizeTrace(const SizeTrace&) = delete;
  SizeTrace& operator=(const SizeTrace&) = delete;

  SizeFormulas finish() { return std::move(formulas_); }

 private:
  friend class Size;
  friend Size size_of_tape(int64_t value);
  struct Key {
    char op;
    uint32_t a, b;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return (uint64_t{key.a} << 32 | key.b) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(key.op);
    }
  };
  Size compute(char op, Size a, Size b, int64_t value);
  void answer(char op, Size a, Size b, bool holds);
  uint32_t id_of(Size size);
  uint32_t add(SizeFormulas::Formula formula);

  SizeTrace* const before_;
  SizeFormulas formulas_;
  std::unordered_map<int64_t, uint32_t> symbols_, numbers_;
  std::unordered_map<Key, uint32_t, KeyHash> known_;
};

}  // namespace hologram::circuit
