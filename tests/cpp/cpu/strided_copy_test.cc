// SPDX-License-Identifier: MIT
// Copies between rectangles, short rows and rows with gaps, against one element at a time.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "src/cpu/elementwise/iteration.h"
#include "src/cpu/movement/copy_bytes.h"
#include "src/cpu/movement/every_nth.h"
#include "tests/cpp/cpu/jit_cases.h"

namespace hologram::cpu {
namespace {

class EveryNth : public IsaTest {};

// The last element lies before memory that may not be read, and nothing behind the result changes.
TEST_P(EveryNth, ReadsAndWritesItsElementsAlone) {
  std::mt19937_64 rng(1);
  for (const int64_t itemsize : {1, 2, 4, 8}) {
    const auto size = static_cast<size_t>(itemsize);
    for (const int64_t step : {-1, 0, 2, 3, 4}) {
      if (itemsize == 8 && step > 2) continue;
      const EveryNthKernel kernel = every_nth_kernel(GetParam(), step, itemsize);
      ASSERT_NE(kernel, nullptr);
      for (int64_t n = 1; n < 200; n += n < 70 ? 1 : 17) {
        const size_t bytes = static_cast<size_t>((n - 1) * std::abs(step) + 1) * size;
        const Guarded memory(bytes);
        char* const begin = step < 0 && n % 2 == 0 ? memory.first() : memory.last(bytes);
        char* const from = step < 0 ? begin + static_cast<size_t>(n - 1) * size : begin;
        for (size_t i = 0; i < bytes; ++i) begin[i] = static_cast<char>(rng());
        std::vector<char> got((static_cast<size_t>(n) + 8) * size, 0x5a), want = got;
        for (int64_t i = 0; i < n; ++i) {
          std::memcpy(&want[static_cast<size_t>(i) * size], from + i * step * itemsize, size);
        }
        kernel(from, got.data(), n);
        ASSERT_EQ(got, want) << n << " elements of " << itemsize << " bytes, step " << step;
      }
    }
  }
}

TEST_P(EveryNth, HasNoKernelForOtherSteps) {
  for (const int64_t step : {-2, 1, 5}) {
    EXPECT_EQ(every_nth_kernel(GetParam(), step, 4), nullptr);
  }
  EXPECT_EQ(every_nth_kernel(GetParam(), 2, 16), nullptr);
  EXPECT_EQ(every_nth_kernel(GetParam(), 3, 8), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Isas, EveryNth, kEveryIsa, isa_of);

class CopyBlock : public IsaTest {};

// One side of a copy: a rectangle that ends before memory that may not be read.
struct Side {
  int64_t row, col, elements;
  size_t size;
  Guarded memory;
  char* data;

  Side(int64_t rows, int64_t cols, int64_t step, int64_t gap, size_t itemsize)
      : row((cols - 1) * step + 1 + gap),
        col(step),
        elements((rows - 1) * row + (cols - 1) * step + 1),
        size(itemsize),
        memory(static_cast<size_t>(elements) * size),
        data(memory.last(static_cast<size_t>(elements) * size)) {}

  char* at(int64_t r, int64_t c) const { return data + (r * row + c * col) * int64_t(size); }
  std::vector<char> bytes() const { return {data, data + elements * int64_t(size)}; }
};

TEST_P(CopyBlock, MovesTheRectangleAndNothingElse) {
  std::mt19937_64 rng(2);
  for (const size_t size : {1, 2, 4, 8, 16}) {
    for (int64_t cols = 1; cols < 140; cols += cols < 40 ? 1 : 13) {
      for (const auto& [step, to_step] :
           {std::pair{1, 1}, {2, 1}, {3, 1}, {7, 1}, {1, 2}, {3, 5}}) {
        const auto gap = [&] { return static_cast<int64_t>(rng() % 4); };
        const int64_t rows = 1 + static_cast<int64_t>(rng() % 6);
        const Side from(rows, cols, step, gap(), size), to(rows, cols, to_step, gap(), size);
        for (char* p = from.data; p != from.data + from.bytes().size(); ++p) {
          *p = static_cast<char>(rng());
        }
        std::memset(to.data, 0x5a, to.bytes().size());
        std::vector<char> want = to.bytes();
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            std::memcpy(&want[static_cast<size_t>(to.at(r, c) - to.data)], from.at(r, c), size);
          }
        }
        copy_block({from.data, from.row, from.col}, {to.data, to.row, to.col}, rows, cols,
                   static_cast<int64_t>(size));
        ASSERT_EQ(to.bytes(), want) << rows << " x " << cols << " elements of " << size
                                    << " bytes, steps " << step << " and " << to_step;
      }
    }
  }
}

// Rows that are read again, columns that lie along the source, and more than a tile of them.
TEST_P(CopyBlock, ReadsRowsInAnyOrder) {
  std::mt19937_64 rng(4);
  for (const size_t size : {1, 2, 4, 8, 16}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 40},
                                     {3, 9},
                                     {17, 3},
                                     {40, 7},
                                     {96, 32},
                                     {32, 32},
                                     {130, 70}}) {
      for (const auto& [row, col] : {std::pair<int64_t, int64_t>{0, 2},
                                     {0, 1},
                                     {0, 0},
                                     {1, 0},
                                     {1, 131},
                                     {2, 263},
                                     {3, 400},
                                     {4, 521},
                                     {-1, 131},
                                     {7, -1}}) {
        const int64_t first =
            std::min<int64_t>(0, (rows - 1) * row) + std::min<int64_t>(0, (cols - 1) * col);
        const int64_t last =
            std::max<int64_t>(0, (rows - 1) * row) + std::max<int64_t>(0, (cols - 1) * col);
        const auto bytes = static_cast<size_t>(last - first + 1) * size;
        const Guarded source(bytes), target(static_cast<size_t>(rows * cols) * size);
        char* const begin = source.last(bytes);
        for (size_t i = 0; i < bytes; ++i) begin[i] = static_cast<char>(rng());
        char* const from = begin - first * static_cast<int64_t>(size);
        char* const to = target.last(static_cast<size_t>(rows * cols) * size);
        copy_block({from, row, col}, {to, cols, 1}, rows, cols, static_cast<int64_t>(size));
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            ASSERT_EQ(std::memcmp(to + (r * cols + c) * int64_t(size),
                                  from + (r * row + c * col) * int64_t(size), size),
                      0)
                << rows << " x " << cols << " elements of " << size << " bytes, steps " << row
                << " and " << col << ", at " << r << ", " << c;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, CopyBlock, kEveryIsa, isa_of);

// Both ends of source and target lie beside memory that may not be touched, and the bytes between
// the rows of the target stay.
TEST(CopyRows, MovesRowsAndNothingElse) {
  std::mt19937_64 rng(5);
  for (int64_t bytes = 1; bytes < 150; ++bytes) {
    for (const int64_t gap : {-1, 0, 1, 5, 40}) {
      for (const int64_t to_gap : {0, 0, 3}) {
        const int64_t rows = 1 + static_cast<int64_t>(rng() % 9);
        const int64_t apart = gap < 0 ? 0 : bytes + gap, to_apart = bytes + to_gap;
        const auto all = static_cast<size_t>((rows - 1) * apart + bytes);
        const auto to_all = static_cast<size_t>((rows - 1) * to_apart + bytes);
        const Guarded source(all), target(to_all);
        const bool backward = rng() % 2 == 0, at_end = rng() % 2 == 0;
        char* const from = at_end ? source.last(all) : source.first();
        char* const to = at_end ? target.last(to_all) : target.first();
        for (size_t i = 0; i < all; ++i) from[i] = static_cast<char>(rng());
        std::memset(to, 0x5a, to_all);
        std::vector<char> want(to, to + to_all);
        char* const first = backward ? from + (rows - 1) * apart : from;
        const int64_t step = backward ? -apart : apart;
        for (int64_t r = 0; r < rows; ++r) {
          std::memcpy(&want[static_cast<size_t>(r * to_apart)], first + r * step,
                      static_cast<size_t>(bytes));
        }
        copy_rows(first, step, to, to_apart, rows, bytes);
        ASSERT_EQ(std::vector<char>(to, to + to_all), want)
            << rows << " rows of " << bytes << " bytes, gaps " << gap << " and " << to_gap;
      }
    }
  }
}

class CopyBytes : public IsaTest {};

// Of every length and alignment, long ones among them; source and target end before memory that may
// not be read.
TEST_P(CopyBytes, MovesThemAllAndNothingElse) {
  std::mt19937_64 rng(3);
  constexpr int64_t kMost = 9000;
  const Guarded source(kMost + 64), target(kMost + 64);
  for (int64_t n = 0; n < kMost; n += n < 300 ? 1 : 97) {
    for (const int64_t behind : {int64_t{0}, static_cast<int64_t>(rng() % 64)}) {
      const auto bytes = static_cast<size_t>(n);
      char* const from = source.last(bytes + static_cast<size_t>(rng() % 64));
      char* const to = target.last(bytes + static_cast<size_t>(behind));
      for (int64_t i = 0; i < n; ++i) from[i] = static_cast<char>(rng());
      std::memset(to, 0x5a, bytes + static_cast<size_t>(behind));
      to[-1] = 0x5b;
      copy_bytes(to, from, n);
      ASSERT_EQ(std::memcmp(to, from, bytes), 0) << n << " bytes";
      if (n >= 64) {
        std::memset(to, 0x5a, bytes);
        convert_table(GetParam()).copy(from, to, n);
        ASSERT_EQ(std::memcmp(to, from, bytes), 0) << n << " bytes";
      }
      ASSERT_EQ(to[-1], 0x5b);
      for (int64_t i = 0; i < behind; ++i) ASSERT_EQ(to[n + i], 0x5a) << n << " bytes";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, CopyBytes, kEveryIsa, isa_of);

}  // namespace
}  // namespace hologram::cpu
