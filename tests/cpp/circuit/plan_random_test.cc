// SPDX-License-Identifier: MIT
// The planner: random tapes against their records run one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <random>

#include "src/circuit/plan.h"
#include "tests/cpp/circuit/interpreter.h"
#include "tests/cpp/circuit/random_tape.h"

namespace hologram::circuit {
namespace {

// Of an elementwise op: whether the device has it, by what it computes in, reads and leaves.
bool is_native(const Kernel& kernel, const Instr& instr, const NativeOps& native) {
  const auto dtype_of = [&](const Ref& ref) {
    if (ref.kind == Ref::kAccess) return kernel.accesses[ref.index].dtype;
    if (ref.kind != Ref::kTemp) return instr.compute;
    for (const Instr& other : kernel.instrs) {  // what was converted for it
      const bool converts = other.code == kCodeConvert && other.out == ref;
      if (converts && other.in[0].kind == Ref::kAccess) {
        return kernel.accesses[other.in[0].index].dtype;
      }
    }
    return kernel.temps[ref.index].dtype;
  };
  bool has = native.has(instr.compute) && native.has(instr.op(), instr.compute) &&
             native.has(dtype_of(instr.out));
  for (int k = 0; k < instr.arity; ++k) has = has && native.has(dtype_of(instr.in[k]));
  for (const Instr& other : kernel.instrs) {  // what its result is converted to
    if (other.code == kCodeConvert && other.record == instr.record && other.in[0] == instr.out) {
      has = has && native.has(dtype_of(other.out));
    }
  }
  return has;
}

// The device runs all of the kernel, or nothing that it has is in there.
bool is_of_one_side(const Kernel& kernel, const NativeOps& native) {
  bool all = true, none = true;
  const auto add = [&](bool has) { all = all && has, none = none && !has; };
  for (const MemoryAccess& access : kernel.accesses) all = all && native.has(access.dtype);
  for (const Temp& temp : kernel.temps) all = all && native.has(temp.dtype);
  for (const Instr& instr : kernel.instrs) {
    if (instr.is_op()) add(is_native(kernel, instr, native));
  }
  return all || none;
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
  std::vector<uint32_t> slots, numbers;
  for_slots(kernel, [&](uint32_t slot) { slots.push_back(slot); });
  for (const Instr& instr : kernel.instrs) {
    for (int k = 0; k < instr.arity; ++k) {
      if (instr.in[k].kind == Ref::kImmediate) numbers.push_back(instr.in[k].index);
    }
  }
  for (auto* list : {&slots, &numbers}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  if ((kernel.call == nullptr || !alone) && limits.max_arguments != INT_MAX) {
    EXPECT_LE(slots.size() + numbers.size(), static_cast<size_t>(limits.max_arguments));
  }
  if (limits.native != nullptr) {
    EXPECT_TRUE(is_of_one_side(kernel, *limits.native)) << "seed " << seed;
  }
  EXPECT_TRUE(alone || !reduces || limits.fuse_reductions) << "seed " << seed;
  EXPECT_TRUE(alone || !has_row_function || limits.fuse_row_functions) << "seed " << seed;
  if (kernel.call != nullptr && !alone) {
    EXPECT_TRUE(limits.call_result == nullptr) << "seed " << seed;
    EXPECT_TRUE(limits.fuse_rows_of_calls || !kernel.whole_rows) << "seed " << seed;
  }
}

TEST(Plan, RandomTapesMeanTheirRecords) {
  int64_t ops = 0, kernels = 0, joined = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    testing::RandomTape program(seed);
    testing::Memory expected = program.memory();
    testing::run_tape(program.tape().words(), program.tape().immediates(), expected);
    for (const bool fuse : {true, false}) {
      PlanOptions options;
      options.fuse = fuse;
      options.limits = testing::some_limits(seed);
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
    testing::RandomTape program(seed);
    const auto a = make_plan(program.tape().words(), program.states());
    const auto b = make_plan(program.tape().words(), program.states());
    EXPECT_EQ(print_plan(*a), print_plan(*b));
    EXPECT_EQ(canonical_hash(*a), canonical_hash(*b));
  }
}

}  // namespace
}  // namespace hologram::circuit
