// SPDX-License-Identifier: MIT
// Tapes of random records over random views, for tests.
#pragma once

#include <algorithm>
#include <bit>
#include <random>
#include <vector>

#include "src/circuit/call_kinds.h"
#include "src/circuit/plan.h"
#include "tests/cpp/circuit/interpreter.h"
#include "tests/cpp/circuit/test_calls.h"

namespace hologram::circuit::testing {

class RandomTape {
 public:
  // Of arrays of a * b * c elements, a multiple of 24: tapes of one seed are often the same but for
  // their sizes.
  explicit RandomTape(uint32_t seed, int64_t a = 2, int64_t b = 3, int64_t c = 4)
      : random_(seed),
        calls_(seed % 2 == 1),
        crowded_(seed % 8 >= 6),
        a_(a),
        b_(b),
        c_(c),
        all_(a * b * c),
        bytes_(static_cast<size_t>(32 * all_)) {
    slots_ = crowded_ ? 1 + static_cast<int>(random_() % 2) : 2 + static_cast<int>(random_() % 5);
    // Not of random_: larger buffers would make another tape.
    std::mt19937 contents(seed);
    const auto number = [&] {
      return static_cast<double>(static_cast<int>(contents() % 33) - 16) / 4;
    };
    for (int s = 0; s < slots_; ++s) {
      std::vector<char> bytes(bytes_);
      for (size_t i = 0; i < bytes_ / 8; ++i) {
        write(bytes.data() + 8 * i, Dtype::kFloat32, number());
        write(bytes.data() + 8 * i + 4, Dtype::kFloat32, number());
      }
      memory_.push_back(std::move(bytes));
      states_.push_back(random_() % 3 != 0 ? kSlotLive : 0);
    }
    const int records = 1 + static_cast<int>(random_() % (crowded_ ? 50 : 14));
    for (int i = 0; i < records; ++i) add();
  }

  const Tape& tape() const { return tape_; }
  const Memory& memory() const { return memory_; }
  const std::vector<uint8_t>& states() const { return states_; }
  std::mt19937& random() { return random_; }

 private:
  double number() { return static_cast<double>(static_cast<int>(random_() % 33) - 16) / 4; }

  struct View {
    uint32_t slot;
    int64_t offset, strides[kTapeDims];
  };

  // A view of `shape` in some buffer: broadcast, permuted, sliced or plain.
  View view(int ndim, const int64_t* shape, bool may_repeat) {
    View v{};
    if (result_.present && random_() % 2 == 0) {  // of a call, element by element
      v.slot = result_.slot;
      v.offset = result_.offset;
      int64_t dense = 1;
      for (int d = ndim - 1; d >= 0; --d) v.strides[d] = dense, dense *= shape[d];
      return v;
    }
    v.slot = static_cast<uint32_t>(random_() % static_cast<uint32_t>(slots_));
    int order[kTapeDims];
    for (int d = 0; d < ndim; ++d) order[d] = d;
    if (random_() % 4 == 0) std::shuffle(order, order + ndim, random_);
    int64_t step = random_() % 6 == 0 ? 2 : 1;
    for (int i = ndim - 1; i >= 0; --i) {
      const int d = order[i];
      if (may_repeat && random_() % 6 == 0) {
        v.strides[d] = 0;
        continue;
      }
      v.strides[d] = step;
      step *= shape[d];
    }
    v.offset = random_() % 3 != 0 ? 0 : static_cast<int64_t>(random_() % 4) * 8;
    if (crowded_) v.offset = static_cast<int64_t>(random_() % 96) * (all_ / 24) * 8;
    return v;
  }

  bool fits(const View& v, int ndim, const int64_t* shape, int64_t size) const {
    int64_t last = 0;
    for (int d = 0; d < ndim; ++d) last += (shape[d] - 1) * v.strides[d];
    return v.offset + (last + 1) * size <= static_cast<int64_t>(bytes_);
  }

  // Some run of floats, often the one that was written last or that of another operand.
  CallSlot run_of_floats(int64_t n, const CallSlot& other) {
    CallSlot slot;
    slot.present = true;
    slot.bytes = 4 * n;
    slot.slot = static_cast<uint32_t>(random_() % static_cast<uint32_t>(slots_));
    slot.offset = 8 * static_cast<int64_t>(random_() % 4);
    if (random_() % 3 == 0) slot.slot = last_.slot, slot.offset = last_.offset;
    if (other.present && random_() % 4 == 0) slot.slot = other.slot, slot.offset = other.offset;
    slot.offset = std::min(slot.offset, (static_cast<int64_t>(bytes_) - slot.bytes) / 8 * 8);
    return slot;
  }

  void add_call() {
    const int64_t sizes[] = {1, b_, c_, a_ * c_, b_ * c_, all_};
    const TestCall& call = test_calls()[random_() % test_calls().size()];
    const bool has_result = call_kind(call.kind).result != nullptr;
    const int64_t n = has_result && random_() % 4 != 0 ? all_ : sizes[random_() % 6];
    const uint64_t attributes[] = {static_cast<uint64_t>(n)};
    const uint64_t numbers[] = {std::bit_cast<uint32_t>(static_cast<float>(number()))};
    std::vector<CallSlot> operands;
    for (const TestOperand& operand : call.operands) {
      const int64_t length = operand.one ? 1 : n;
      CallSlot slot = run_of_floats(length, operands.empty() ? CallSlot{} : operands[0]);
      slot.reads = operand.reads, slot.writes = operand.writes, slot.covers = operand.covers;
      if (operand.optional && random_() % 2 == 0) slot = {};
      if (slot.writes) last_.slot = slot.slot, last_.offset = slot.offset;
      operands.push_back(slot);
    }
    const auto written = [](const CallSlot& slot) { return slot.writes; };
    result_ = has_result ? *std::find_if(operands.begin(), operands.end(), written) : CallSlot{};
    tape_.append_call(call.kind, operands, attributes, numbers);
  }

  void add() {
    if (calls_ && random_() % 5 == 0) return add_call();
    Record r;
    uint64_t bits[kMaxArity + 1] = {};
    const int kind = static_cast<int>(random_() % 10);
    const int64_t shapes[][3] = {{all_, 1, 1}, {c_, a_ * b_, 1}, {a_, b_, c_},     {a_ * b_, c_, 1},
                                 {1, 1, 1},    {c_, 1, 1},       {b_, a_ * c_, 1}, {a_ * b_, 1, 1}};
    const auto& shape = shapes[random_() % 8];
    r.ndim = shape[2] > 1 ? 3 : shape[1] > 1 ? 2 : 1;
    std::copy_n(shape, 3, r.shape);
    if (kind == 0 || kind == 1) {
      r.code = kind == 0 ? kCodeReduction : kCodeRow;
      static constexpr Reduction kFolds[] = {Reduction::sum, Reduction::mean, Reduction::amax};
      r.attr = kind == 0 ? static_cast<uint16_t>(kFolds[random_() % 3])
                         : static_cast<uint16_t>(random_() % 2);
      r.arity = 1;
      r.ndim = 2;
      r.shape[0] = all_ / shape[0], r.shape[1] = shape[0];
    } else if (kind == 2) {
      r.code = kCodeConvert;
      r.arity = 1;
    } else {
      static constexpr OpId kOps[] = {OpId::add, OpId::sub,  OpId::mul,     OpId::neg,
                                      OpId::abs, OpId::relu, OpId::maximum, OpId::where,
                                      OpId::lt,  OpId::add,  OpId::addcmul};
      static constexpr uint8_t kArity[] = {2, 2, 2, 1, 1, 1, 2, 3, 2, 2, 4};
      const size_t which = random_() % 11;
      r.code = static_cast<uint16_t>(kOps[which]);
      r.arity = kArity[which];
    }
    const bool rows = r.code >= kCodeReduction;
    const bool doubles = random_() % 8 == 0;
    r.compute = doubles && !rows ? Dtype::kFloat64 : Dtype::kFloat32;
    for (int tries = 0; tries < 50; ++tries) {
      bool good = true;
      for (int k = 0; k <= r.arity; ++k) {
        TapeOperand& o = r.operands[k];
        o = TapeOperand{};
        o.dtype = doubles && random_() % 2 == 0 ? Dtype::kFloat64 : Dtype::kFloat32;
        if (rows) o.dtype = Dtype::kFloat32;
        if (k > 0 && !rows && random_() % 6 == 0) {
          if (random_() % 2 == 0) {
            o.kind = OperandKind::kOne;
            o.slot = static_cast<uint32_t>(random_() % static_cast<uint32_t>(slots_));
            o.offset = 8 * static_cast<int64_t>(random_() % 4);
            continue;
          }
          static constexpr double kKnown[] = {0, -0.0, 1, -1, 2, 0.5};
          o.kind = OperandKind::kImmediate;
          o.dtype = r.code == kCodeConvert ? Dtype::kFloat32 : r.compute;
          write(reinterpret_cast<char*>(&bits[k]), o.dtype, kKnown[random_() % 6]);
          o.number = classify_number(o.dtype, bits[k]);
          continue;
        }
        View v = view(r.ndim, r.shape, k > 0 && !rows);
        if (rows) {
          v.strides[1] = k == 0 && r.code == kCodeReduction ? 0 : 1;
          v.strides[0] = k == 0 && r.code == kCodeReduction ? 1 : r.shape[1];
        }
        // Often the buffer just written or about to be.
        if (k > 0 && random_() % 3 == 0) v = last_;
        if (k > 1 && random_() % 4 == 0) {
          o = r.operands[1];
          std::copy_n(r.strides[1], kTapeDims, r.strides[k]);
          bits[k] = bits[1];
          continue;
        }
        if (k == 1 && random_() % 4 == 0 && !rows) {
          v.slot = r.operands[0].slot;
          v.offset = r.operands[0].offset;
          std::copy_n(r.strides[0], kTapeDims, v.strides);
          o.dtype = r.operands[0].dtype;
        }
        o.slot = v.slot;
        o.offset = v.offset;
        std::copy_n(v.strides, kTapeDims, r.strides[k]);
        good = good && fits(v, r.ndim, r.shape, static_cast<int64_t>(itemsize(o.dtype)));
        if (rows && k == 1) good = good && v.strides[1] == 1 && v.strides[0] == r.shape[1];
      }
      if (r.code == kCodeConvert && r.operands[1].kind != OperandKind::kImmediate) {
        r.compute = r.operands[1].dtype;
      } else if (r.code == kCodeConvert) {
        r.compute = r.operands[1].dtype;
      }
      if (good && is_legal(r)) {
        std::copy_n(r.strides[0], kTapeDims, last_.strides);
        last_.slot = r.operands[0].slot;
        last_.offset = r.operands[0].offset;
        tape_.append(r, bits);
        return;
      }
    }
  }

  // What front ends promise: no two elements of the result in one place, inputs apart from it or
  // exactly the same.
  bool is_legal(const Record& r) const {
    const auto cells = [&](int k) {
      std::vector<int64_t> at;
      const TapeOperand& o = r.operands[k];
      for (int64_t i = 0; i < r.numel(); ++i) {
        int64_t rest = i, place = 0;
        for (int d = r.ndim - 1; d >= 0; --d) {
          const int64_t index = rest % r.shape[d];
          rest /= r.shape[d];
          if (r.code == kCodeReduction && k == 0 && d == r.ndim - 1 && index > 0)
            place = INT64_MIN / 2;
          if (o.kind == OperandKind::kMemory) place += index * r.strides[k][d];
        }
        if (place >= 0) at.push_back(o.offset + place * static_cast<int64_t>(itemsize(o.dtype)));
      }
      return at;
    };
    const std::vector<int64_t> out = cells(0);
    const int64_t out_size = static_cast<int64_t>(itemsize(r.operands[0].dtype));
    std::vector<int64_t> sorted = out;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return false;
    for (int k = 1; k <= r.arity; ++k) {
      const TapeOperand& o = r.operands[k];
      if (o.kind == OperandKind::kImmediate || o.slot != r.operands[0].slot) continue;
      const std::vector<int64_t> in = cells(k);
      if (in == out && o.dtype == r.operands[0].dtype && r.code != kCodeReduction) continue;
      const int64_t size = static_cast<int64_t>(itemsize(o.dtype));
      for (const int64_t a : in) {
        const auto b = std::upper_bound(sorted.begin(), sorted.end(), a - out_size);
        if (b != sorted.end() && *b < a + size) return false;
      }
    }
    return true;
  }

  std::mt19937 random_;
  const bool calls_;
  const bool crowded_;  // pieces of one or two buffers are written and read again and again
  const int64_t a_, b_, c_, all_;
  const size_t bytes_;  // of a buffer
  int slots_;
  Tape tape_;
  Memory memory_;
  std::vector<uint8_t> states_;
  View last_{};
  CallSlot result_;
};

// All but three of the ops that random tapes have; without float64 where `singles`.
inline const NativeOps& some_native_ops(bool singles) {
  static const auto make = [](bool single) {
    NativeOps native;
    native.values = static_cast<uint16_t>(single ? ~NativeOps::bit(Dtype::kFloat64) : ~0);
    native.rows.fill(native.values);
    for (const OpId lacking : {OpId::abs, OpId::mul, OpId::lt}) {
      native.rows[static_cast<size_t>(lacking)] = 0;
    }
    return native;
  };
  static const NativeOps all = make(false), only_singles = make(true);
  return singles ? only_singles : all;
}

inline PlanLimits some_limits(uint32_t seed) {
  PlanLimits limits;
  if (seed % 3 == 0) limits.max_instrs = 4;
  if (seed % 3 == 1) limits = {.row_bytes = 64, .scratch_slots = 4, .max_instrs = 8};
  limits.fuse_reductions = seed % 2 == 0;
  limits.fuse_row_functions = seed % 5 != 0;
  limits.fuse_rows_of_calls = seed % 7 != 0;
  if (seed % 13 == 0) limits.call_result = no_result;
  if (seed % 4 == 2) limits.native = &some_native_ops(seed % 8 == 2);
  if (seed % 2 == 1) limits.least_trimmed_copy = 0;
  if (seed % 11 == 0) limits.max_arguments = kMaxArity + 1;
  return limits;
}

}  // namespace hologram::circuit::testing
