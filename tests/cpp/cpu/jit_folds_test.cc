// SPDX-License-Identifier: MIT
// Generated loops over rows, with numbers and sums of each row and stores past the caches, against
// steps and folds run one by one.
#include <cmath>

#include "src/cpu/reduce/reduce_kernels.h"
#include "tests/cpp/cpu/jit_cases.h"

namespace hologram::cpu {
namespace {

class JitFolds : public JitTest {};

// Floats of one dtype, at times read from bfloat16.
Loop random_rows(std::mt19937_64& rng, Dtype dtype, size_t steps, size_t folds) {
  Loop loop;
  loop.by_rows = true;
  const size_t inputs = 1 + rng() % 3, numbers = rng() % 3;
  loop.inputs.assign(inputs, dtype);
  loop.numbers.assign(numbers, dtype);
  const bool half = dtype == Dtype::kFloat32 && rng() % 4 == 0;
  if (half) {
    loop.inputs.push_back(Dtype::kBFloat16);
    Instr step;
    step.code = circuit::kCodeConvert;
    step.compute = Dtype::kBFloat16;
    step.result = dtype;
    step.arity = 1;
    step.in[0] = {Ref::kAccess, static_cast<uint32_t>(inputs)};
    loop.instrs.push_back(step);
  }
  const auto any = [&]() -> Ref {
    const size_t chosen = rng() % (inputs + numbers + 2 * loop.instrs.size());
    if (chosen < inputs) return {Ref::kAccess, static_cast<uint32_t>(chosen)};
    if (chosen < inputs + numbers) {
      return {Ref::kImmediate, static_cast<uint32_t>(chosen - inputs)};
    }
    const size_t made = loop.instrs.size();
    return {Ref::kTemp, static_cast<uint32_t>((chosen - inputs - numbers) % made)};
  };
  while (loop.instrs.size() < steps) {
    const OpInfo& row = ops()[rng() % ops().size()];
    if (!row.supports(dtype) || row.result_is_bool) continue;
    if (row.is_heavy() && rng() % 8 != 0) continue;
    Instr step = row_instr(row, dtype);
    for (int k = 0; k < row.arity; ++k) step.in[k] = any();
    loop.instrs.push_back(step);
  }
  for (Instr& step : loop.instrs) {
    if (&step != &loop.instrs.back() && rng() % 3 != 0) continue;
    step.out = {Ref::kAccess, static_cast<uint32_t>(loop.outputs.size())};
    loop.outputs.push_back(step.result);
  }
  constexpr Fold kFolds[] = {Fold::kSum, Fold::kSumSquare, Fold::kSumAbs};
  for (size_t k = 0; k < folds; ++k) {
    // Of an array or a step: a number has no row.
    Ref of = any();
    while (of.kind == Ref::kImmediate) of = any();
    loop.folds.push_back({kFolds[rng() % 3], of});
  }
  return loop;
}

// Rows of arrays one after the other, `gap` elements apart.
struct Rows {
  int64_t rows, cols, pitch;
  std::vector<std::vector<char>> inputs, numbers, outputs, sums;

  // Begins at a multiple of 64 bytes.
  static char* aligned(std::vector<char>& bytes) {
    const auto address = reinterpret_cast<uintptr_t>(bytes.data());
    return bytes.data() + (64 - address % 64) % 64;
  }

  Rows(const Loop& loop, int64_t r, int64_t c, int64_t p, std::mt19937_64& rng)
      : rows(r), cols(c), pitch(p) {
    const auto make = [&](std::vector<std::vector<char>>& list, Dtype dtype, int64_t n) {
      const size_t size = itemsize(dtype);
      list.emplace_back(static_cast<size_t>(n) * size + 128, static_cast<char>(0xa5));
      // Mostly such that sums are numbers, whose last bits tell the order of the terms.
      std::uniform_real_distribution<double> plain(-2, 2);
      for (int64_t i = 0; i < n; ++i) {
        char* to = aligned(list.back()) + static_cast<size_t>(i) * size;
        if (rng() % 2000 == 0) {
          fill_random(dtype, to, 1, rng);
        } else {
          const double value = plain(rng);
          convert(Dtype::kFloat64, &value, dtype, to, 1);
        }
      }
    };
    for (Dtype dtype : loop.inputs) make(inputs, dtype, rows * pitch);
    for (Dtype dtype : loop.numbers) make(numbers, dtype, rows);
    for (Dtype dtype : loop.outputs) make(outputs, dtype, rows * pitch);
    for (size_t k = 0; k < loop.folds.size(); ++k) make(sums, Dtype::kFloat64, rows);
  }
};

// The elements of a row, reduced as one block.
std::vector<char> accumulated(const FoldKernel& kernel, const void* x, int64_t n, bool is_block) {
  std::vector<char> acc(static_cast<size_t>(kernel.acc_size));
  kernel.init(acc.data(), 1);
  if (is_block) {
    kernel.blocks(x, 1, acc.data());
  } else {
    kernel.rows(x, 1, n, n, 0, acc.data(), 2);
  }
  return acc;
}

void expect_rows(const Loop& loop, Rows& memory, std::mt19937_64& rng, int* finite) {
  const JitLoop kernel = compiled(current_isa(), loop);
  ASSERT_FALSE(kernel == nullptr) << describe(loop);
  const Rows before = memory;
  std::vector<const void*> in, numbers;
  std::vector<void*> out;
  std::vector<int64_t> steps;
  for (size_t i = 0; i < memory.inputs.size(); ++i) {
    in.push_back(Rows::aligned(memory.inputs[i]));
    // One row may be the row of all.
    const bool repeated = rng() % 4 == 0;
    steps.push_back(repeated ? 0 : memory.pitch * static_cast<int64_t>(itemsize(loop.inputs[i])));
  }
  for (size_t i = 0; i < memory.numbers.size(); ++i) {
    numbers.push_back(Rows::aligned(memory.numbers[i]));
    steps.push_back(static_cast<int64_t>(itemsize(loop.numbers[i])));
  }
  for (size_t i = 0; i < memory.outputs.size(); ++i) {
    out.push_back(Rows::aligned(memory.outputs[i]));
    steps.push_back(memory.pitch * static_cast<int64_t>(itemsize(loop.outputs[i])));
  }
  for (auto& sums : memory.sums) out.push_back(Rows::aligned(sums));
  kernel.get()(in.data(), numbers.data(), out.data(), memory.cols, memory.rows, steps.data());
  for (int64_t r = 0; r < memory.rows; ++r) {
    Case row;
    row.loop = loop;
    row.n = memory.cols;
    for (size_t i = 0; i < in.size(); ++i) {
      row.inputs.push_back(static_cast<const char*>(in[i]) + r * steps[i]);
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      row.numbers.push_back(static_cast<const char*>(numbers[i]) + r * steps[in.size() + i]);
    }
    for (size_t i = 0; i < memory.outputs.size(); ++i) {
      row.outputs.push_back(static_cast<char*>(out[i]) + r * steps[in.size() + numbers.size() + i]);
    }
    const auto values = row.expected();
    expect_same(row, values, false);
    for (size_t k = 0; k < loop.folds.size(); ++k) {
      const Loop::Sum& fold = loop.folds[k];
      const bool of_input = fold.of.kind == Ref::kAccess;
      const Dtype dtype = of_input ? loop.inputs[fold.of.index] : loop.instrs[fold.of.index].result;
      const FoldKernel& folded = fold_kernel(current_isa(), fold.fold, dtype);
      const void* x = of_input ? row.inputs[fold.of.index] : values[fold.of.index].data();
      const char* sum = static_cast<const char*>(out[memory.outputs.size() + k]) +
                        r * static_cast<int64_t>(itemsize(dtype));
      const auto want = accumulated(folded, x, memory.cols, false);
      const auto got = accumulated(folded, sum, 1, true);
      double a, b;
      std::memcpy(&a, want.data(), 8);
      std::memcpy(&b, got.data(), 8);
      *finite += std::isfinite(a);
      ASSERT_TRUE(got == want || (a != a && b != b))
          << describe(loop) << "fold " << k << " of row " << r << ", " << memory.cols
          << " columns: " << b << ", not " << a;
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
  // Nothing beyond the rows' elements.
  for (size_t i = 0; i < memory.outputs.size(); ++i) {
    std::vector<char> expected = before.outputs[i];
    const size_t size = itemsize(loop.outputs[i]);
    const auto lead = Rows::aligned(memory.outputs[i]) - memory.outputs[i].data();
    for (int64_t r = 0; r < memory.rows; ++r) {
      const size_t at = static_cast<size_t>(lead) + static_cast<size_t>(r * memory.pitch) * size;
      std::memcpy(&expected[at], &memory.outputs[i][at], static_cast<size_t>(memory.cols) * size);
    }
    EXPECT_EQ(expected, memory.outputs[i]) << describe(loop) << "wrote between rows";
  }
}

TEST_P(JitFolds, RowsGiveTheBitsOfStepsAndFolds) {
  std::mt19937_64 rng(8);
  int made = 0, finite = 0;
  for (int round = 0; round < 400; ++round) {
    const Dtype dtype = rng() % 4 == 0 ? Dtype::kFloat64 : Dtype::kFloat32;
    // Short bodies keep their sums in registers, longer ones in memory.
    const size_t steps = rng() % 2 == 0 ? 1 + rng() % 4 : 1 + rng() % 20;
    const Loop loop = random_rows(rng, dtype, steps, rng() % 4);
    // A value that is the same all along a row is no row to fold, and calls have no rows.
    if (compiled(GetParam(), loop) == nullptr) continue;
    made += 1;
    constexpr int64_t kCols[] = {1, 2, 7, 8, 15, 16, 31, 33, 64, 65, 127, 128, 129, 200, 768, 1000};
    const int64_t cols = kCols[rng() % std::size(kCols)];
    const int64_t rows = 1 + static_cast<int64_t>(rng() % 5);
    Rows memory(loop, rows, cols, cols + static_cast<int64_t>(rng() % 3), rng);
    expect_rows(loop, memory, rng, &finite);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(made, 300);
  EXPECT_GT(finite, 400);
}

TEST_P(JitFolds, StoresPastTheCachesChangeNoBit) {
  std::mt19937_64 rng(9);
  int finite = 0;
  for (int round = 0; round < 100; ++round) {
    const Dtype dtype = rng() % 4 == 0 ? Dtype::kFloat64 : Dtype::kFloat32;
    Loop loop = random_rows(rng, dtype, 1 + rng() % 6, 0);
    loop.streams = rng();
    if (rng() % 2 == 0) loop.fetched = static_cast<int>(rng() % loop.inputs.size());
    if (compiled(GetParam(), loop) == nullptr) continue;
    const int64_t cols = 1 + static_cast<int64_t>(rng() % 300), pitch = (cols + 15) / 16 * 16;
    Rows memory(loop, 1 + static_cast<int64_t>(rng() % 3), cols, pitch, rng);
    expect_rows(loop, memory, rng, &finite);
    if (HasFatalFailure()) return;
  }
}

TEST_P(JitFolds, WhatIsNoBlockIsRefused) {
  const int64_t lanes = GetParam() == Isa::kAvx512 ? 16 : 8;
  EXPECT_TRUE(jit_takes_fold(GetParam(), Fold::kSum, Dtype::kFloat32, kFoldVectors * lanes));
  EXPECT_FALSE(jit_takes_fold(GetParam(), Fold::kSum, Dtype::kFloat32, kFoldVectors * lanes + 1));
  EXPECT_FALSE(jit_takes_fold(GetParam(), Fold::kSum, Dtype::kFloat64, kFoldVectors * lanes));
  EXPECT_FALSE(jit_takes_fold(GetParam(), Fold::kMoments, Dtype::kFloat32, 100));
  EXPECT_FALSE(jit_takes_fold(GetParam(), Fold::kSum, Dtype::kInt64, 100));
}

INSTANTIATE_TEST_SUITE_P(Isas, JitFolds, ::testing::Values(Isa::kAvx2, Isa::kAvx512), isa_of);

}  // namespace
}  // namespace hologram::cpu
