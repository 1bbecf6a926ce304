// SPDX-License-Identifier: MIT
// index(), index_put() and nonzero() beside loops over all elements.
#include <gtest/gtest.h>

#include <random>

#include "hologram/recorder.h"
#include "tests/cpp/array/support.h"

namespace hologram {
namespace {

// The bound of ops at their call for a test's duration.
class Bound {
 public:
  explicit Bound(int64_t bytes) : before_(immediate_bytes()) { set_immediate_bytes(bytes); }
  ~Bound() { set_immediate_bytes(before_); }

 private:
  int64_t before_;
};

std::vector<double> counted(int64_t n) {
  std::vector<double> result;
  for (int64_t i = 0; i < n; ++i) result.push_back(static_cast<double>(i));
  return result;
}

// x [a, b, c] with positions in its middle dimension.
void check_middle(int64_t a, int64_t b, int64_t c, int64_t n, bool is_transposed) {
  Tensor x = tensor<double>({a, b, c}, counted(a * b * c));
  if (is_transposed) x = contiguous(x.transpose(0, 2)).transpose(0, 2);
  std::mt19937 random(static_cast<unsigned>(n));
  std::vector<int64_t> at;
  for (int64_t i = 0; i < n; ++i) at.push_back(static_cast<int64_t>(random() % (2 * b)) - b);
  const DimIndex key{1, tensor<int64_t>({n}, at)};
  const std::vector<double> found = values<double>(index(x, {&key, 1}, 1));
  std::vector<double> expected;
  const std::vector<double> all = counted(a * b * c);
  std::vector<double> put = all;
  for (int64_t i = 0; i < a; ++i) {
    for (int64_t k = 0; k < n; ++k) {
      const int64_t row = at[static_cast<size_t>(k)] + (at[static_cast<size_t>(k)] < 0 ? b : 0);
      for (int64_t j = 0; j < c; ++j) {
        const auto place = static_cast<size_t>((i * b + row) * c + j);
        expected.push_back(all[place]);
        put[place] = -static_cast<double>((i * n + k) * c + j);
      }
    }
  }
  EXPECT_EQ(found, expected);
  std::vector<double> given;
  for (int64_t i = 0; i < a * n * c; ++i) given.push_back(-static_cast<double>(i));
  index_put(x, {&key, 1}, 1, tensor<double>({a, n, c}, given));
  EXPECT_EQ(values<double>(x), put);
}

TEST(Indexing, PositionsInAnyDimensionAndLayout) {
  for (const int64_t bytes : {int64_t{0}, int64_t{4096}}) {
    const Bound bound(bytes);
    for (const bool is_transposed : {false, true}) {
      check_middle(2, 3, 4, 5, is_transposed);
      check_middle(1, 50, 1, 2500, is_transposed);
      check_middle(3, 7, 2, 1100, is_transposed);
      check_middle(2, 5, 600, 9, is_transposed);
    }
  }
}

TEST(Indexing, SeveralIndicesBroadcastToTheirPlace) {
  const Tensor x = tensor<double>({2, 3, 4}, counted(24));
  const DimIndex keys[] = {{0, tensor<int8_t>({2, 1}, {1, 0})},
                           {2, tensor<uint64_t>({3}, {0, 3, ~uint64_t{0}})}};
  const Tensor front = index(x, keys, 0);
  EXPECT_EQ(front.shape(), (Shape{2, 3, 3}));
  EXPECT_EQ(values<double>(front.select(1, 2)), (std::vector<double>{15, 19, 23, 3, 7, 11}));
  const Tensor back = index(x, keys, 1);
  EXPECT_EQ(back.shape(), (Shape{3, 2, 3}));
  EXPECT_EQ(values<double>(back.select(0, 1)), (std::vector<double>{16, 19, 19, 4, 7, 7}));
}

TEST(Indexing, MasksOfLeadingDimensionsSettledOrPending) {
  for (const int64_t bytes : {int64_t{0}, int64_t{4096}}) {
    const Bound bound(bytes);
    for (const int64_t n : {int64_t{4}, int64_t{3000}}) {
      std::vector<uint8_t> rows;
      std::vector<double> kept, put = counted(2 * n);
      for (int64_t i = 0; i < n; ++i) {
        rows.push_back(i % 3 == 1 ? 1 : 0);
        for (int64_t j = 2 * i; rows.back() != 0 && j < 2 * i + 2; ++j) {
          kept.push_back(static_cast<double>(j));
          put[static_cast<size_t>(j)] = -1;
        }
      }
      const Tensor given = tensor<uint8_t>({n}, rows);
      for (const Tensor& mask : {cast(given, Dtype::kBool), mul(given, 1), eq(given, 1)}) {
        const Tensor x = tensor<double>({n, 2}, counted(2 * n));
        const DimIndex key{0, cast(mask, Dtype::kBool)};
        EXPECT_EQ(values<double>(index(x, {&key, 1}, 0)), kept);
        index_put(x, {&key, 1}, 0, tensor<float>({}, {-1}));
        EXPECT_EQ(values<double>(x), put);
      }
    }
  }
}

TEST(Indexing, NonzeroFindsPositionsOfEachDimension) {
  const std::vector<Tensor> found = nonzero(tensor<float>({2, 3}, {0, 1, 0, -2, 0, 3}));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(values<int64_t>(found[0]), (std::vector<int64_t>{0, 1, 1}));
  EXPECT_EQ(values<int64_t>(found[1]), (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(nonzero(tensor<float>({0, 3}, {}))[1].numel(), 0);
  expect_error(ErrorKind::kInvalidArgument, "nonzero: a 0d tensor has no positions",
               [] { nonzero(tensor<float>({}, {1})); });
}

TEST(Indexing, ErrorsNameWhatDoesNotFit) {
  const Tensor x = tensor<double>({2, 3}, counted(6));
  const auto read = [&](std::vector<DimIndex> keys, int place) { index(x, keys, place); };
  const Tensor at = tensor<int64_t>({2}, {0, -4});
  expect_error(ErrorKind::kIndex, "index -4 is out of bounds for axis 1 with size 3", [&] {
    read({{1, at}}, 0);
  });
  expect_error(ErrorKind::kIndex, "index -4 is out of bounds for axis 7", [&] {
    read({{1, at, 7}}, 0);
  });
  expect_error(ErrorKind::kIndex, "each index covers dimensions behind those of the one before",
               [&] {
                 read({{1, at}, {1, at}}, 0);
               });
  expect_error(ErrorKind::kIndex, "the places are to come before the one at 2", [&] {
    read({{1, at}}, 2);
  });
  expect_error(ErrorKind::kTypeMismatch, "indices are integers or bool, not float64", [&] {
    read({{0, x}}, 0);
  });
  expect_error(ErrorKind::kInvalidArgument, "no index was given", [&] { read({}, 0); });
  const DimIndex key{0, tensor<int64_t>({1}, {1})};
  expect_error(ErrorKind::kInvalidArgument,
               "value array of shape (2,) could not be broadcast to indexing result of shape (1,3)",
               [&] {
                 index_put(x, {&key, 1}, 0, tensor<double>({2}, {1, 2}));
               });
  expect_error(ErrorKind::kInvalidArgument, "index_put: out has shape", [&] {
    index_put(x.select(0, 0).expand(Shape{2, 3}), {&key, 1}, 0, x);
  });
}

}  // namespace
}  // namespace hologram
