// SPDX-License-Identifier: MIT
// Tests what HOLOGRAM_RECORDER_CHECK=1 says of calls whose words are not their row's.
#include "src/runtime/recording/call_check.h"

#include <gtest/gtest.h>

#include <vector>

#include "hologram/call_structs.h"
#include "hologram/shape.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

constexpr Dtype kFloat = Dtype::kFloat32, kHalf = Dtype::kFloat16, kLong = Dtype::kInt64;

struct Words {
  std::vector<uint64_t> words;

  Words& none() { return number(0); }
  Words& number(uint64_t word) {
    words.push_back(word);
    return *this;
  }
  Words& view(Dtype dtype, const Shape& shape) {
    number(view_head(dtype, shape.size(), true));
    for (const int64_t size : shape) number(static_cast<uint64_t>(size));
    return *this;
  }
};

void check(CallNumber call, const Words& words) {
  internal::check_call(static_cast<uint16_t>(call), words.words);
}

Words norm(const Shape& input, const Shape& weight, const Shape& mean, Dtype saved = kFloat) {
  Words words;
  return words.view(kFloat, input)
      .view(kFloat, weight)
      .none()
      .view(kFloat, input)
      .view(saved, mean)
      .view(saved, mean)
      .number(1);
}

TEST(CallCheck, TakesWhatTheRowSays) {
  check(CallNumber::layer_norm, norm({2, 3, 4}, {4}, {2, 3}));
  check(CallNumber::layer_norm, norm({2, 3, 4}, {4}, {2, 3, 1}));  // by its number of elements
  // The names of gates are settled by the operands behind it.
  Words lstm;
  lstm.view(kFloat, {5, 2, 12}).view(kFloat, {12, 3}).none().view(kFloat, {2, 3});
  lstm.view(kFloat, {2, 3}).none().none();
  lstm.view(kFloat, {5, 2, 3}).view(kFloat, {2, 3}).view(kFloat, {2, 3}).none().number(0);
  check(CallNumber::lstm_recurrence, lstm);
  // A parameter that the words do not have stands for a size.
  check(CallNumber::pack_rows, Words().view(kHalf, {4, 3, 2}).view(kLong, {4}).view(kHalf, {9, 2}));
  internal::check_call(60000, {});  // no row
}

TEST(CallCheck, RefusesOtherShapes) {
  EXPECT_ERROR(check(CallNumber::layer_norm, norm({2, 3, 4}, {3}, {2, 3})), ErrorKind::kInternal,
               "recorder check: layer_norm: weight has shape [3] where M is [4]; its schema: ");
  EXPECT_ERROR(check(CallNumber::layer_norm, norm({2, 3, 4}, {4}, {6, 1, 2})), ErrorKind::kInternal,
               "mean has shape [6, 1, 2] where B is [2, 3]");
  Words conv;
  conv.view(kFloat, {1, 4, 8, 8}).view(kFloat, {6, 3, 3, 3}).none().view(kFloat, {1, 6, 6, 6});
  for (int i = 0; i < 3; ++i) conv.number(2).number(1).number(1);
  conv.number(2);
  EXPECT_ERROR(check(CallNumber::convolution, conv), ErrorKind::kInternal,
               "convolution: weight has shape [6, 3, 3, 3]");
  Words sgd;
  sgd.none().none();
  sgd.number(2).view(kFloat, {3}).view(kFloat, {4});
  sgd.number(2).view(kFloat, {3}).view(kFloat, {5});
  sgd.number(0).number(0).number(0).number(0).number(0);
  EXPECT_ERROR(check(CallNumber::sgd, sgd), ErrorKind::kInternal,
               "sgd: grads 1 has shape [5] where that of params has [4]");
}

TEST(CallCheck, RefusesOtherDtypes) {
  EXPECT_ERROR(check(CallNumber::layer_norm, norm({2, 4}, {4}, {2}, Dtype::kFloat64)),
               ErrorKind::kInternal, "layer_norm: mean is float64");
  EXPECT_ERROR(
      check(CallNumber::take,
            Words().view(kFloat, {1, 5, 2}).view(kFloat, {3}).view(kFloat, {1, 3, 2}).number(1)),
      ErrorKind::kInternal, "take: index is float32");
  EXPECT_ERROR(
      check(CallNumber::take,
            Words().view(kFloat, {1, 5, 2}).view(kLong, {3}).view(kHalf, {1, 3, 2}).number(1)),
      ErrorKind::kInternal, "take: out is float16 where another of its letter is float32");
}

TEST(CallCheck, RefusesOtherWords) {
  Words words = norm({2, 4}, {4}, {2});
  words.words.pop_back();
  EXPECT_ERROR(check(CallNumber::layer_norm, words), ErrorKind::kInternal,
               "layer_norm: has too few words; its schema: T input[*B, *M(axes)]");
  words.number(1).number(7).number(8);
  EXPECT_ERROR(check(CallNumber::layer_norm, words), ErrorKind::kInternal,
               "layer_norm: has 2 words too many");
  words.words.resize(2);
  EXPECT_ERROR(check(CallNumber::layer_norm, words), ErrorKind::kInternal,
               "layer_norm: has too few words for input");
}

}  // namespace
}  // namespace hologram
