// SPDX-License-Identifier: MIT
// The planner: random tapes against their records run one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "src/circuit/plan.h"
#include "tests/cpp/circuit/interpreter.h"
#include "tests/cpp/circuit/test_calls.h"

namespace hologram::circuit {
namespace {

class RandomTape {
 public:
  explicit RandomTape(uint32_t seed)
      : random_(seed), calls_(seed % 2 == 1), crowded_(seed % 8 >= 6) {
    slots_ = crowded_ ? 1 + static_cast<int>(random_() % 2) : 2 + static_cast<int>(random_() % 5);
    for (int s = 0; s < slots_; ++s) {
      std::vector<char> bytes(kBytes);
      for (size_t i = 0; i < kBytes / 8; ++i) {
        testing::write(bytes.data() + 8 * i, Dtype::kFloat32, number());
        testing::write(bytes.data() + 8 * i + 4, Dtype::kFloat32, number());
      }
      memory_.push_back(std::move(bytes));
      states_.push_back(random_() % 3 != 0 ? kSlotLive : 0);
    }
    const int records = 1 + static_cast<int>(random_() % (crowded_ ? 50 : 14));
    for (int i = 0; i < records; ++i) add();
  }

  const Tape& tape() const { return tape_; }
  const testing::Memory& memory() const { return memory_; }
  const std::vector<uint8_t>& states() const { return states_; }
  std::mt19937& random() { return random_; }

 private:
  static constexpr size_t kBytes = 96 * 8;

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
    if (crowded_) v.offset = static_cast<int64_t>(random_() % 96) * 8;
    return v;
  }

  bool fits(const View& v, int ndim, const int64_t* shape, int64_t size) const {
    int64_t last = 0;
    for (int d = 0; d < ndim; ++d) last += (shape[d] - 1) * v.strides[d];
    return v.offset + (last + 1) * size <= static_cast<int64_t>(kBytes);
  }

  // Some run of floats, often the one that was written last or that of another operand.
  CallSlot run_of_floats(int64_t n, const CallSlot& other) {
    CallSlot slot;
    slot.present = true;
    slot.bytes = 4 * n;
    slot.slot = static_cast<uint32_t>(random_() % static_cast<uint32_t>(slots_));
    slot.offset = 4 * static_cast<int64_t>(random_() % 8);
    if (random_() % 3 == 0) slot.slot = last_.slot, slot.offset = last_.offset;
    if (other.present && random_() % 4 == 0) slot.slot = other.slot, slot.offset = other.offset;
    slot.offset = std::min(slot.offset, static_cast<int64_t>(kBytes) - slot.bytes);
    return slot;
  }

  void add_call() {
    static constexpr int64_t kSizes[] = {1, 3, 4, 8, 12, 24};
    const testing::TestCall& call = testing::test_calls()[random_() % testing::test_calls().size()];
    const bool has_result = call_kind(call.kind).result != nullptr;
    const int64_t n = has_result && random_() % 4 != 0 ? 24 : kSizes[random_() % 6];
    const uint64_t attributes[] = {static_cast<uint64_t>(n)};
    const uint64_t numbers[] = {std::bit_cast<uint32_t>(static_cast<float>(number()))};
    std::vector<CallSlot> operands;
    for (const testing::TestOperand& operand : call.operands) {
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
    static constexpr int64_t kShapes[][3] = {{24, 1, 1}, {4, 6, 1}, {2, 3, 4}, {6, 4, 1},
                                             {1, 1, 1},  {4, 1, 1}, {3, 8, 1}, {6, 1, 1}};
    const auto& shape = kShapes[random_() % 8];
    r.ndim = shape[2] > 1 ? 3 : shape[1] > 1 ? 2 : 1;
    std::copy_n(shape, 3, r.shape);
    if (kind == 0 || kind == 1) {
      r.code = kind == 0 ? kCodeReduction : kCodeRow;
      static constexpr Reduction kFolds[] = {Reduction::sum, Reduction::mean, Reduction::amax};
      r.attr = kind == 0 ? static_cast<uint16_t>(kFolds[random_() % 3])
                         : static_cast<uint16_t>(random_() % 2);
      r.arity = 1;
      r.ndim = 2;
      r.shape[0] = 24 / shape[0], r.shape[1] = shape[0];
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
          testing::write(reinterpret_cast<char*>(&bits[k]), o.dtype, kKnown[random_() % 6]);
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
        for (const int64_t b : out) {
          if (a < b + out_size && b < a + size) return false;
        }
      }
    }
    return true;
  }

  std::mt19937 random_;
  const bool calls_;
  const bool crowded_;  // pieces of one or two buffers are written and read again and again
  int slots_;
  Tape tape_;
  testing::Memory memory_;
  std::vector<uint8_t> states_;
  View last_{};
  CallSlot result_;
};

PlanLimits some_limits(uint32_t seed) {
  PlanLimits limits;
  if (seed % 3 == 0) limits.max_instrs = 4;
  if (seed % 3 == 1) limits = {.row_bytes = 64, .scratch_slots = 4, .max_instrs = 8};
  limits.fuse_reductions = seed % 2 == 0;
  limits.fuse_row_functions = seed % 5 != 0;
  limits.fuse_call_results = seed % 7 != 0;
  return limits;
}

// Whether the kernel is one that a device with these limits can run.
void expect_within(const Kernel& kernel, const PlanLimits& limits, uint32_t seed) {
  std::vector<int> records;
  bool reduces = false, has_row_function = false;
  for (const Instr& instr : kernel.instrs) {
    if (records.empty() || records.back() != instr.record) records.push_back(instr.record);
    reduces = reduces || instr.code == kCodeReduction;
    has_row_function = has_row_function || instr.code == kCodeRow;
  }
  if (kernel.call != nullptr && kernel.call->record >= 0) records.push_back(kernel.call->record);
  const bool alone = records.size() <= 1;
  EXPECT_LE(static_cast<int>(records.size()), limits.max_instrs) << "seed " << seed;
  for (size_t at = 0; at < kernel.instrs.size(); ++at) {  // made before, and read afterwards
    std::vector<bool> is_made(kernel.temps.size()), is_read(kernel.temps.size());
    for (size_t i = 0; i < kernel.instrs.size(); ++i) {
      const Instr& instr = kernel.instrs[i];
      if (i <= at && instr.out.kind == Ref::kTemp) is_made[instr.out.index] = true;
      for (int k = 0; i > at && k < instr.arity; ++k) {
        if (instr.in[k].kind == Ref::kTemp) is_read[instr.in[k].index] = true;
      }
    }
    int live = 0;
    for (size_t t = 0; t < kernel.temps.size(); ++t) live += is_made[t] && is_read[t];
    EXPECT_LE(live, kernel.live_values) << "seed " << seed;
  }
  EXPECT_LE(kernel.live_values, alone ? kMaxArity + 2 : limits.scratch_slots) << "seed " << seed;
  EXPECT_TRUE(alone || !reduces || limits.fuse_reductions) << "seed " << seed;
  EXPECT_TRUE(alone || !has_row_function || limits.fuse_row_functions) << "seed " << seed;
  EXPECT_TRUE(alone || kernel.call == nullptr || limits.fuse_call_results) << "seed " << seed;
}

TEST(Plan, RandomTapesMeanTheirRecords) {
  int64_t ops = 0, kernels = 0, joined = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    RandomTape program(seed);
    testing::Memory expected = program.memory();
    testing::run_tape(program.tape().words(), program.tape().immediates(), expected);
    for (const bool fuse : {true, false}) {
      PlanOptions options;
      options.fuse = fuse;
      options.limits = some_limits(seed);
      const auto plan = make_plan(program.tape().words(), program.states(), options);
      testing::Memory actual = program.memory();
      testing::run_plan(*plan, program.tape().immediates(), actual, program.random());
      for (size_t s = 0; s < actual.size(); ++s) {
        if ((program.states()[s] & kSlotLive) == 0) continue;
        ASSERT_TRUE(actual[s] == expected[s])
            << "seed " << seed << (fuse ? " fused" : " apart") << ", slot " << s << "\n"
            << print_tape(program.tape().words()) << print_plan(*plan);
      }
      if (!fuse) continue;
      ops += plan->stats.ops, kernels += plan->stats.kernels;
      for (const Kernel& kernel : plan->kernels) {
        joined += kernel.call != nullptr && !kernel.instrs.empty();
        expect_within(kernel, options.limits, seed);
      }
    }
  }
  // Fusion that never happens would pass the comparison.
  EXPECT_LT(kernels * 10, ops * 8);
  EXPECT_GT(joined, 100) << "ops must join calls, too";
}

TEST(Plan, IsDeterministic) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    RandomTape program(seed);
    const auto a = make_plan(program.tape().words(), program.states());
    const auto b = make_plan(program.tape().words(), program.states());
    EXPECT_EQ(print_plan(*a), print_plan(*b));
    EXPECT_EQ(a->canonical_hash, b->canonical_hash);
  }
}

}  // namespace
}  // namespace hologram::circuit
