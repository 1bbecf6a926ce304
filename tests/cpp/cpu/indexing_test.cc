// SPDX-License-Identifier: MIT
// Compares joining, taking, putting and adding by index, gather, scatter and triangles with plain
// loops.
#include "hologram/indexing.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/parallel.h"

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

}  // namespace
}  // namespace hologram
