// SPDX-License-Identifier: MIT
// Generated loops of many steps against the steps run one by one: registers, shared memory, phases.
#include <algorithm>
#include <thread>

#include "tests/cpp/cpu/jit_cases.h"

namespace hologram::cpu {
namespace {

class JitLoops : public JitTest {};

// A random loop: values of any dtype, conversions where a row wants another one.
Loop random_loop(std::mt19937_64& rng, Isa isa, size_t steps, bool calls) {
  Loop loop;
  constexpr Dtype kStored[] = {Dtype::kBool,     Dtype::kInt32,   Dtype::kInt64,   Dtype::kFloat16,
                               Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat32, Dtype::kFloat64};
  const size_t inputs = 1 + rng() % 5, numbers = rng() % 4;
  const bool uniform = rng() % 2 == 0;  // floats of one dtype, the usual case
  for (size_t i = 0; i < inputs; ++i) {
    loop.inputs.push_back(uniform ? Dtype::kFloat32 : kStored[rng() % std::size(kStored)]);
  }
  for (size_t i = 0; i < numbers; ++i) {
    loop.numbers.push_back(uniform ? Dtype::kFloat32 : kStored[rng() % std::size(kStored)]);
  }
  const auto dtype_of = [&](Ref ref) {
    return ref.kind == Ref::kAccess      ? loop.inputs[ref.index]
           : ref.kind == Ref::kImmediate ? loop.numbers[ref.index]
                                         : loop.instrs[ref.index].result;
  };
  const auto any = [&]() -> Ref {
    const size_t made = loop.instrs.size();
    const size_t chosen = rng() % (inputs + numbers + 2 * made);
    if (chosen < inputs) return {Ref::kAccess, static_cast<uint32_t>(chosen)};
    if (chosen < inputs + numbers) {
      return {Ref::kImmediate, static_cast<uint32_t>(chosen - inputs)};
    }
    return {Ref::kTemp, static_cast<uint32_t>((chosen - inputs - numbers) % made)};
  };
  const auto converted = [&](Ref ref, Dtype to, bool& possible) -> Ref {
    const Dtype from = dtype_of(ref);
    if (from == to) return ref;
    Instr step;
    step.code = circuit::kCodeConvert;
    step.compute = from;
    step.result = to;
    step.arity = 1;
    step.in[0] = ref;
    if (!jit_takes(isa, step)) {
      possible = false;
      return ref;
    }
    loop.instrs.push_back(step);
    return {Ref::kTemp, static_cast<uint32_t>(loop.instrs.size() - 1)};
  };
  while (loop.instrs.size() < steps) {
    const OpInfo& row = ops()[rng() % ops().size()];
    if (row.is_heavy() && !calls) continue;
    const Dtype compute = uniform ? Dtype::kFloat32 : kDtypes[rng() % std::size(kDtypes)];
    if (!row.supports(compute)) continue;
    Instr step = row_instr(row, compute);
    bool possible = true;
    for (int k = 0; k < row.arity; ++k) step.in[k] = converted(any(), compute, possible);
    if (possible) loop.instrs.push_back(step);
  }
  for (size_t i = 0; i < loop.instrs.size(); ++i) {
    if (i + 1 < loop.instrs.size() && rng() % 4 != 0) continue;
    loop.instrs[i].out = {Ref::kAccess, static_cast<uint32_t>(loop.outputs.size())};
    loop.outputs.push_back(loop.instrs[i].result);
  }
  return loop;
}

TEST_P(JitLoops, RandomLoopsGiveTheBitsOfTheirSteps) {
  std::mt19937_64 rng(4);
  for (int round = 0; round < 300; ++round) {
    const Loop loop = random_loop(rng, GetParam(), 2 + rng() % 23, round % 3 == 0);
    for (int64_t n : {static_cast<int64_t>(rng() % 70), int64_t{1000}}) {
      check(loop, n, rng() % 2, rng);
      if (HasFatalFailure()) return;
    }
  }
}

// As programs of hundreds of ops are: most values wait in memory, and its places are used again.
TEST_P(JitLoops, LongLoopsGiveTheBitsOfTheirSteps) {
  std::mt19937_64 rng(8);
  for (int round = 0; round < 60; ++round) {
    const Loop loop = random_loop(rng, GetParam(), 50 + rng() % 250, round % 3 == 0);
    check(loop, static_cast<int64_t>(rng() % 70), 0, rng);
    if (HasFatalFailure()) return;
  }
}

// Outputs take the place of inputs whose elements are as large.
void replace_inputs(Case& c) {
  std::vector<char> taken(c.loop.inputs.size(), 0);
  for (size_t o = 0; o < c.loop.outputs.size(); ++o) {
    for (size_t i = 0; i < c.loop.inputs.size(); ++i) {
      if (taken[i] || itemsize(c.loop.inputs[i]) != itemsize(c.loop.outputs[o])) continue;
      taken[i] = 1;
      c.outputs[o] = const_cast<void*>(c.inputs[i]);
      break;
    }
  }
}

// Rows of every length that begin anywhere, the last one before memory that may not be read, of any
// dtypes. Nothing between the rows is written.
TEST_P(JitLoops, RowsOfEveryLengthGiveTheBitsOfTheirSteps) {
  std::mt19937_64 rng(9);
  int made = 0;
  for (int round = 0; round < 600; ++round) {
    Case c;
    c.loop = random_loop(rng, GetParam(), 1 + rng() % (round % 8 == 0 ? 40 : 8), false);
    c.loop.by_rows = true;
    const JitLoop kernel = compiled(GetParam(), c.loop);
    if (kernel == nullptr) continue;
    ++made;
    const int64_t rows = 1 + static_cast<int64_t>(rng() % 4);
    const int64_t cols = 1 + static_cast<int64_t>(rng() % (round % 2 == 0 ? 70 : 12));
    const int64_t pitch = cols + static_cast<int64_t>(rng() % 5);
    c.n = (rows - 1) * pitch + cols;
    c.make(rng);
    if (rng() % 2 == 0) replace_inputs(c);
    const auto values = c.expected();
    std::vector<int64_t> steps;
    for (Dtype dtype : c.loop.inputs)
      steps.push_back(pitch * static_cast<int64_t>(itemsize(dtype)));
    steps.resize(steps.size() + c.loop.numbers.size(), 0);
    std::vector<std::vector<char>> before;
    for (size_t o = 0; o < c.outputs.size(); ++o) {
      const size_t size = itemsize(c.loop.outputs[o]);
      steps.push_back(pitch * static_cast<int64_t>(size));
      const char* data = static_cast<const char*>(c.outputs[o]);
      before.emplace_back(data, data + static_cast<size_t>(c.n) * size);
    }
    kernel.get()(c.inputs.data(), c.numbers.data(), c.outputs.data(), cols, rows, steps.data());
    for (size_t o = 0; o < c.outputs.size(); ++o) {
      // What lies between rows is put where expect_same() finds it equal.
      const size_t size = itemsize(c.loop.outputs[o]);
      const auto made_by =
          std::find_if(c.loop.instrs.begin(), c.loop.instrs.end(),
                       [&](const Instr& instr) {
                         return instr.out.kind == Ref::kAccess && instr.out.index == o;
                       }) -
          c.loop.instrs.begin();
      char* got = static_cast<char*>(c.outputs[o]);
      for (int64_t i = 0; i < c.n; ++i) {
        if (i % pitch < cols) continue;
        const size_t at = static_cast<size_t>(i) * size;
        ASSERT_EQ(std::memcmp(got + at, &before[o][at], size), 0)
            << describe(c.loop) << "wrote behind a row of " << cols;
        std::memcpy(got + at, &values[static_cast<size_t>(made_by)][at], size);
      }
    }
    expect_same(c, values, false);
    ASSERT_FALSE(HasFatalFailure()) << rows << " rows of " << cols;
  }
  EXPECT_GT(made, 400);
}

// Results may replace the inputs they come from, whatever else reads those.
TEST_P(JitLoops, OutputsMayReplaceInputs) {
  std::mt19937_64 rng(5);
  for (int round = 0; round < 300; ++round) {
    const Loop loop = random_loop(rng, GetParam(), 2 + rng() % 10, round % 2 == 0);
    Case c;
    c.loop = loop;
    c.n = static_cast<int64_t>(1 + rng() % 2500);
    c.make(rng);
    replace_inputs(c);
    const auto values = c.expected();
    const JitLoop kernel = compiled(GetParam(), loop);
    ASSERT_FALSE(kernel == nullptr);
    kernel.get()(c.inputs.data(), c.numbers.data(), c.outputs.data(), c.n, 1, nullptr);
    expect_same(c, values, false);
    if (HasFatalFailure()) return;
  }
}

// More values alive than there are registers, of vectors and of masks.
TEST_P(JitLoops, ValuesBeyondTheRegistersAreKept) {
  std::mt19937_64 rng(6);
  for (const char* name : {"add", "lt"}) {
    Loop loop;
    const OpInfo& row = op_info(*find_op(name));
    constexpr int kWide = 48;
    for (int i = 0; i < kWide; ++i) loop.inputs.push_back(Dtype::kFloat32);
    for (int i = 0; i < kWide; ++i) {
      Instr step = row_instr(row, Dtype::kFloat32);
      step.in[0] = {Ref::kAccess, static_cast<uint32_t>(i)};
      step.in[1] = {Ref::kAccess, static_cast<uint32_t>((i + 7) % kWide)};
      loop.instrs.push_back(step);
    }
    const OpInfo& join = op_info(*find_op(row.result_is_bool ? "logical_xor" : "mul"));
    for (int i = 0; i < kWide; ++i) {
      Instr step = row_instr(join, loop.instrs[0].result);
      step.in[0] = {Ref::kTemp, static_cast<uint32_t>(kWide - 1 - i)};
      step.in[1] = {Ref::kTemp, static_cast<uint32_t>(i == 0 ? 0 : kWide + i - 1)};
      loop.instrs.push_back(step);
    }
    loop.instrs.back().out = {Ref::kAccess, 0};
    loop.outputs = {loop.instrs[0].result};
    for (int64_t n : {5, 100, 1000}) check(loop, n, 1, rng);
  }
}

TEST_P(JitLoops, ManyThreadsGetOneKernelForOneLoop) {
  std::vector<std::vector<JitLoop>> kernels(8);
  std::vector<std::thread> threads;
  for (auto& mine : kernels) {
    threads.emplace_back([&mine, isa = GetParam()] {
      std::mt19937_64 rng(7);
      for (int i = 0; i < 60; ++i) {
        const Loop loop = random_loop(rng, isa, 2 + rng() % 8, true);
        mine.push_back(compiled(isa, loop));
        Case c;
        c.loop = loop;
        c.n = 100;
        c.make(rng);
        const auto values = c.expected();
        mine.back().get()(c.inputs.data(), c.numbers.data(), c.outputs.data(), c.n, 1, nullptr);
        expect_same(c, values, false);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : kernels) EXPECT_EQ(mine, kernels[0]);
}

// x + y and x y of the elements whose bits are set. x and the sums lie with gaps, y and the
// products without.
template <class T>
void check_gaps(Isa isa, Dtype dtype, int64_t n, std::mt19937_64& rng) {
  jit::LoopGraph graph(isa);
  const jit::Symbol in[] = {graph.input(0, dtype), graph.input(1, dtype)};
  graph.outputs = {graph.compute(row_instr(op_info(OpId::add), dtype), in).id,
                   graph.compute(row_instr(op_info(OpId::mul), dtype), in).id};
  graph.has_gaps = true;
  graph.packed_inputs = graph.packed_outputs = {0, 1};
  const JitLoop loop = jit_compile(graph);
  ASSERT_FALSE(loop == nullptr);

  std::vector<uint64_t> kept(static_cast<size_t>(n / 64) + 2);
  for (uint64_t& word : kept) word = rng() & rng();  // also behind the last element
  std::vector<int64_t> places;
  for (int64_t i = 0; i < n; ++i) {
    if (kept[static_cast<size_t>(i / 64)] >> (i % 64) & 1) places.push_back(i);
  }
  const size_t all = static_cast<size_t>(n) * sizeof(T), some = places.size() * sizeof(T);
  const Guarded x_memory(all), sum_memory(all), y_memory(some), product_memory(some);
  T* const x = reinterpret_cast<T*>(x_memory.last(all));
  T* const sums = reinterpret_cast<T*>(sum_memory.last(all));
  T* const y = reinterpret_cast<T*>(y_memory.last(some));
  T* const products = reinterpret_cast<T*>(product_memory.last(some));
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(rng() % 1000), sums[i] = T(-7);
  for (size_t i = 0; i < places.size(); ++i) y[i] = static_cast<T>(rng() % 1000);
  std::vector<T> expected(static_cast<size_t>(n), T(-7));
  for (size_t i = 0; i < places.size(); ++i) {
    expected[static_cast<size_t>(places[i])] = x[places[i]] + y[i];
  }
  const void* inputs[] = {x, y};
  void* outputs[] = {sums, products};
  loop.get()(inputs, nullptr, outputs, n, 1, reinterpret_cast<const int64_t*>(kept.data()));
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(sums[i], expected[static_cast<size_t>(i)]) << i;
  for (size_t i = 0; i < places.size(); ++i) ASSERT_EQ(products[i], x[places[i]] * y[i]) << i;
}

TEST_P(JitLoops, GapsAreNotStoredAndNothingBesideIsTouched) {
  if (GetParam() != Isa::kAvx512) GTEST_SKIP() << "loops with gaps need masks";
  std::mt19937_64 rng(6);
  for (const int64_t n : {1, 7, 8, 15, 16, 17, 31, 63, 64, 65, 127, 200, 1000, 8192}) {
    for (int round = 0; round < 4; ++round) {
      check_gaps<float>(GetParam(), Dtype::kFloat32, n, rng);
      check_gaps<double>(GetParam(), Dtype::kFloat64, n, rng);
      check_gaps<int32_t>(GetParam(), Dtype::kInt32, n, rng);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, JitLoops, ::testing::Values(Isa::kAvx2, Isa::kAvx512), isa_of);

}  // namespace
}  // namespace hologram::cpu
