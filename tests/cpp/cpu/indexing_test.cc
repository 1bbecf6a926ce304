// SPDX-License-Identifier: MIT
// Compares joining, taking, putting and adding by index, gather, scatter and triangles with plain
// loops.
#include "hologram/indexing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/parallel.h"
#include "tests/cpp/cpu/isa_test.h"

namespace hologram {
namespace {

class IndexingTest : public ::testing::Test {
 protected:
  std::vector<char> bytes(size_t n) {
    std::vector<char> result(n);
    for (char& b : result) b = static_cast<char>(rng_());
    return result;
  }
  std::mt19937 rng_{7};
};

TEST_F(IndexingTest, JoinsRows) {
  struct Case {
    int64_t rows;
    std::vector<int64_t> widths;  // negative: zeros
  };
  const Case cases[] = {{1, {5}},
                        {3, {4, 8, 4}},
                        {7, {1, -3, 100}},
                        {1000, {4, 4, 4, 4}},
                        {2, {300'000, -7, 70'001}},
                        {3, {1'500'000, 1'500'001, -64}},
                        {1, {9'000'000}}};
  for (const Case& c : cases) {
    std::vector<std::vector<char>> parts;
    std::vector<Piece> pieces;
    int64_t row = 0;
    for (const int64_t width : c.widths) {
      parts.push_back(bytes(static_cast<size_t>(c.rows * std::abs(width))));
      row += std::abs(width);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      pieces.push_back({c.widths[i] < 0 ? nullptr : parts[i].data(), std::abs(c.widths[i])});
    }
    std::vector<char> expected;
    for (int64_t r = 0; r < c.rows; ++r) {
      for (const Piece& piece : pieces) {
        const auto* from = static_cast<const char*>(piece.data);
        for (int64_t i = 0; i < piece.bytes; ++i) {
          expected.push_back(from == nullptr ? 0 : from[r * piece.bytes + i]);
        }
      }
    }
    for (const int threads : {1, 3}) {
      std::vector<char> out(expected.size() + 1, 1);  // at an odd address
      join(pieces.data(), static_cast<int64_t>(pieces.size()), c.rows, out.data() + 1, threads);
      EXPECT_TRUE(std::memcmp(out.data() + 1, expected.data(), expected.size()) == 0)
          << c.rows << " rows of " << row << " bytes, " << threads << " threads";
      EXPECT_EQ(out[0], 1);
    }
  }
  join(nullptr, 0, 5, nullptr);
}

TEST_F(IndexingTest, TakesRows) {
  for (const int64_t inner : {1, 2, 3, 4, 8, 16, 100, 70'000}) {
    for (const int64_t outer : {1, 3}) {
      constexpr int64_t kSize = 11, kCount = 40;
      const std::vector<char> in = bytes(static_cast<size_t>(outer * kSize * inner));
      std::vector<int64_t> index(kCount);
      for (int64_t& i : index) i = static_cast<int64_t>(rng_() % (2 * kSize)) - kSize;
      const std::vector<int32_t> narrow(index.begin(), index.end());
      std::vector<char> expected;
      for (int64_t o = 0; o < outer; ++o) {
        for (const int64_t i : index) {
          const char* from = &in[static_cast<size_t>((o * kSize + (i + kSize) % kSize) * inner)];
          expected.insert(expected.end(), from, from + inner);
        }
      }
      std::vector<char> out(expected.size());
      take(in.data(), outer, kSize, inner, {index.data(), Dtype::kInt64, kCount}, out.data(), 3);
      EXPECT_TRUE(out == expected) << inner;
      std::fill(out.begin(), out.end(), 0);
      take(in.data(), outer, kSize, inner, {narrow.data(), Dtype::kInt32, kCount}, out.data());
      EXPECT_TRUE(out == expected) << inner;
    }
  }
}

TEST_F(IndexingTest, KnowsPositionsOutside) {
  const int64_t index[] = {0, -3, 2};
  EXPECT_TRUE(positions_within({index, Dtype::kInt64, 3}, -3, 3));
  EXPECT_FALSE(positions_within({index, Dtype::kInt64, 3}, 0, 3));
  EXPECT_FALSE(positions_within({index, Dtype::kInt64, 3}, -3, 2));
  EXPECT_TRUE(positions_within({index, Dtype::kInt64, 0}, 0, 0));
  EXPECT_THROW(positions_within({index, Dtype::kFloat32, 3}, 0, 3), Error);
}

TEST_F(IndexingTest, AddsInOrder) {
  const Dtype dtypes[] = {Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat32,
                          Dtype::kFloat64, Dtype::kInt32,    Dtype::kInt64};
  for (const Dtype dtype : dtypes) {
    for (const int64_t inner : {1, 5, 300}) {
      for (const int64_t size : {1, 4, 2'100}) {  // the last: sorted, not counted
        for (const bool mean : {false, true}) {
          if (mean && !is_floating(dtype)) continue;
          constexpr int64_t kCount = 60, kOuter = 2, kSkipped = 0;
          std::vector<int64_t> index(kCount);
          for (int64_t& i : index) i = static_cast<int64_t>(rng_() % 4) % size;
          // Whole numbers: every sum is exact, so the order of additions cannot hide an error.
          const auto wide = [](int64_t n) { return static_cast<size_t>(n); };
          std::vector<int64_t> start(wide(kOuter * size * inner)),
              values(wide(kOuter * kCount * inner));
          for (size_t i = 0; i < start.size(); ++i) start[i] = static_cast<int64_t>(i % 5);
          for (int64_t& v : values) v = static_cast<int64_t>(rng_() % 7) - 3;
          std::vector<int64_t> times(wide(size), 0);
          for (const int64_t i : index) times[wide(i)] += i != kSkipped;
          std::vector<double> sums(start.size(), 0), expected(start.size());
          for (int64_t o = 0; o < kOuter; ++o) {
            for (int64_t k = 0; k < kCount; ++k) {
              if (index[wide(k)] == kSkipped) continue;
              for (int64_t j = 0; j < inner; ++j) {
                sums[wide((o * size + index[wide(k)]) * inner + j)] +=
                    static_cast<double>(values[wide((o * kCount + k) * inner + j)]);
              }
            }
          }
          for (size_t i = 0; i < sums.size(); ++i) {
            const auto count = static_cast<double>(times[i / wide(inner) % wide(size)]);
            expected[i] =
                static_cast<double>(start[i]) + (mean && count > 0 ? sums[i] / count : sums[i]);
          }
          std::vector<char> in(values.size() * 8), out(start.size() * 8);
          convert(Dtype::kInt64, values.data(), dtype, in.data(),
                  static_cast<int64_t>(values.size()));
          AddAtOptions options;
          options.mean = mean, options.skipped = &kSkipped;
          std::vector<double> first;
          for (const int threads : {1, 3}) {
            convert(Dtype::kInt64, start.data(), dtype, out.data(),
                    static_cast<int64_t>(start.size()));
            options.max_threads = threads;
            add_at(dtype, out.data(), kOuter, size, inner, {index.data(), Dtype::kInt64, kCount},
                   in.data(), options);
            std::vector<double> result(start.size());
            convert(dtype, out.data(), Dtype::kFloat64, result.data(),
                    static_cast<int64_t>(result.size()));
            for (size_t i = 0; i < result.size(); ++i) {
              const double tol = !mean ? 0 : itemsize(dtype) == 2 ? 0.05 : 1e-6;
              ASSERT_NEAR(result[i], expected[i], tol)
                  << dtype_name(dtype) << " inner " << inner << " size " << size << " at " << i;
            }
            if (first.empty()) first = result;
            EXPECT_EQ(first, result);
          }
        }
      }
    }
  }
}

TEST_F(IndexingTest, RefusesWhatItCannotAdd) {
  char out[8] = {}, value[8] = {};
  const int64_t index[] = {0};
  try {
    add_at(Dtype::kInt8, out, 1, 1, 1, {index, Dtype::kInt64, 1}, value);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("add_at is not implemented for int8"),
              std::string::npos);
  }
}

TEST_F(IndexingTest, PutsRowsInOrder) {
  for (const int64_t inner : {1, 8, 100, 5'000}) {
    constexpr int64_t kOuter = 2, kSize = 9, kCount = 30;
    std::vector<char> out = bytes(static_cast<size_t>(kOuter * kSize * inner)), expected = out;
    const std::vector<char> values = bytes(static_cast<size_t>(kOuter * kCount * inner));
    std::vector<int64_t> index(kCount);
    for (int64_t& i : index) i = static_cast<int64_t>(rng_() % (2 * kSize)) - kSize;
    for (int64_t o = 0; o < kOuter; ++o) {
      for (int64_t k = 0; k < kCount; ++k) {
        const int64_t place = (index[static_cast<size_t>(k)] + kSize) % kSize;
        std::memcpy(&expected[static_cast<size_t>((o * kSize + place) * inner)],
                    &values[static_cast<size_t>((o * kCount + k) * inner)],
                    static_cast<size_t>(inner));
      }
    }
    put_at(out.data(), kOuter, kSize, inner, {index.data(), Dtype::kInt64, kCount}, values.data(),
           3);
    EXPECT_TRUE(out == expected) << inner;
  }
}

TEST_F(IndexingTest, GathersAndScatters) {
  const GatherShape shapes[] = {
      {1, 7, 5, 1}, {3, 7, 5, 1}, {2, 4, 6, 100}, {500, 9, 4, 3}, {1, 1000, 20'000, 1}};
  for (const GatherShape& s : shapes) {
    const auto wide = [](int64_t n) { return static_cast<size_t>(n); };
    std::vector<int64_t> index(wide(s.outer * s.n * s.inner));
    for (int64_t& i : index) i = static_cast<int64_t>(rng_() % wide(s.size));
    // The place in [outer, size, inner] of element e of [outer, n, inner].
    const auto place = [&](size_t e) {
      const int64_t i = static_cast<int64_t>(e) % s.inner;
      const int64_t o = static_cast<int64_t>(e) / (s.n * s.inner);
      return wide((o * s.size + index[e]) * s.inner + i);
    };
    for (const int64_t size : {1, 2, 4, 8, 16}) {
      const std::vector<char> in = bytes(wide(s.outer * s.size * s.inner * size));
      std::vector<char> out(index.size() * wide(size)), expected = out;
      for (size_t e = 0; e < index.size(); ++e) {
        std::memcpy(&expected[e * wide(size)], &in[place(e) * wide(size)], wide(size));
      }
      EXPECT_TRUE(gather(in.data(), size, s, index.data(), out.data(), 3));
      EXPECT_TRUE(out == expected) << size;
      const std::vector<char> values = bytes(out.size());
      for (const bool one : {false, true}) {
        std::vector<char> changed = in, right = in;
        for (size_t e = 0; e < index.size(); ++e) {
          std::memcpy(&right[place(e) * wide(size)], &values[one ? 0 : e * wide(size)], wide(size));
        }
        scatter(changed.data(), size, s, index.data(), values.data(), one, 3);
        EXPECT_TRUE(changed == right) << size << " bytes, one " << one;
      }
    }
    std::vector<float> sums(wide(s.outer * s.size * s.inner), 0.25f), right = sums;
    std::vector<float> values(index.size());
    for (float& v : values) v = static_cast<float>(rng_() % 1000) / 7;
    for (size_t e = 0; e < index.size(); ++e) right[place(e)] += values[e];
    std::vector<float> changed = sums;
    scatter_add(Dtype::kFloat32, changed.data(), s, index.data(), values.data(), 3);
    EXPECT_EQ(changed, right);
  }
  const int64_t index[] = {0};
  char out[8] = {}, value[8] = {};
  EXPECT_THROW(scatter_add(Dtype::kFloat16, out, {1, 1, 1, 1}, index, value), Error);
  for (const int64_t outside : {-1, 2}) {
    const int64_t some[] = {1, outside};
    const float two[] = {3, 4};
    float to[] = {0, 0};
    EXPECT_FALSE(gather(two, 4, {1, 2, 2, 1}, some, to));
    EXPECT_EQ(to[0], 4);
    EXPECT_FALSE(scatter(to, 4, {1, 2, 2, 1}, some, two, false));
    EXPECT_EQ(to[1], 3);
    EXPECT_FALSE(scatter_add(Dtype::kFloat32, to, {1, 2, 2, 1}, some, two));
    EXPECT_EQ(to[1], 6);
  }
  EXPECT_THROW(gather(value, 3, {1, 1, 1, 1}, index, out), Error);
}

TEST_F(IndexingTest, KeepsTriangles) {
  for (const int64_t rows : {1, 4, 9, 700}) {
    for (const int64_t cols : {1, 3, 5, 300}) {
      for (const int64_t diagonal : {-20, -3, 0, 2, 400}) {
        for (const bool upper : {false, true}) {
          constexpr int64_t kCount = 3, kBytes = 2;
          const std::vector<char> in = bytes(static_cast<size_t>(kCount * rows * cols * kBytes));
          std::vector<char> expected = in, out(in.size(), 1), same = in;
          for (int64_t i = 0; i < kCount * rows * cols; ++i) {
            const int64_t r = i / cols % rows, c = i % cols;
            if (upper ? c >= r + diagonal : c <= r + diagonal) continue;
            std::memset(&expected[static_cast<size_t>(i * kBytes)], 0, kBytes);
          }
          triangle(in.data(), kCount, rows, cols, kBytes, diagonal, upper, out.data(), 3);
          EXPECT_TRUE(out == expected) << rows << " x " << cols << " diagonal " << diagonal;
          triangle(same.data(), kCount, rows, cols, kBytes, diagonal, upper, same.data());
          EXPECT_TRUE(same == expected);
        }
      }
    }
  }
}

// --- On every instruction set, bit by bit against plain loops -----------------------------------

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
