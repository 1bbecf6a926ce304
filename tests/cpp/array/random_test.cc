// SPDX-License-Identifier: MIT
// Samples without replacement and integers between tensors, beside their definitions.
#include "hologram/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "hologram/error.h"
#include "hologram/functions.h"
#include "src/base/philox.h"

namespace hologram {
namespace {

constexpr PhiloxStream kStream{0x123456789abcdef0, 0xfffffffffffffff9};  // goes over its end

Device& cpu() { return device(BackendType::kCpu); }

uint64_t word(int64_t i) {
  const auto n = static_cast<uint64_t>(i);
  const auto block = philox_block(kStream.seed, kStream.offset + 8 * (n / 16) + n % 8);
  return block[n % 16 / 8 * 2] | static_cast<uint64_t>(block[n % 16 / 8 * 2 + 1]) << 32;
}

std::vector<int64_t> values(const Tensor& t) {
  materialize(t);
  const auto* data = static_cast<const int64_t*>(t.data());
  return {data, data + t.numel()};
}

TEST(RandomPositions, AreTheFirstStepsOfAShuffle) {
  for (const auto& [batch, n, k] : std::vector<std::array<int64_t, 3>>{
           {1, 10, 10}, {3, 7, 7}, {5, 9, 4}, {1, 5000, 5000}, {2, 100000, 13}, {1, 1, 1}}) {
    const std::vector<int64_t> found = values(random_positions(kStream, batch, n, k, cpu()));
    int64_t at = 0;
    for (int64_t row = 0; row < batch; ++row) {
      std::vector<int64_t> numbers(static_cast<size_t>(n));
      std::iota(numbers.begin(), numbers.end(), 0);
      for (int64_t i = 0; i < k; ++i, ++at) {
        // None of these words is drawn again.
        const auto left = static_cast<unsigned __int128>(n - i);
        const auto step = static_cast<int64_t>(left * word(at) >> 64);
        std::swap(numbers[i], numbers[i + step]);
        ASSERT_EQ(found[at], numbers[i]) << n << " " << k << " " << at;
      }
    }
  }
}

TEST(RandomPositions, OfManyTakeNoMoreThanTheSample) {
  const int64_t n = int64_t{1} << 62;
  const std::vector<int64_t> found = values(random_positions(kStream, 2, n, 1000, cpu()));
  EXPECT_EQ(std::set<int64_t>(found.begin(), found.end()).size(), 2000u);
  EXPECT_GE(*std::min_element(found.begin(), found.end()), 0);
  EXPECT_LT(*std::max_element(found.begin(), found.end()), n);
}

TEST(RandomPositions, AllOrdersAreEquallyLikely) {
  constexpr int64_t kDraws = 48000;
  const std::vector<int64_t> found = values(random_positions(kStream, kDraws, 4, 4, cpu()));
  std::map<std::vector<int64_t>, int64_t> counts;
  for (int64_t i = 0; i < kDraws; ++i) ++counts[{&found[4 * i], &found[4 * i] + 4}];
  ASSERT_EQ(counts.size(), 24u);
  double chi = 0;
  for (const auto& [order, count] : counts) {
    chi += static_cast<double>((count - kDraws / 24) * (count - kDraws / 24)) / (kDraws / 24);
  }
  EXPECT_LT(chi, 65);  // 23 degrees of freedom
}

TEST(RandomPositions, RefusesWhatCannotBe) {
  EXPECT_THROW(random_positions(kStream, 1, 3, 4, cpu()), Error);
  EXPECT_THROW(random_positions(kStream, 1, 3, -1, cpu()), Error);
  EXPECT_THROW(random_positions(kStream, -1, 3, 1, cpu()), Error);
  EXPECT_EQ(random_positions(kStream, 0, 3, 2, cpu()).shape(), (Shape{0, 2}));
  EXPECT_EQ(random_positions(kStream, 2, 0, 0, cpu()).shape(), (Shape{2, 0}));
}

TEST(RandomFills, TakeAnyStridesAndTheirDtypes) {
  const Tensor rows = empty(Shape{5, 7}, Dtype::kInt64, cpu());
  const Tensor columns = empty(Shape{7, 5}, Dtype::kInt64, cpu()).transpose(0, 1);
  fill_integers(rows, kStream, 5, 0);
  fill_integers(columns, kStream, 5, 0);
  const std::vector<int64_t> found = values(rows);
  for (int64_t i = 0; i < 35; ++i) {
    ASSERT_EQ(static_cast<uint64_t>(found[static_cast<size_t>(i)]), word(i) + 5);
  }
  EXPECT_EQ(values(contiguous(columns)), found);
  const Tensor once = empty(Shape{1}, Dtype::kFloat32, cpu());
  fill_uniform(empty(Shape{0}, Dtype::kFloat32, cpu()), kStream, 0, 1);
  EXPECT_THROW(fill_uniform(once.expand(Shape{3}), kStream, 0, 1), Error);
  EXPECT_THROW(fill_uniform(rows, kStream, 0, 1), Error);
  EXPECT_THROW(fill_normal(rows, kStream, 0, 1), Error);
  EXPECT_THROW(fill_integers(empty(Shape{2}, Dtype::kComplex64, cpu()), kStream, 0, 5), Error);
}

TEST(RandomIntegers, LieBetweenTheirBounds) {
  constexpr int64_t kN = 5000;
  Tensor low = empty(Shape{kN}, Dtype::kInt64, cpu()),
         high = empty(Shape{kN}, Dtype::kInt64, cpu());
  materialize(low);
  materialize(high);
  for (int64_t i = 0; i < kN; ++i) {
    static_cast<int64_t*>(low.data())[i] = i % 2 == 0 ? INT64_MIN : -i;
    static_cast<int64_t*>(high.data())[i] = i % 2 == 0 ? INT64_MAX : i + 1;
  }
  const std::vector<int64_t> found =
      values(random_integers(kStream, low, high, false, Dtype::kInt64));
  for (int64_t i = 0; i < kN; ++i) {
    const int64_t first = i % 2 == 0 ? INT64_MIN : -i;
    const uint64_t width = i % 2 == 0 ? ~uint64_t{0} : static_cast<uint64_t>(2 * i + 1);
    const auto choice =
        static_cast<uint64_t>(static_cast<unsigned __int128>(width) * word(i) >> 64);
    ASSERT_EQ(static_cast<uint64_t>(found[i]), static_cast<uint64_t>(first) + choice) << i;
  }
}

TEST(RandomIntegers, RefusesEmptyRangesAndDtypes) {
  const Tensor low = full(Shape{2}, Scalar(int64_t{5}), Dtype::kInt64, cpu());
  const Tensor same = full(Shape{2}, Scalar(int64_t{5}), Dtype::kInt64, cpu());
  const Tensor more = full(Shape{2}, Scalar(int64_t{300}), Dtype::kInt64, cpu());
  const Tensor other = full(Shape{3}, Scalar(int64_t{9}), Dtype::kInt64, cpu());
  const Tensor narrow = full(Shape{2}, Scalar(int64_t{9}), Dtype::kInt32, cpu());
  EXPECT_THROW(random_integers(kStream, low, same, false, Dtype::kInt64), Error);
  EXPECT_EQ(values(random_integers(kStream, low, same, true, Dtype::kInt64)),
            (std::vector<int64_t>{5, 5}));
  EXPECT_THROW(random_integers(kStream, low, more, false, Dtype::kUInt8), Error);
  EXPECT_THROW(random_integers(kStream, low, other, false, Dtype::kInt64), Error);
  EXPECT_THROW(random_integers(kStream, low, narrow, false, Dtype::kInt64), Error);
  EXPECT_THROW(random_integers(kStream, low, more, false, Dtype::kFloat32), Error);
}

}  // namespace
}  // namespace hologram
