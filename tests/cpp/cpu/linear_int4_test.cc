// SPDX-License-Identifier: MIT
// Products with int4 weights against plain loops in float64 that read the bytes as calls.def has
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hologram/call_frame.h"
#include "hologram/call_ops.h"
#include "hologram/error.h"
#include "hologram/runtime.h"
#include "src/cpu/gemm/int4_kernels.h"
#include "tests/cpp/cpu/isa_test.h"
#include "tests/cpp/cpu/narrow_support.h"

namespace hologram {
namespace {

class LinearInt4 : public IsaTest {
 protected:
  void SetUp() override {
    IsaTest::SetUp();
    register_builtin_devices();
  }
};
INSTANTIATE_TEST_SUITE_P(Isas, LinearInt4, kEveryIsa, isa_of);

struct Case {
  int64_t m, n, groups, columns, block;
};

struct Operands {
  Bytes x, weight, pairs;
};

void run(Dtype dtype, const Case& c, const Operands& in, Bytes& out, int threads) {
  const int64_t k = c.groups * c.columns;
  std::vector<uint64_t> words;
  const auto view = [&](Dtype type, std::initializer_list<int64_t> sizes) {
    words.push_back(view_head(type, sizes.size(), true));
    for (const int64_t size : sizes) words.push_back(static_cast<uint64_t>(size));
  };
  view(dtype, {c.m, k}), view(Dtype::kUInt8, {c.n, k / 2}), view(dtype, {c.groups, c.n, 2});
  view(dtype, {c.m, c.n});
  words.push_back(static_cast<uint64_t>(c.block));
  char* operands[] = {const_cast<char*>(in.x.data()), const_cast<char*>(in.weight.data()),
                      const_cast<char*>(in.pairs.data()), out.data()};
  run_call(call_op("linear_int4").number, {operands, words.data(), nullptr, threads});
}

int weight_at(const Case& c, const Bytes& weight, int64_t row, int64_t column) {
  const int64_t first = row / c.block * c.block, rows = std::min(c.block, c.n - first);
  const int64_t j = row - first, half = rows / 2;
  const bool whole = rows == c.block;
  const int64_t byte =
      first * c.groups * c.columns / 2 + column * half + (whole ? j % half : j / 2);
  const auto both = static_cast<uint8_t>(weight[static_cast<size_t>(byte)]);
  return (whole ? j >= half : j % 2 != 0) ? both >> 4 : both & 15;
}

double element(const Bytes& bytes, int64_t i) {
  return reinterpret_cast<const double*>(bytes.data())[i];
}

// x is multiplied by `by`.
Operands operands_of(Random& random, Dtype dtype, const Case& c, double by = 1) {
  const int64_t k = c.groups * c.columns;
  Bytes x = converted(random_bytes(random, dtype, c.m * k), dtype, Dtype::kFloat64, c.m * k);
  for (int64_t i = 0; i < c.m * k; ++i) reinterpret_cast<double*>(x.data())[i] *= by;
  return {converted(x, Dtype::kFloat64, dtype, c.m * k),
          random_bytes(random, Dtype::kUInt8, c.n * k / 2),
          random_bytes(random, dtype, 2 * c.groups * c.n)};
}

void check(Dtype dtype, const Case& c, const Operands& in) {
  const int64_t k = c.groups * c.columns;
  Bytes out(static_cast<size_t>(c.m * c.n) * itemsize(dtype), 'x'), again = out;
  run(dtype, c, in, out, 1);
  run(dtype, c, in, again, 2);
  ASSERT_EQ(out, again) << "threads change bits";
  const Bytes x = converted(in.x, dtype, Dtype::kFloat64, c.m * k);
  const Bytes pairs = converted(in.pairs, dtype, Dtype::kFloat64, 2 * c.groups * c.n);
  const Bytes y = converted(out, dtype, Dtype::kFloat64, c.m * c.n);
  const double step = dtype == Dtype::kBFloat16  ? 0x1p-8
                      : dtype == Dtype::kFloat16 ? 0x1p-11
                      : dtype == Dtype::kFloat32 ? 0x1p-23
                                                 : 0x1p-52;
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      double want = 0, size = 0;
      for (int64_t g = 0; g < c.groups; ++g) {
        const double scale = element(pairs, 2 * (g * c.n + j));
        const double zero = element(pairs, 2 * (g * c.n + j) + 1);
        double largest = 0;
        for (int64_t p = g * c.columns; p < (g + 1) * c.columns; ++p) {
          largest = std::max(largest, std::abs(element(x, i * k + p)));
        }
        for (int64_t p = g * c.columns; p < (g + 1) * c.columns; ++p) {
          const int q = weight_at(c, in.weight, j, p) - 8;
          want += element(x, i * k + p) * (q * scale + zero);
          // An element is rounded by 2^-23 of the largest of its group, or the sum by as much.
          size += largest * (std::abs(q * scale) + std::abs(zero));
        }
      }
      const double sums = dtype == Dtype::kFloat64 ? 0x1p-50 : 0x1p-22;
      const double bound =
          step * std::abs(want) + sums * size + (dtype == Dtype::kFloat16 ? 0x1p-24 : 0);
      ASSERT_NEAR(element(y, i * c.n + j), want, bound)
          << dtype_name(dtype) << ' ' << c.m << " x " << c.n << ", " << c.groups << " groups of "
          << c.columns << ", blocks of " << c.block;
    }
  }
}

TEST_P(LinearInt4, AgreesWithLoops) {
  // Whole blocks, a shorter last one, nothing but it; groups that kernels take and others; one row,
  // an odd number of them, and more than are multiplied as digits.
  const Case cases[] = {
      {1, 64, 1, 16, 64},    {1, 128, 4, 128, 64}, {1, 32, 3, 32, 32},  {2, 96, 2, 64, 32},
      {3, 192, 5, 48, 64},   {5, 80, 2, 32, 64},   {1, 48, 2, 64, 32},  {4, 16, 1, 256, 64},
      {16, 130, 2, 32, 64},  {17, 128, 3, 32, 64}, {40, 98, 2, 32, 32}, {70, 300, 3, 160, 64},
      {1, 64, 3, 10, 64},    {2, 64, 1, 2, 32},    {1, 24, 2, 6, 8},    {33, 40, 2, 24, 16},
      {1, 2048, 2, 512, 64}, {1, 64, 1, 4096, 32}, {2, 640, 7, 32, 64}, {1, 2, 1, 32, 2},
      {2100, 64, 1, 32, 64},
  };
  Random random(7);
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat16, Dtype::kFloat64}) {
    for (const Case& c : cases) check(dtype, c, operands_of(random, dtype, c));
  }
}

// A machine with VNNI also runs what others run.
TEST_P(LinearInt4, VnniChangesNoBits) {
  Random random(10);
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat16}) {
    const auto& plain = cpu::int4_kernel(GetParam(), dtype, false);
    const auto& vnni = cpu::int4_kernel(GetParam(), dtype);
    for (const int64_t block : {cpu::kSmallInt4Block, cpu::kLargeInt4Block}) {
      for (const int64_t columns : {16, 48, 128, 800}) {
        constexpr int64_t kGroups = 3;
        const int64_t k = kGroups * columns;
        // Of float32 all elements have three digits, of bfloat16 few.
        Bytes x = random_bytes(random, columns == 48 ? Dtype::kFloat32 : Dtype::kBFloat16, 2 * k);
        if (columns != 48) x = converted(x, Dtype::kBFloat16, Dtype::kFloat32, 2 * k);
        const Bytes weight = random_bytes(random, Dtype::kUInt8, block * k / 2 + 8192);
        const Bytes pairs = random_bytes(random, dtype, 2 * kGroups * block);
        const auto by = [&](const cpu::Int4Kernel& kernel, int64_t count) {
          std::vector<int8_t> digits(static_cast<size_t>(3 * 2 * k));
          std::vector<cpu::Int4Group> groups(2 * kGroups);
          for (int64_t g = 0; g < 2 * kGroups; ++g) {
            EXPECT_TRUE(kernel.split(reinterpret_cast<const float*>(x.data()) + g * columns,
                                     columns, block, digits.data() + 3 * g * columns,
                                     &groups[static_cast<size_t>(g)]));
          }
          std::vector<float> y(static_cast<size_t>(count * block));
          kernel.dot_block(reinterpret_cast<const uint8_t*>(weight.data()), block,
                           {count, kGroups, columns, digits.data(), groups.data()}, pairs.data(),
                           2 * block, y.data());
          return y;
        };
        for (const int64_t count : {1, 2}) {
          ASSERT_EQ(by(plain, count), by(vnni, count))
              << dtype_name(dtype) << ", blocks of " << block << ", " << columns;
        }
      }
    }
  }
}

TEST_P(LinearInt4, ManySizesOfNumbers) {
  Random random(8);
  const Case c{2, 64, 2, 32, 64};
  for (const double by :
       {0x1p-120, 0x1p-101, 0x1p-99, 0x1p-20, 3.9999998, 0x1p40, 0x1p80, 0x1p99, 0x1p110}) {
    check(Dtype::kFloat32, c, operands_of(random, Dtype::kFloat32, c, by));
  }
  // Equal elements of any mantissa: the largest numbers that digits hold.
  for (const float x : {1.0F, 1.9921F, 1.9922F, 1.99999988F, -1.99999988F, 0.0F}) {
    Operands in = operands_of(random, Dtype::kFloat32, c);
    for (int64_t i = 0; i < c.m * 64; ++i) reinterpret_cast<float*>(in.x.data())[i] = x;
    check(Dtype::kFloat32, c, in);
  }
}

TEST_P(LinearInt4, WhatIsNotFiniteStaysSo) {
  Random random(9);
  const Case c{1, 64, 2, 32, 64};
  const float infinite = std::numeric_limits<float>::infinity();
  for (const float x : {infinite, -infinite, std::numeric_limits<float>::quiet_NaN()}) {
    Operands in = operands_of(random, Dtype::kFloat32, c);
    reinterpret_cast<float*>(in.x.data())[40] = x;
    Bytes out(static_cast<size_t>(c.n) * 4, 0);
    run(Dtype::kFloat32, c, in, out, 1);
    const auto* pairs = reinterpret_cast<const float*>(in.pairs.data());
    for (int64_t j = 0; j < c.n; ++j) {
      const float w = static_cast<float>(weight_at(c, in.weight, j, 40) - 8);
      const float want = x * std::fma(w, pairs[2 * (c.n + j)], pairs[2 * (c.n + j) + 1]);
      const float got = reinterpret_cast<const float*>(out.data())[j];
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got));
      } else {
        ASSERT_EQ(got, want);
      }
    }
  }
}

// Elements of bfloat16 have a lowest digit where they are small beside the largest of their group:
// the columns of few of them are listed. As many as a list holds, one more, and none.
TEST_P(LinearInt4, SmallElementsBesideLargeOnes) {
  Random random(14);
  for (const int64_t block : {cpu::kSmallInt4Block, cpu::kLargeInt4Block}) {
    const Case c{3, 2 * block, 3, 48, block};
    Operands in = operands_of(random, Dtype::kBFloat16, c);
    for (const int64_t small : {0, 1, cpu::kMostListed, cpu::kMostListed + 1, 40}) {
      auto* const x = reinterpret_cast<uint16_t*>(in.x.data());
      for (int64_t row = 0; row < c.m; ++row) {
        for (int64_t i = 0; i < 3 * 48; ++i) {
          // 1 to 1.99, or 2^-9 of it where few enough come before it in its group. Of the second
          // row all are large, so that it lies beside rows of other kinds.
          const bool is_small = row != 1 && (7 * i + row) % 48 < small;
          const auto bits = static_cast<uint16_t>(0x3f81 + (i * 29 + row) % 126 / 2 * 2);
          x[row * 3 * 48 + i] = is_small ? static_cast<uint16_t>(bits - (9 << 7)) : bits;
        }
      }
      check(Dtype::kBFloat16, c, in);
      const Operands first{Bytes(in.x.begin(), in.x.begin() + 2 * 3 * 48), in.weight, in.pairs};
      Case alone = c;
      alone.m = 1;
      Bytes want(static_cast<size_t>(c.n) * 2), got(static_cast<size_t>(c.m * c.n) * 2);
      run(Dtype::kBFloat16, alone, first, want, 1);
      run(Dtype::kBFloat16, c, in, got, 1);
      ASSERT_EQ(want, Bytes(got.begin(), got.begin() + 2 * c.n)) << small << " small elements";
    }
  }
}

TEST_P(LinearInt4, RowsDoNotDependOnEachOther) {
  Random random(11);
  const Case alone{1, 80, 2, 32, 64}, both{3, 80, 2, 32, 64};
  Operands in = operands_of(random, Dtype::kFloat32, both);
  auto* const x = reinterpret_cast<float*>(in.x.data());
  for (const float other : {1.0F, std::numeric_limits<float>::infinity(), 0x1p120F, 0x1p-120F}) {
    for (int64_t i = 64; i < 128; ++i) x[i] = other;
    Bytes want(static_cast<size_t>(alone.n) * 4, 0), got(static_cast<size_t>(3 * both.n) * 4, 0);
    run(Dtype::kFloat32, both, in, got, 1);
    for (const int64_t row : {0, 2}) {
      const auto first = in.x.begin() + row * 64 * 4;
      const Operands one{Bytes(first, first + 64 * 4), in.weight, in.pairs};
      run(Dtype::kFloat32, alone, one, want, 1);
      const auto from = got.begin() + row * both.n * 4;
      ASSERT_EQ(want, Bytes(from, from + both.n * 4)) << "row " << row << " beside " << other;
    }
  }
}

TEST_P(LinearInt4, BFloat16ByAProvider) {
  const HalfToFloatByLoops provider;
  Random random(12);
  // The last block shorter, and nothing but it; groups that no kernel takes; fewer rows.
  const Case cases[] = {{11, 128, 3, 32, 64},  {17, 98, 2, 64, 32},   {130, 300, 2, 160, 64},
                        {129, 640, 1, 16, 32}, {1100, 64, 1, 32, 64}, {40, 16, 2, 32, 64}};
  for (const Case& c : cases) {
    provider.calls = 0;
    check(Dtype::kBFloat16, c, operands_of(random, Dtype::kBFloat16, c));
    EXPECT_GT(provider.calls, 0);
  }
  provider.calls = 0;
  for (const Case& c : {Case{10, 128, 3, 32, 64}, Case{20, 64, 3, 10, 64}}) {
    check(Dtype::kBFloat16, c, operands_of(random, Dtype::kBFloat16, c));
  }
  check(Dtype::kFloat16, cases[0], operands_of(random, Dtype::kFloat16, cases[0]));
  EXPECT_EQ(provider.calls, 0);
}

// Where numbers are 0 an infinity is not to become NaN.
TEST_P(LinearInt4, InfinitiesByAProvider) {
  const HalfToFloatByLoops provider;
  Random random(13);
  const Case c{12, 64, 2, 32, 64};
  const Operands in = operands_of(random, Dtype::kBFloat16, c);
  Operands infinite = in;
  constexpr uint16_t kInfinity = 0x7f80;
  reinterpret_cast<uint16_t*>(infinite.x.data())[5 * 64 + 40] = kInfinity;
  Bytes want(static_cast<size_t>(c.m * c.n) * 2, 0), got = want;
  run(Dtype::kBFloat16, c, in, want, 1);
  run(Dtype::kBFloat16, c, infinite, got, 1);
  const Bytes pairs = converted(in.pairs, Dtype::kBFloat16, Dtype::kFloat64, 2 * c.groups * c.n);
  const Bytes y = converted(got, Dtype::kBFloat16, Dtype::kFloat64, c.m * c.n);
  for (int64_t j = 0; j < c.n; ++j) {
    const double w = (weight_at(c, in.weight, j, 40) - 8) * element(pairs, 2 * (c.n + j)) +
                     element(pairs, 2 * (c.n + j) + 1);
    const double value = element(y, 5 * c.n + j);
    ASSERT_EQ(value, w * std::numeric_limits<double>::infinity()) << j;
  }
  const auto row = [&](const Bytes& all, int64_t i) {
    return Bytes(all.begin() + i * c.n * 2, all.begin() + (i + 1) * c.n * 2);
  };
  for (int64_t i = 0; i < c.m; ++i) {
    if (i == 5) continue;
    ASSERT_EQ(row(got, i), row(want, i)) << i;
  }
}

TEST_P(LinearInt4, NothingOfNothing) {
  Bytes out(4 * 6, 'x');
  run(Dtype::kFloat32, {2, 0, 1, 32, 64}, {Bytes(256), {}, {}}, out, 1);
  run(Dtype::kFloat32, {0, 6, 1, 32, 64}, {{}, Bytes(96), Bytes(48)}, out, 1);
  EXPECT_EQ(out, Bytes(4 * 6, 'x'));
  run(Dtype::kFloat32, {1, 6, 0, 32, 64}, {}, out, 1);
  EXPECT_EQ(out, Bytes(4 * 6, 0));
}

TEST_P(LinearInt4, BlocksOfAnOddNumberOfRowsAreRefused) {
  Bytes out(4 * 64);
  const Operands in{Bytes(128), Bytes(1024), Bytes(512)};
  for (const auto& [block, n] : {std::pair<int64_t, int64_t>{0, 64}, {7, 14}, {-2, 64}, {8, 13}}) {
    try {
      run(Dtype::kFloat32, {1, n, 1, 32, block}, in, out, 1);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
      EXPECT_EQ(std::string(error.what()),
                "linear_int4: blocks have an even number of rows, also the last one; got block " +
                    std::to_string(block) + " for a weight of " + std::to_string(n) + " rows");
    }
  }
}

}  // namespace
}  // namespace hologram
