// SPDX-License-Identifier: MIT
// Tapes written op by op, for tests of the planner.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "hologram/reduction.h"
#include "src/circuit/call_kinds.h"
#include "src/circuit/plan.h"
#include "tests/cpp/circuit/test_calls.h"

namespace hologram::circuit::testing {

inline constexpr Dtype kF32 = Dtype::kFloat32;

// Records on buffers of float32, each a slot of its own.
class Program {
 public:
  uint32_t buffer(bool live) {
    states_.push_back(live ? kSlotLive : kSlotFresh);
    return static_cast<uint32_t>(states_.size() - 1);
  }
  void keep(uint32_t slot) { states_[slot] |= kSlotLive; }

  static TapeOperand memory(uint32_t slot, Dtype dtype = kF32) {
    TapeOperand o;
    o.slot = slot;
    o.dtype = dtype;
    return o;
  }
  static TapeOperand immediate(float value) {
    TapeOperand o;
    o.kind = OperandKind::kImmediate;
    o.number = classify_number(kF32, std::bit_cast<uint32_t>(value));
    return o;
  }

  // A fresh buffer with op(in...) of n elements.
  uint32_t op(OpId id, std::vector<TapeOperand> in, int64_t n, std::vector<float> numbers = {}) {
    const uint32_t out = buffer(false);
    in_place(id, out, std::move(in), n, std::move(numbers));
    return out;
  }
  void in_place(OpId id, uint32_t out, std::vector<TapeOperand> in, int64_t n,
                std::vector<float> numbers = {}) {
    in.insert(in.begin(), memory(out));
    uint64_t bits[kMaxArity + 1] = {};
    size_t next = 0;
    for (size_t k = 0; k < in.size(); ++k) {
      if (in[k].kind != OperandKind::kImmediate) continue;
      const float value = next < numbers.size() ? numbers[next] : 3.0f;
      ++next;
      bits[k] = std::bit_cast<uint32_t>(value);
      in[k].number = classify_number(kF32, bits[k]);
    }
    tape.append_flat(static_cast<uint16_t>(id), kF32, static_cast<int>(in.size()) - 1, in.data(),
                     bits, n);
  }
  uint32_t fold(Reduction which, uint32_t in, int64_t rows, int64_t cols) {
    Record r = of_rows(kCodeReduction, 1, rows, cols);
    r.attr = static_cast<uint16_t>(which);
    const uint32_t out = buffer(false);
    r.operands[0] = memory(out);
    r.operands[1] = memory(in);
    r.strides[0][0] = 1;
    r.strides[1][0] = cols, r.strides[1][1] = 1;
    tape.append(r, nullptr);
    return out;
  }
  // Copies rows into `out`: the first from element `first` on, each `pitch` after the one before.
  void copy_rows(uint32_t out, uint32_t in, int64_t rows, int64_t cols, int64_t pitch,
                 int64_t first) {
    Record r = of_rows(kCodeConvert, 1, rows, cols);
    r.operands[0] = memory(out);
    r.operands[0].offset = 4 * first;
    r.operands[1] = memory(in);
    r.strides[0][0] = pitch, r.strides[0][1] = 1;
    r.strides[1][0] = cols, r.strides[1][1] = 1;
    tape.append(r, nullptr);
  }
  // x with a value per row, then maybe one per column.
  uint32_t broadcast(OpId id, uint32_t x, uint32_t other, int64_t rows, int64_t cols,
                     bool per_row) {
    Record r = of_rows(static_cast<uint16_t>(id), 2, rows, cols);
    const uint32_t out = buffer(false);
    r.operands[0] = memory(out);
    r.operands[1] = memory(x);
    r.operands[2] = memory(other);
    for (const int k : {0, 1}) r.strides[k][0] = cols, r.strides[k][1] = 1;
    r.strides[2][per_row ? 0 : 1] = 1;
    tape.append(r, nullptr);
    return out;
  }

  std::unique_ptr<Plan> plan(PlanOptions options = {}) const {
    return make_plan(tape.words(), states_, options);
  }

  const std::vector<uint8_t>& states() const { return states_; }

  Tape tape;

 private:
  static Record of_rows(uint16_t code, uint8_t arity, int64_t rows, int64_t cols) {
    Record r;
    r.code = code;
    r.arity = arity;
    r.ndim = 2;
    r.shape[0] = rows, r.shape[1] = cols;
    return r;
  }

  std::vector<uint8_t> states_;
};

inline const TapeOperand kNumber = Program::immediate(3.0f);

// An operand of n floats, from the first of a slot on.
inline CallSlot floats(uint32_t slot, int64_t n, const char* how, int64_t first = 0) {
  const auto has = [&](char c) { return std::strchr(how, c) != nullptr; };
  return {true, has('r'), has('w'), has('c'), slot, 4 * first, 4 * n};
}

inline uint16_t kind(const char* name) {
  for (const TestCall& call : test_calls()) {
    if (std::strcmp(call_kind(call.kind).name, name) == 0) return call.kind;
  }
  ADD_FAILURE() << "there is no test call " << name;
  return 0;
}

inline void call(Program& p, const char* name, std::vector<CallSlot> operands, uint64_t n) {
  const uint64_t number = 0x3f800000;
  p.tape.append_call(kind(name), operands, {&n, 1}, {&number, 1});
}

}  // namespace hologram::circuit::testing
