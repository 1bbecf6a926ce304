// SPDX-License-Identifier: MIT
// Values that only kernels see: which share memory, and what becomes of them in segments.
#include "src/circuit/passing_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <random>
#include <string>

#include "tests/cpp/circuit/interpreter.h"
#include "tests/cpp/circuit/test_program.h"

namespace hologram::circuit {
namespace {

using testing::call;
using testing::floats;
using testing::kF32;
using testing::kNumber;
using testing::Program;

std::vector<uint32_t> owners(std::vector<PassingValue> passing, const std::vector<size_t>& bytes,
                             size_t expected) {
  MemorySharing sharing;
  for (int i = 0; i < 2; ++i) {  // what it keeps from one plan to the next does not matter
    sharing.find(passing, bytes);
    EXPECT_EQ(sharing.bytes(), expected);
  }
  return sharing.owners();
}

TEST(PassingValues, ShareMemoryOnceTheOtherIsNotWanted) {
  using Owners = std::vector<uint32_t>;
  EXPECT_EQ(owners({}, {}, 0), Owners{});
  EXPECT_EQ(owners({{7, 0, 1}, {8, 1, 2}, {9, 2, 3}}, {64, 64, 64}, 128), (Owners{0, 1, 0}));
  EXPECT_EQ(owners({{7, 0, 0}, {8, 1, 1}, {9, 2, 2}}, {64, 64, 64}, 64), (Owners{0, 0, 0}));
  // Half of the memory may be unused, not more; and it must be enough.
  EXPECT_EQ(owners({{1, 0, 0}, {2, 1, 1}}, {128, 64}, 128), (Owners{0, 0}));
  EXPECT_EQ(owners({{1, 0, 0}, {2, 1, 1}}, {128, 63}, 191), (Owners{0, 1}));
  EXPECT_EQ(owners({{1, 0, 0}, {2, 1, 1}}, {64, 65}, 129), (Owners{0, 1}));
  EXPECT_EQ(owners({{1, 0, 0}, {2, 0, 0}, {3, 1, 1}}, {128, 96, 80}, 224), (Owners{0, 1, 1}));
  EXPECT_EQ(owners({{1, 0, 0}, {2, 0, 1}, {3, 2, 2}}, {64, 64, 64}, 128), (Owners{0, 1, 1}))
      << "what was freed last is in the caches";
  EXPECT_EQ(owners({{1, 0, 0}, {2, 1, 1}}, {64, 0}, 64), (Owners{0, 1}));
}

TEST(PassingValues, AreThoseThatNoOneElseSees) {
  const auto m = Program::memory;
  Program p;
  const auto x = p.buffer(true);
  auto t = x;
  std::vector<uint32_t> reversed;
  for (int i = 0; i < 4; ++i) {
    reversed.push_back(p.buffer(false));
    call(p, "test_reverse", {floats(t, 8, "r"), floats(reversed.back(), 8, "wc")}, 8);
    t = p.op(OpId::add, {m(reversed.back(), kF32), kNumber}, 8);
  }
  p.keep(t);
  p.keep(reversed[1]);
  const auto plan = p.plan();
  EXPECT_EQ(plan->attach, (std::vector<uint32_t>{x, reversed[1], t}));
  ASSERT_EQ(plan->passing.size(), 6u);
  EXPECT_EQ(plan->passing[0].slot, reversed[0]);
  EXPECT_EQ(plan->passing[0].first, 0);
  EXPECT_EQ(plan->passing[0].last, 1);
  EXPECT_EQ(plan->passing[5].slot, reversed[3]);
  EXPECT_EQ(plan->passing[5].first, 6);
  EXPECT_EQ(plan->passing[5].last, 7);
}

// Ten chunks of which only a sum is kept: by stages all of them are there at once.
TEST(PassingValues, AreFewAtOnceWhereRecordsRunInSegments) {
  const auto m = Program::memory;
  Program p;
  const auto x = p.buffer(true);
  auto sum = x;
  for (int i = 0; i < 10; ++i) {
    const auto chunk = p.op(OpId::mul, {m(x, kF32), kNumber}, 8, {static_cast<float>(i + 2)});
    const auto reversed = p.buffer(false);
    call(p, "test_reverse", {floats(chunk, 8, "r"), floats(reversed, 8, "wc")}, 8);
    const auto again = p.buffer(false);
    call(p, "test_reverse", {floats(reversed, 8, "r"), floats(again, 8, "wc")}, 8);
    const auto next = p.op(OpId::add, {m(sum, kF32), m(again, kF32)}, 8);
    p.in_place(OpId::maximum, next, {m(next, kF32), m(again, kF32)}, 8);
    sum = next;
  }
  p.keep(sum);
  const auto bytes_of = [](const Plan& plan) {
    MemorySharing sharing;
    sharing.find(plan.passing, std::vector<size_t>(plan.passing.size(), 32));
    return sharing.bytes();
  };
  PlanOptions options;
  const auto by_stages = p.plan(options);
  EXPECT_GE(bytes_of(*by_stages), 10u * 32);
  int before = by_stages->stats.kernels;
  for (const int segment : {25, 10, 5, 1}) {
    options.segment = segment;
    const auto plan = p.plan(options);
    EXPECT_LE(bytes_of(*plan), (3u + static_cast<size_t>(segment) / 5 * 2) * 32) << segment;
    EXPECT_GE(plan->stats.kernels, before);
    before = plan->stats.kernels;
    int last = 0;
    for (const Kernel& kernel : plan->kernels) {
      std::vector<int> records;
      if (kernel.call != nullptr) records.push_back(kernel.call->record);
      for (const Instr& instr : kernel.instrs) records.push_back(instr.record);
      for (const int record : records) EXPECT_EQ(record / segment, records[0] / segment);
      EXPECT_GE(records[0] / segment, last);
      last = records[0] / segment;
    }
  }
  EXPECT_EQ(before, 50);
}

// Tapes of ops, sums and calls on buffers of three sizes, whole and in parts, written once and
// again, of which a few are kept.
class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed) : random_(seed) {
    for (const int64_t n : {24, 48, 96}) add(program.buffer(true), n);
    const size_t steps = 5 + below(40);
    for (size_t i = 0; i < steps; ++i) step();
    for (const Made& made : made_) {
      if (below(6) == 0) program.keep(made.slot);
    }
    for (const Made& made : made_) {
      testing::Memory::value_type bytes(static_cast<size_t>(4 * made.n));
      for (int64_t i = 0; i < made.n; ++i) {
        testing::write(bytes.data() + 4 * i, kF32, static_cast<double>(below(33)) / 4 - 4);
      }
      memory.push_back(std::move(bytes));
    }
  }

  Program program;
  testing::Memory memory;  // at the beginning
  std::mt19937& random() { return random_; }

 private:
  struct Made {
    uint32_t slot;
    int64_t n;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  size_t below(size_t n) { return random_() % n; }
  void add(uint32_t slot, int64_t n) { made_.push_back({slot, n}); }
  // One of the latest, in whole or in part, but not `other`.
  TapeOperand operand(int64_t n, uint32_t other) {
    for (;;) {
      const Made& made = made_[made_.size() - 1 - below(std::min<size_t>(made_.size(), 12))];
      if (made.n < n || made.slot == other) {
        if (below(12) == 0) return Program::memory(2);
        continue;
      }
      TapeOperand o = Program::memory(made.slot);
      o.offset = 4 * static_cast<int64_t>(below(static_cast<size_t>(made.n - n) + 1));
      return o;
    }
  }
  void step() {
    const Made last = made_.back();
    const int64_t sizes[] = {24, 48, 96};
    const int64_t n = below(3) == 0 ? sizes[below(3)] : 24;
    switch (below(7)) {
      case 6: {
        if (last.n != 24) break;
        const auto out = program.op(OpId::maximum, {Program::memory(2), kNumber}, 96);
        const int64_t pitch = below(2) == 0 ? 8 : 20;
        program.copy_rows(out, last.slot, 4, 6, pitch, static_cast<int64_t>(below(3)));
        return add(out, 96);
      }
      case 0: {
        const auto out = program.buffer(false);
        call(program, "test_reverse", {floats(last.slot, last.n, "r"), floats(out, last.n, "wc")},
             static_cast<uint64_t>(last.n));
        return add(out, last.n);
      }
      case 1: {
        if (last.n != 96) break;
        return add(program.fold(Reduction::amax, last.slot, 24, 4), 24);
      }
      case 2: {
        if (last.slot < 3) break;
        const TapeOperand part = operand(24, last.slot);
        return program.in_place(OpId::minimum, last.slot, {Program::memory(last.slot), part}, 24);
      }
      default:
        break;
    }
    const OpId ops[] = {OpId::sub, OpId::maximum, OpId::minimum};
    const TapeOperand a = operand(n, kNone), b = operand(n, kNone);
    add(program.op(ops[below(3)], {a, b}, n), n);
  }

  std::mt19937 random_;
  std::vector<Made> made_;
};

TEST(PassingValues, KeepTheirContentsAsLongAsTheyAreWanted) {
  int64_t values = 0, shared = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    RandomProgram made(seed);
    const Program& p = made.program;
    testing::Memory expected = made.memory;
    testing::run_tape(p.tape.words(), p.tape.immediates(), expected);
    for (const int segment : {INT_MAX, 7, 1}) {
      PlanOptions options;
      options.segment = segment;
      options.fuse = seed % 8 != 0;
      if (seed % 3 != 0) options.limits.max_instrs = 2 + static_cast<int>(seed % 5);
      const auto plan = p.plan(options);
      testing::Memory memory = made.memory;
      std::vector<size_t> bytes;
      for (const PassingValue& value : plan->passing) bytes.push_back(memory[value.slot].size());
      MemorySharing sharing;
      sharing.find(plan->passing, bytes);
      // The plan on memory that is shared: each slot becomes that of the owner.
      std::vector<uint32_t> place(memory.size());
      for (uint32_t s = 0; s < place.size(); ++s) place[s] = s;
      for (size_t k = 0; k < bytes.size(); ++k) {
        const uint32_t owner = sharing.owners()[k];
        ASSERT_GE(bytes[owner], bytes[k]);
        place[plan->passing[k].slot] = plan->passing[owner].slot;
        ++values;
        shared += owner != k;
      }
      for (Kernel& kernel : plan->kernels) {
        for (MemoryAccess& access : kernel.accesses) access.slot = place[access.slot];
        if (kernel.call == nullptr) continue;
        for (CallSlot& o : kernel.call->operands) o.slot = place[o.slot];
      }
      testing::run_plan(*plan, p.tape.immediates(), memory, made.random());
      for (size_t s = 0; s < memory.size(); ++s) {
        if ((p.states()[s] & kSlotLive) == 0) continue;
        ASSERT_TRUE(memory[s] == expected[s])
            << "seed " << seed << ", segments of " << segment << ", slot " << s << "\n"
            << print_tape(p.tape.words()) << print_plan(*plan);
      }
    }
  }
  EXPECT_GT(shared * 4, values) << "sharing that never happens would pass the comparison";
}

}  // namespace
}  // namespace hologram::circuit
