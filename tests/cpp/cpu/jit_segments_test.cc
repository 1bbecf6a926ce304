// SPDX-License-Identifier: MIT
// Generated loops of many steps against the steps run one by one: registers, shared memory, phases.
#include <thread>

#include "tests/cpp/cpu/jit_cases.h"

namespace hologram::cpu {
namespace {

class JitSegments : public JitTest {};

// A random segment: values of any dtype, conversions where a row wants another one.
Segment random_segment(std::mt19937_64& rng, Isa isa, size_t steps, bool calls) {
  Segment segment;
  constexpr Dtype kStored[] = {Dtype::kBool,     Dtype::kInt32,   Dtype::kInt64,   Dtype::kFloat16,
                               Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat32, Dtype::kFloat64};
  const size_t inputs = 1 + rng() % 5, numbers = rng() % 4;
  const bool uniform = rng() % 2 == 0;  // floats of one dtype, the usual case
  for (size_t i = 0; i < inputs; ++i) {
    segment.inputs.push_back(uniform ? Dtype::kFloat32 : kStored[rng() % std::size(kStored)]);
  }
  for (size_t i = 0; i < numbers; ++i) {
    segment.numbers.push_back(uniform ? Dtype::kFloat32 : kStored[rng() % std::size(kStored)]);
  }
  const auto dtype_of = [&](SegmentRef ref) {
    return ref.kind == SegmentRef::kInput    ? segment.inputs[ref.index]
           : ref.kind == SegmentRef::kNumber ? segment.numbers[ref.index]
                                             : segment.steps[ref.index].result;
  };
  const auto any = [&]() -> SegmentRef {
    const size_t made = segment.steps.size();
    const size_t chosen = rng() % (inputs + numbers + 2 * made);
    if (chosen < inputs) return {SegmentRef::kInput, static_cast<uint8_t>(chosen)};
    if (chosen < inputs + numbers) {
      return {SegmentRef::kNumber, static_cast<uint8_t>(chosen - inputs)};
    }
    return {SegmentRef::kStep, static_cast<uint8_t>((chosen - inputs - numbers) % made)};
  };
  const auto converted = [&](SegmentRef ref, Dtype to, bool& possible) -> SegmentRef {
    const Dtype from = dtype_of(ref);
    if (from == to) return ref;
    SegmentStep step;
    step.convert = true;
    step.compute = from;
    step.result = to;
    step.arity = 1;
    step.in[0] = ref;
    if (!jit_takes(isa, step)) {
      possible = false;
      return ref;
    }
    segment.steps.push_back(step);
    return {SegmentRef::kStep, static_cast<uint8_t>(segment.steps.size() - 1)};
  };
  while (segment.steps.size() < steps) {
    const OpInfo& row = ops()[rng() % ops().size()];
    if (row.is_heavy() && !calls) continue;
    const Dtype compute = uniform ? Dtype::kFloat32 : kDtypes[rng() % std::size(kDtypes)];
    if (!row.supports(compute)) continue;
    SegmentStep step = row_step(row, compute);
    bool possible = true;
    for (int k = 0; k < row.arity; ++k) step.in[k] = converted(any(), compute, possible);
    if (possible) segment.steps.push_back(step);
  }
  for (size_t i = 0; i < segment.steps.size(); ++i) {
    if (i + 1 < segment.steps.size() && rng() % 4 != 0) continue;
    segment.steps[i].output = static_cast<int>(segment.outputs.size());
    segment.outputs.push_back(segment.steps[i].result);
  }
  return segment;
}

TEST_P(JitSegments, RandomSegmentsGiveTheBitsOfTheirSteps) {
  std::mt19937_64 rng(4);
  for (int round = 0; round < 300; ++round) {
    const Segment segment = random_segment(rng, GetParam(), 2 + rng() % 23, round % 3 == 0);
    for (int64_t n : {static_cast<int64_t>(rng() % 70), int64_t{1000}}) {
      check(segment, n, rng() % 2, rng);
      if (HasFatalFailure()) return;
    }
  }
}

// Results may replace the inputs they come from, whatever else reads those.
TEST_P(JitSegments, OutputsMayReplaceInputs) {
  std::mt19937_64 rng(5);
  for (int round = 0; round < 300; ++round) {
    const Segment segment = random_segment(rng, GetParam(), 2 + rng() % 10, round % 2 == 0);
    Case c;
    c.segment = segment;
    c.n = static_cast<int64_t>(1 + rng() % 2500);
    c.make(rng);
    std::vector<char> taken(segment.inputs.size(), 0);
    for (size_t o = 0; o < segment.outputs.size(); ++o) {
      for (size_t i = 0; i < segment.inputs.size(); ++i) {
        if (taken[i] || itemsize(segment.inputs[i]) != itemsize(segment.outputs[o])) continue;
        taken[i] = 1;
        c.outputs[o] = const_cast<void*>(c.inputs[i]);
        break;
      }
    }
    const auto values = c.expected();
    const JitLoop kernel = jit_compile(GetParam(), segment);
    ASSERT_FALSE(kernel == nullptr);
    kernel(c.inputs.data(), c.numbers.data(), c.outputs.data(), c.n, 1, nullptr);
    expect_same(c, values, false);
    if (HasFatalFailure()) return;
  }
}

// More values alive than there are registers, of vectors and of masks.
TEST_P(JitSegments, ValuesBeyondTheRegistersAreKept) {
  std::mt19937_64 rng(6);
  for (const char* name : {"add", "lt"}) {
    Segment segment;
    const OpInfo& row = op_info(*find_op(name));
    constexpr int kWide = 48;
    for (int i = 0; i < kWide; ++i) segment.inputs.push_back(Dtype::kFloat32);
    for (int i = 0; i < kWide; ++i) {
      SegmentStep step = row_step(row, Dtype::kFloat32);
      step.in[0] = {SegmentRef::kInput, static_cast<uint8_t>(i)};
      step.in[1] = {SegmentRef::kInput, static_cast<uint8_t>((i + 7) % kWide)};
      segment.steps.push_back(step);
    }
    const OpInfo& join = op_info(*find_op(row.result_is_bool ? "logical_xor" : "mul"));
    for (int i = 0; i < kWide; ++i) {
      SegmentStep step = row_step(join, segment.steps[0].result);
      step.in[0] = {SegmentRef::kStep, static_cast<uint8_t>(kWide - 1 - i)};
      step.in[1] = {SegmentRef::kStep, static_cast<uint8_t>(i == 0 ? 0 : kWide + i - 1)};
      segment.steps.push_back(step);
    }
    segment.steps.back().output = 0;
    segment.outputs = {segment.steps[0].result};
    for (int64_t n : {5, 100, 1000}) check(segment, n, 1, rng);
  }
}

TEST_P(JitSegments, ManyThreadsGetOneKernelForOneSegment) {
  std::vector<std::vector<JitLoop>> kernels(8);
  std::vector<std::thread> threads;
  for (auto& mine : kernels) {
    threads.emplace_back([&mine, isa = GetParam()] {
      std::mt19937_64 rng(7);
      for (int i = 0; i < 60; ++i) {
        const Segment segment = random_segment(rng, isa, 2 + rng() % 8, true);
        mine.push_back(jit_compile(isa, segment));
        Case c;
        c.segment = segment;
        c.n = 100;
        c.make(rng);
        const auto values = c.expected();
        mine.back()(c.inputs.data(), c.numbers.data(), c.outputs.data(), c.n, 1, nullptr);
        expect_same(c, values, false);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : kernels) EXPECT_EQ(mine, kernels[0]);
}

INSTANTIATE_TEST_SUITE_P(Isas, JitSegments, ::testing::Values(Isa::kAvx2, Isa::kAvx512), isa_of);

}  // namespace
}  // namespace hologram::cpu
