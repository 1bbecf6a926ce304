// SPDX-License-Identifier: MIT
// Rows taken, put and added by position on every instruction set, bit by bit against plain loops.
#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/indexing.h"
#include "tests/cpp/cpu/isa_test.h"

namespace hologram {
namespace {

size_t count_of(int64_t n) { return static_cast<size_t>(n); }

class IndexKernels : public IsaTest {
 protected:
  std::vector<char> bytes(int64_t n) {
    std::vector<char> result(count_of(n));
    for (char& b : result) b = static_cast<char>(rng_());
    return result;
  }
  // From -size to size - 1.
  std::vector<int64_t> positions(int64_t n, int64_t size) {
    std::vector<int64_t> index(count_of(n));
    for (int64_t& i : index) i = static_cast<int64_t>(rng_() % count_of(2 * size)) - size;
    return index;
  }
  std::mt19937_64 rng_{11};
};

TEST_P(IndexKernels, FindPositionsOutsideWhereverTheyAre) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t n : {1, 7, 8, 9, 64, 1025}) {
    std::vector<int64_t> index(count_of(n));
    std::vector<int32_t> narrow(count_of(n));
    for (int64_t i = 0; i < n; ++i) index[count_of(i)] = narrow[count_of(i)] = int32_t(i % 5) - 2;
    const auto within = [&](int64_t low, int64_t high) {
      const bool wide = positions_within({index.data(), Dtype::kInt64, n}, low, high);
      EXPECT_EQ(positions_within({narrow.data(), Dtype::kInt32, n}, low, high), wide);
      return wide;
    };
    EXPECT_TRUE(within(-2, 3));
    EXPECT_TRUE(within(kLeast, kMost));
    EXPECT_FALSE(within(-1, 3));
    EXPECT_FALSE(within(3, 3));
    EXPECT_EQ(within(-2, 2), n < 5);
    for (const int64_t bad : {int64_t{3}, int64_t{-3}, kLeast, kMost}) {
      const auto place = count_of(static_cast<int64_t>(rng_() % count_of(n)));
      const int64_t before = index[place];
      index[place] = bad;
      EXPECT_FALSE(positions_within({index.data(), Dtype::kInt64, n}, -2, 3)) << bad;
      index[place] = before;
    }
  }
}

TEST_P(IndexKernels, TakeAndPutRowsOfEveryWidth) {
  std::vector<int64_t> widths{100, 127, 128, 129, 191, 2047, 2048, 2049, 5000};
  for (int64_t width = 1; width <= 70; ++width) widths.push_back(width);
  for (const int64_t inner : widths) {
    for (const auto& [outer, n] :
         {std::pair<int64_t, int64_t>{1, 3}, {5, 2}, {300, 3}, {2, 1500}}) {
      if (outer * n * inner > 1'000'000) continue;
      constexpr int64_t kSize = 7;
      const std::vector<char> in = bytes(outer * kSize * inner), rows = bytes(outer * n * inner);
      const std::vector<int64_t> index = positions(n, kSize);
      const std::vector<int32_t> narrow(index.begin(), index.end());
      std::vector<char> taken(rows.size()), put = in;
      for (int64_t o = 0; o < outer; ++o) {
        for (int64_t k = 0; k < n; ++k) {
          const int64_t place = (o * kSize + (index[count_of(k)] + kSize) % kSize) * inner;
          const int64_t row = (o * n + k) * inner;
          std::memcpy(&taken[count_of(row)], &in[count_of(place)], count_of(inner));
          std::memcpy(&put[count_of(place)], &rows[count_of(row)], count_of(inner));
        }
      }
      for (const int threads : {1, 3}) {
        for (const bool is_narrow : {false, true}) {
          const Positions at = is_narrow ? Positions{narrow.data(), Dtype::kInt32, n}
                                         : Positions{index.data(), Dtype::kInt64, n};
          std::vector<char> out(rows.size() + 1, 0x5a), changed = in;
          take(in.data(), outer, kSize, inner, at, out.data(), threads);
          ASSERT_EQ(out.back(), 0x5a);
          out.pop_back();
          ASSERT_TRUE(out == taken) << outer << " lines, " << n << " rows of " << inner;
          put_at(changed.data(), outer, kSize, inner, at, rows.data(), threads);
          ASSERT_TRUE(changed == put) << outer << " lines, " << n << " rows of " << inner;
        }
      }
    }
  }
}

// One element after another, in the type that sums have.
template <class T>
void add_plainly(std::vector<T>& sums, const std::vector<T>& values, int64_t outer, int64_t size,
                 int64_t inner, const std::vector<int64_t>& index, const int64_t* skipped) {
  const auto n = static_cast<int64_t>(index.size());
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = index[count_of(k)];
      if (skipped != nullptr && at == *skipped) continue;
      for (int64_t j = 0; j < inner; ++j) {
        T& sum = sums[count_of((o * size + (at < 0 ? at + size : at)) * inner + j)];
        sum = static_cast<T>(sum + values[count_of((o * n + k) * inner + j)]);
      }
    }
  }
}

struct AddCase {
  int64_t outer, size, inner, n;
};

template <class T>
void expect_sums(std::mt19937_64& rng, Dtype dtype, const AddCase& c,
                 const std::vector<int64_t>& index, bool skips) {
  const int64_t wide = c.outer * c.size * c.inner, many = c.outer * c.n * c.inner;
  const auto bytes = static_cast<int64_t>(itemsize(dtype));
  // Numbers whose sums are rounded, so that another order would show; and what the dtype holds of
  // them.
  const auto numbers = [&](int64_t n, std::vector<char>& stored) {
    std::vector<double> drawn(count_of(n));
    for (double& d : drawn)
      d = static_cast<double>(static_cast<int64_t>(rng() % 200'001) - 100'000);
    if (is_floating(dtype)) {
      for (double& d : drawn) d /= 977.0;
    }
    stored.resize(count_of(n * bytes));
    convert(Dtype::kFloat64, drawn.data(), dtype, stored.data(), n);
    std::vector<T> exact(count_of(n));
    convert(dtype, stored.data(), compute_dtype(dtype), exact.data(), n);
    return exact;
  };
  std::vector<char> start, in;
  std::vector<T> sums = numbers(wide, start);
  const std::vector<T> values = numbers(many, in);
  const int64_t skipped = 1;
  add_plainly(sums, values, c.outer, c.size, c.inner, index, skips ? &skipped : nullptr);
  std::vector<char> want(start.size());
  convert(compute_dtype(dtype), sums.data(), dtype, want.data(), wide);
  const std::vector<int32_t> narrow(index.begin(), index.end());
  for (const int threads : {1, 2, 7}) {
    std::vector<char> got = start;
    AddAtOptions options;
    options.skipped = skips ? &skipped : nullptr;
    options.max_threads = threads;
    const Positions at = threads == 2 ? Positions{narrow.data(), Dtype::kInt32, c.n}
                                      : Positions{index.data(), Dtype::kInt64, c.n};
    add_at(dtype, got.data(), c.outer, c.size, c.inner, at, in.data(), options);
    ASSERT_TRUE(got == want) << dtype_name(dtype) << " [" << c.outer << ", " << c.size << ", "
                             << c.inner << "] by " << c.n << " rows, " << threads << " threads";
  }
}

TEST_P(IndexKernels, AddRowsOfEveryWidthInTheirOrder) {
  std::vector<AddCase> cases;
  for (const int64_t inner : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 130, 1100}) {
    cases.push_back({1, 5, inner, 40});
    cases.push_back({3, 9, inner, 4});
    cases.push_back({2, 900, inner, 6});  // few rows for many places
  }
  for (const int64_t inner : {1, 3, 8}) {
    cases.push_back({700, 3, inner, 3});         // many short lines
    cases.push_back({1, 6'000, inner, 20'000});  // one line: threads divide the places
    cases.push_back({3, 50, inner, 2'049});
    cases.push_back({1, 1, inner, 1'024});
  }
  for (const AddCase& c : cases) {
    const std::vector<int64_t> index = positions(c.n, c.size);
    for (const bool skips : {false, true}) {
      if (HasFatalFailure()) return;
      expect_sums<float>(rng_, Dtype::kFloat32, c, index, skips);
      expect_sums<double>(rng_, Dtype::kFloat64, c, index, skips);
      expect_sums<int32_t>(rng_, Dtype::kInt32, c, index, skips);
      expect_sums<int64_t>(rng_, Dtype::kInt64, c, index, skips);
      expect_sums<float>(rng_, Dtype::kBFloat16, c, index, skips);
      expect_sums<float>(rng_, Dtype::kFloat16, c, index, skips);
    }
  }
}

// Rounding would change the bits of such a NaN.
TEST_P(IndexKernels, LeaveBitsWhereNothingIsAdded) {
  constexpr uint16_t kSignalling = 0x7f81;
  const std::vector<int64_t> index{0, 2, 2};
  const uint16_t ones[] = {0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x3f80};
  for (const int64_t outer : {1, 2}) {
    std::vector<uint16_t> out{0, kSignalling, 0, kSignalling, kSignalling, 0x8000};
    const int64_t size = static_cast<int64_t>(out.size()) / outer;
    add_at(Dtype::kBFloat16, out.data(), outer, size, 1, {index.data(), Dtype::kInt64, 3}, ones);
    EXPECT_EQ(out[1], kSignalling);
    EXPECT_EQ(out[4], kSignalling);
    EXPECT_EQ(out[5], outer == 1 ? 0x8000 : 0x4000);
    EXPECT_EQ(out[2], 0x4000);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, IndexKernels, kEveryIsa, isa_of);

}  // namespace
}  // namespace hologram
