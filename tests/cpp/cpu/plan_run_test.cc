// SPDX-License-Identifier: MIT
// Fused kernels against their instructions run one by one: layouts, dtypes, ranks, rows, threads.
#include "src/cpu/executor/run.h"

#include <gtest/gtest.h>

#include "hologram/memory.h"
#include "tests/cpp/cpu/isa_test.h"
#include "tests/cpp/cpu/plan_support.h"

namespace hologram {
namespace {

using namespace plans;

class Plans : public IsaTest {
 protected:
  Random random{static_cast<unsigned>(GetParam()) + 5};
};

// (a * b + a).relu() * 2 + b
Builder chain(Case& test, uint32_t a, uint32_t b, uint32_t out, std::vector<int64_t> shape) {
  Builder k(std::move(shape));
  constexpr Dtype f = Dtype::kFloat32;
  const Ref ra = k.dense(a, f), rb = k.dense(b, f);
  const Ref product = k.op_temp(OpId::mul, f, {ra, rb});
  const Ref sum = k.op_temp(OpId::add, f, {product, ra});
  const Ref positive = k.op_temp(OpId::relu, f, {sum});
  const Ref twice = k.op_temp(OpId::mul, f, {positive, Builder::immediate(test.immediate(f, 2))});
  k.op(OpId::add, f, {twice, rb}, k.dense(out, f));
  return k;
}

TEST_P(Plans, ChainsOfEveryLength) {
  for (const int64_t n : {0, 1, 5, 63, 64, 1000, 1024, 4099, 70000, 300001}) {
    Case test;
    const uint32_t a = test.slot(random, Dtype::kFloat32, n);
    const uint32_t b = test.slot(random, Dtype::kFloat32, n);
    const uint32_t out = test.slot(random, Dtype::kFloat32, n);
    test.add(chain(test, a, b, out, {n}));
    expect_unfused_bits(test, "n " + std::to_string(n));
  }
}

TEST_P(Plans, ManyKernelsOfOneLaunch) {
  for (const int64_t n : {3, 700, 65536}) {
    Case test;
    for (int i = 0; i < 50; ++i) {
      const uint32_t a = test.slot(random, Dtype::kFloat32, n);
      const uint32_t b = test.slot(random, Dtype::kFloat32, n);
      test.add(chain(test, a, b, b, {n}), i / 40, i / 40);
    }
    expect_unfused_bits(test, "n " + std::to_string(n), 1);
  }
}

// x: [rows, cols] normalised along the columns, with weight and bias.
Builder layer_norm(Case& test, Random& random, int64_t rows, int64_t cols, Dtype stored) {
  constexpr Dtype f = Dtype::kFloat32;
  Builder k({rows, cols}, true);
  const uint32_t x = test.slot(random, stored, rows * cols);
  const uint32_t w = test.slot(random, f, cols), b = test.slot(random, f, cols);
  const uint32_t out = test.slot(random, stored, rows * cols);
  const uint32_t mean_out = test.slot(random, f, rows);
  Ref in = k.dense(x, stored);
  if (stored != f) in = k.convert_temp(in, f);
  const Ref mean = k.access(mean_out, f, k.rows(), Rank::kRow);
  k.fold(Reduction::mean, in, mean);
  const Ref var = k.fold_temp(Reduction::var, in, f, 0.0);
  const Ref safe =
      k.op_temp(OpId::add, f, {var, Builder::immediate(test.immediate(f, 1e-5))}, Rank::kRow);
  const Ref scale = k.op_temp(OpId::rsqrt, f, {safe}, Rank::kRow);
  const Ref centred = k.op_temp(OpId::sub, f, {in, mean});
  const Ref normal = k.op_temp(OpId::mul, f, {centred, scale});
  const Ref weighted = k.op_temp(OpId::mul, f, {normal, k.access(w, f, {0, 1})});
  const Ref biased = k.op_temp(OpId::add, f, {weighted, k.access(b, f, {0, 1})});
  k.convert(biased, f, k.dense(out, stored));
  return k;
}

TEST_P(Plans, LayerNorm) {
  for (const Dtype stored : {Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat16}) {
    for (const int64_t cols : {1, 5, 32, 100, 768, 3072}) {
      for (const int64_t rows : {1, 7, 300}) {
        Case test;
        test.add(layer_norm(test, random, rows, cols, stored));
        expect_unfused_bits(test, std::string(dtype_name(stored)) + " " + std::to_string(rows) +
                                      " x " + std::to_string(cols));
      }
    }
  }
}

TEST_P(Plans, SoftmaxBetweenOtherOps) {
  for (const Dtype f : {Dtype::kFloat32, Dtype::kFloat64}) {
    for (const int64_t cols : {1, 5, 16, 32, 100, 768, 1536}) {
      for (const int which : {0, 1, 2, 3}) {
        const int64_t rows = 65;
        Case test;
        Builder k({rows, cols}, true);
        const Ref x = k.dense(test.slot(random, f, rows * cols), f);
        const Ref mask = k.access(test.slot(random, Dtype::kBool, cols), Dtype::kBool, {0, 1});
        const Ref scaled =
            k.op_temp(OpId::mul, f, {x, Builder::immediate(test.immediate(f, 0.125))});
        const Ref condition = k.convert_temp(mask, f);
        const Ref masked = k.op_temp(
            OpId::where, f, {condition, scaled, Builder::immediate(test.immediate(f, -1e9))});
        const Ref soft = k.temp(f);
        std::vector<Ref> in{masked};
        if (which >= 2) in.push_back(x);
        k.rows(static_cast<circuit::RowOp>(which), f, in, soft);
        k.op(OpId::mul, f, {soft, Builder::immediate(test.immediate(f, 1.25))}, x);
        test.add(k);
        expect_unfused_bits(test,
                            "cols " + std::to_string(cols) + " function " + std::to_string(which));
      }
    }
  }
}

TEST_P(Plans, FoldsEqualReduce) {
  constexpr Dtype kIn[] = {Dtype::kBool,    Dtype::kUInt8,    Dtype::kInt32,   Dtype::kInt64,
                           Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64};
  for (const Dtype in : kIn) {
    for (int r = 0; r < kReductionCount; ++r) {
      const auto op = static_cast<Reduction>(r);
      const auto result = reduction_info(op).result;
      if (!is_floating(in) && result == ReductionInfo::kFloat) continue;
      const bool counts = result == ReductionInfo::kOut && !is_floating(in);
      const Dtype out = result == ReductionInfo::kBool              ? Dtype::kBool
                        : result == ReductionInfo::kIndex || counts ? Dtype::kInt64
                                                                    : in;
      for (const int64_t cols : {1, 3, 33, 1000, 3072}) {
        if (cols * static_cast<int64_t>(itemsize(in)) >
            device(BackendType::kCpu).plan_limits()->row_bytes)
          continue;
        for (const int64_t rows : {1, 130}) {
          for (const double parameter : {2.0, 1.0, 0.5}) {
            if (parameter != 2.0 && op != Reduction::norm) continue;
            Case test;
            Builder k({rows, cols}, true);
            const Ref x = k.dense(test.slot(random, in, rows * cols), in);
            k.fold(op, x, k.access(test.slot(random, out, rows), out, k.rows(), Rank::kRow),
                   op == Reduction::norm ? parameter : 1.0);
            test.add(k);
            expect_unfused_bits(test,
                                std::string(reduction_name(op)) + " of " +
                                    std::string(dtype_name(in)) + " cols " + std::to_string(cols),
                                1);
          }
        }
      }
    }
  }
}

// A half type's rows longer than a gathered piece: converted first or folded as they lie, the same.
TEST_P(Plans, LongHalfRowsFoldAlike) {
  for (const Dtype half : {Dtype::kFloat16, Dtype::kBFloat16}) {
    Case test;
    Builder k({9, 3072}, true);
    const Ref x = k.dense(test.slot(random, half, 9 * 3072), half);
    const Ref wide = k.convert_temp(x, Dtype::kFloat32);
    const Ref one = k.access(test.slot(random, half, 9), half, k.rows(), Rank::kRow);
    k.fold(Reduction::sum, wide, one);
    test.add(k);
    std::vector<char*> at;
    auto got = test.slots;
    cpu::run_plan(test.plan, Case::bind(got, at, test.immediates), 1);
    std::vector<uint16_t> want(9);
    const int64_t shape[2] = {9, 3072}, strides[2] = {3072, 1}, step = 1;
    const int dims[1] = {1};
    reduce(Reduction::sum, {test.slots[0].data(), half, 2, shape, strides}, dims,
           {want.data(), half, 1, shape, &step});
    EXPECT_EQ(std::memcmp(got[1].data(), want.data(), 18), 0) << dtype_name(half);
  }
}

TEST_P(Plans, FillsCopiesAndConversions) {
  for (int from = 0; from <= static_cast<int>(Dtype::kFloat64); ++from) {
    for (int to = 0; to <= static_cast<int>(Dtype::kFloat64); ++to) {
      const Dtype a = static_cast<Dtype>(from), b = static_cast<Dtype>(to);
      Case test;
      const int64_t rows = 40, cols = 100;
      const uint32_t x = test.slot(random, a, rows * cols);
      const uint32_t y = test.slot(random, b, rows * cols);
      Builder flat({rows * cols});
      flat.convert(flat.dense(x, a), a, flat.dense(y, b));
      test.add(flat);
      const uint32_t z = test.slot(random, b, rows * cols * 2);
      Builder turned({rows, cols});
      turned.convert(turned.access(x, a, {1, rows}), a, turned.access(z, b, {2 * cols, 2}));
      test.add(turned, 1, 1);
      const uint32_t w = test.slot(random, b, rows * cols);
      Builder repeated({rows, cols});
      repeated.convert(repeated.access(x, a, {3, 0}, Rank::kRow), a, repeated.dense(w, b));
      test.add(repeated, 2, 2);
      const Dtype computed = compute_dtype(b);
      Builder filled({rows, cols});
      filled.convert(Builder::immediate(test.immediate(computed, 1)), computed,
                     filled.dense(test.slot(random, b, rows * cols), b));
      test.add(filled, 3, 3);
      expect_unfused_bits(test, std::string(dtype_name(a)) + " to " + std::string(dtype_name(b)),
                          1);
    }
  }
}

// Copies that need no arithmetic: past the caches where large, turned, in place.
TEST_P(Plans, Copies) {
  const int64_t n = (int64_t{8} << 20) + 21;
  Case test;
  const uint32_t x = test.slot(random, Dtype::kUInt8, n);
  Builder large({n});
  large.convert(large.dense(x, Dtype::kUInt8), Dtype::kUInt8,
                large.dense(test.slot(random, Dtype::kUInt8, n), Dtype::kUInt8));
  test.add(large);
  const int64_t rows = 300, cols = 70;
  const uint32_t y = test.slot(random, Dtype::kInt64, rows * cols);
  Builder turned({rows, cols});
  turned.convert(
      turned.dense(y, Dtype::kInt64), Dtype::kInt64,
      turned.access(test.slot(random, Dtype::kInt64, rows * cols), Dtype::kInt64, {1, rows}));
  test.add(turned, 1, 1);
  Builder narrow({rows, 7});
  narrow.convert(narrow.access(y, Dtype::kInt64, {10, 1}), Dtype::kInt64,
                 narrow.dense(test.slot(random, Dtype::kInt64, rows * 7), Dtype::kInt64));
  test.add(narrow, 2, 2);
  Builder same({rows * cols});
  const Ref in = same.dense(y, Dtype::kInt64);
  same.convert(in, Dtype::kInt64, in);
  test.add(same, 3, 3);
  expect_unfused_bits(test, "copies", 2);
}

// Values of one element for the whole kernel are computed once, whatever the number of threads.
TEST_P(Plans, OnesAreSharedByAllBlocks) {
  constexpr Dtype f = Dtype::kFloat32;
  for (const int64_t n : {1, 10, 200000}) {
    Case test;
    Builder k({n});
    const Ref x = k.dense(test.slot(random, f, n), f);
    const Rank one = n == 1 ? Rank::kFull : Rank::kOne;
    const Ref total = k.access(test.slot(random, f, 1), f, {n == 1 ? 1 : 0}, one);
    const Ref root = k.op_temp(OpId::abs, f, {total}, one);
    const Ref inverse = k.op_temp(OpId::reciprocal, f, {root}, one);
    const Ref kept = k.access(test.slot(random, f, 1), f, {n == 1 ? 1 : 0}, one);
    k.op(OpId::mul, f, {inverse, Builder::immediate(test.immediate(f, 3))}, kept);
    const Ref scaled = k.op_temp(OpId::mul, f, {x, kept});
    k.op(OpId::pow, f, {total, scaled}, k.dense(test.slot(random, f, n), f));
    k.op(OpId::where, f, {scaled, kept, scaled}, x);
    test.add(k);
    expect_unfused_bits(test, "n " + std::to_string(n));
  }
}

// Instructions may change places, but not past a store to what they read.
TEST_P(Plans, StoresWaitForEarlierReaders) {
  constexpr Dtype f = Dtype::kFloat32;
  for (const int64_t cols : {7, 50, 400}) {
    Case test;
    const int64_t rows = 30;
    Builder k({rows, cols}, true);
    const Ref x = k.dense(test.slot(random, f, rows * cols), f);
    const Ref y = k.dense(test.slot(random, f, rows * cols), f);
    const Ref total = k.access(test.slot(random, f, rows), f, k.rows(), Rank::kRow);
    const Ref scaled = k.op_temp(OpId::mul, f, {y, y});
    k.fold(Reduction::sum, x, total);
    k.op(OpId::add, f, {scaled, y}, x);
    k.op(OpId::sub, f, {x, total}, y);
    const Ref doubled = k.op_temp(OpId::add, f, {total, total}, Rank::kRow);
    k.op(OpId::mul, f, {doubled, doubled}, total);
    k.op(OpId::div, f, {y, total}, x);
    test.add(k);
    expect_unfused_bits(test, "cols " + std::to_string(cols));
  }
}

// Tiles that stay the same for all blocks are made by every thread that needs them.
TEST_P(Plans, RepeatedTilesOnEveryThread) {
  for (const Dtype f : {Dtype::kFloat32, Dtype::kInt16}) {
    for (const int64_t cols : {3, 40, 200}) {
      Case test;
      const int64_t rows = 300000 / cols;
      Builder k({rows, cols});
      const Ref x = k.dense(test.slot(random, f, rows * cols), f);
      const Ref bias = k.access(test.slot(random, f, cols), f, {0, 1});
      const Ref sum = k.op_temp(OpId::add, f, {x, bias});
      const Ref low = Builder::immediate(test.immediate(f, -1));
      const Ref some = k.op_temp(OpId::where, f, {low, sum, x});
      k.op(OpId::where, f, {some, low, sum}, k.dense(test.slot(random, f, rows * cols), f));
      test.add(k);
      expect_unfused_bits(test, std::string(dtype_name(f)) + " cols " + std::to_string(cols));
    }
  }
}

// Rows too long for a class: only values of rows make such a kernel, and it still must be right.
TEST_P(Plans, RowsLongerThanAClass) {
  constexpr Dtype f = Dtype::kFloat64;
  Case test;
  Builder k({3, 5000}, true);
  const Ref x = k.dense(test.slot(random, f, 15000), f);
  const Ref doubled = k.op_temp(OpId::add, f, {x, x});
  const Ref total = k.fold_temp(Reduction::sum, doubled, f);
  k.op(OpId::mul, f, {doubled, total}, k.dense(test.slot(random, f, 15000), f));
  test.add(k);
  expect_unfused_bits(test, "long rows");
}

// All classes taken by others: the heap serves.
// Results that no cache holds are stored past the caches where they lie at whole cache lines.
TEST_P(Plans, LargeResults) {
  constexpr Dtype f = Dtype::kFloat32;
  constexpr int64_t kRows = 2800, kCols = 768;
  for (const int64_t offset : {0, 4, 48}) {
    Case test;
    const uint32_t x = test.slot(random, f, kCols);
    const uint32_t w = test.slot(random, f, kRows);
    const uint32_t y = test.slot(random, f, 1), z = test.slot(random, f, 1);
    const uint32_t a = test.slot(random, f, 1);
    for (const uint32_t slot : {a, y, z}) {
      std::vector<char>& bytes = test.slots[slot];
      bytes.resize(static_cast<size_t>(kRows * kCols) * 4 + 128);
      for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
        std::memcpy(&bytes[i], &test.slots[x][i % (kCols * 4)], 4);
      }
    }
    Builder flat({kRows * kCols});
    const Ref all = flat.access(a, f, {1});
    const Ref half = flat.op_temp(OpId::mul, f, {all, flat.access(w, f, {0}, Rank::kOne)});
    flat.op(OpId::add, f, {half, Builder::immediate(test.immediate(f, 2))},
            flat.access(z, f, {1}, Rank::kFull, offset));
    Builder rows({kRows, kCols}, true);
    const Ref scaled = rows.op_temp(
        OpId::mul, f, {rows.access(x, f, {0, 1}), rows.access(w, f, {1, 0}, Rank::kRow)});
    const Ref square = rows.op_temp(OpId::mul, f, {scaled, scaled});
    const Ref mean = rows.fold_temp(Reduction::mean, square, f);
    const Ref centred = rows.op_temp(OpId::sub, f, {scaled, mean});
    rows.op(OpId::mul, f, {centred, centred}, rows.access(y, f, {kCols, 1}, Rank::kFull, offset));
    test.add(flat, 0, 0);
    test.add(rows, 0, 1);
    expect_unfused_bits(test, "offset " + std::to_string(offset), 1);
  }
}

TEST_P(Plans, NestedUseFindsNoClasses) {
  Case test;
  const int64_t n = 5000;
  const uint32_t a = test.slot(random, Dtype::kFloat32, n);
  const uint32_t b = test.slot(random, Dtype::kFloat32, n);
  test.add(chain(test, a, b, test.slot(random, Dtype::kFloat32, n), {n}));
  BoundaryPool& pool = this_thread_pool();
  std::vector<int> taken;
  for (int c = pool.acquire(); c >= 0; c = pool.acquire()) taken.push_back(c);
  expect_unfused_bits(test, "no classes");
  for (const int c : taken) pool.release(c);
  EXPECT_EQ(pool.free_classes(), static_cast<int>(taken.size())) << "a run kept classes";
}

INSTANTIATE_TEST_SUITE_P(Isas, Plans, kEveryIsa, isa_of);

}  // namespace
}  // namespace hologram
