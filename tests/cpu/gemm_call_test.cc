// SPDX-License-Identifier: MIT
// Recorded products against the same products at once, bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "hologram/gemm.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"
#include "tests/runtime/support.h"

namespace hologram {
namespace {

using Random = std::mt19937;

BufferRef random_buffer(Random& random, Dtype dtype, int64_t n) {
  const size_t bytes = static_cast<size_t>(n) * itemsize(dtype);
  BufferRef buffer = BufferRef::adopt(allocate_buffer(cpu(), std::max<size_t>(bytes, 1)));
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < n; ++i) {
    if (dtype == Dtype::kFloat32) {
      buffer->data_as<float>()[i] = static_cast<float>(normal(random));
    } else {
      buffer->data_as<double>()[i] = normal(random);
    }
  }
  return buffer;
}

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// A product and its buffers; all matrices with some elements before and between.
struct Case {
  RecordGemm g;
  BufferRef a, b, c, input;
  bool in_place = false;

  explicit Case(Random& random) {
    const int64_t sizes[] = {1, 2, 3, 7, 15, 33, 64, 129};
    const auto size = [&] { return sizes[pick(random, 0, 7)]; };
    g.dtype = random() % 3 == 0 ? Dtype::kFloat64 : Dtype::kFloat32;
    g.m = size(), g.n = size(), g.k = random() % 20 == 0 ? 0 : 2 * size();
    g.batch = random() % 3 == 0 ? pick(random, 2, 4) : 1;
    g.trans_a = random() % 2, g.trans_b = random() % 2;
    g.alpha = random() % 2 == 0 ? 1 : 0.5;
    g.beta = random() % 3 == 0 ? 0 : random() % 2 == 0 ? 1 : -2;
    const auto matrix = [&](RecordMatrix& to, int64_t rows, int64_t cols, bool repeats) {
      to.ld = std::max<int64_t>(1, cols) + (random() % 2 == 0 ? pick(random, 0, 3) : 0);
      to.batch_stride = repeats ? 0 : rows * to.ld + (random() % 2 == 0 ? pick(random, 0, 5) : 0);
      const int64_t first = pick(random, 0, 2);
      to.offset = first * static_cast<int64_t>(itemsize(g.dtype));
      BufferRef buffer = random_buffer(random, g.dtype,
                                       first + (g.batch - 1) * to.batch_stride + rows * to.ld + 1);
      to.buffer = buffer.get();
      return buffer;
    };
    const bool one_a = random() % 3 == 0, one_b = random() % 3 == 0;
    a = matrix(g.a, g.trans_a ? g.k : g.m, g.trans_a ? g.m : g.k, one_a);
    b = matrix(g.b, g.trans_b ? g.n : g.k, g.trans_b ? g.k : g.n, one_b);
    c = matrix(g.c, g.m, g.n, false);
    if (random() % 2 == 0) return;
    g.input = {nullptr, 0, g.m * g.n, g.n, 1};
    if (random() % 3 == 0) g.input.batch_stride = 0;
    if (random() % 2 == 0) g.input.row_stride = 0, g.input.batch_stride = 0;
    if (random() % 4 == 0) g.input.col_stride = 0;
    input = random_buffer(random, g.dtype, g.batch * g.m * g.n);
    g.input.buffer = input.get();
    if (random() % 4 == 0) {
      g.input = {g.c.buffer, g.c.offset, g.c.batch_stride, g.c.ld, 1};
      in_place = true;
    }
  }

  // The same at once, on a copy of C.
  std::vector<char> expected(int threads) const {
    std::vector<char> bytes(c->nbytes());
    std::memcpy(bytes.data(), c->data(), c->nbytes());
    const int64_t shape_a[] = {g.batch, g.m, g.k}, shape_b[] = {g.batch, g.k, g.n},
                  shape_c[] = {g.batch, g.m, g.n};
    const auto strides = [](const RecordMatrix& m, bool trans) {
      return std::vector<int64_t>{m.batch_stride, trans ? 1 : m.ld, trans ? m.ld : 1};
    };
    const auto sa = strides(g.a, g.trans_a), sb = strides(g.b, g.trans_b), sc = strides(g.c, false);
    const int64_t si[] = {g.input.batch_stride, g.input.row_stride, g.input.col_stride};
    const View out{bytes.data() + g.c.offset, g.dtype, 3, shape_c, sc.data()};
    View in = out;
    if (input != nullptr && !in_place) in = {input->data(), g.dtype, 3, shape_c, si};
    addmm(in, {a->data_as<char>() + g.a.offset, g.dtype, 3, shape_a, sa.data()},
          {b->data_as<char>() + g.b.offset, g.dtype, 3, shape_b, sb.data()}, out, g.alpha, g.beta,
          threads);
    return bytes;
  }
};

class GemmCall : public ::testing::Test {
 protected:
  void SetUp() override {
    set_deferring(true);
    flush(cpu());
  }
};

TEST_F(GemmCall, RandomProductsGiveTheBitsOfAddmm) {
  Random random(3);
  for (int round = 0; round < 600; ++round) {
    const Case test(random);
    const std::vector<char> expected = test.expected(1 + round % 2);
    ASSERT_TRUE(record_gemm(test.g)) << "round " << round;
    EXPECT_TRUE(is_pending(*test.c));
    flush(cpu());
    ASSERT_EQ(std::memcmp(expected.data(), test.c->data(), expected.size()), 0)
        << "round " << round << ": " << test.g.batch << " x " << test.g.m << " x " << test.g.n
        << " x " << test.g.k << ", trans " << test.g.trans_a << test.g.trans_b << ", beta "
        << test.g.beta << (test.in_place ? " in place" : "");
  }
}

TEST_F(GemmCall, NumbersAreNoPartOfThePlan) {
  Random random(4);
  const BufferRef a = random_buffer(random, Dtype::kFloat32, 64);
  reset_recorder_stats(cpu());
  for (const double alpha : {1.0, 2.0, 3.0}) {
    const BufferRef c = BufferRef::adopt(allocate_deferred(cpu(), 256));
    const RecordMatrix x{a.get(), 0, 8};
    ASSERT_TRUE(record_gemm(
        {.m = 8, .n = 8, .k = 8, .alpha = alpha, .a = x, .b = x, .c = {c.get(), 0, 8}}));
    materialize(*c);
    float sum = 0;
    for (int p = 0; p < 8; ++p) sum += a->data_as<float>()[p] * a->data_as<float>()[8 * p];
    EXPECT_NEAR(c->data_as<float>()[0], alpha * static_cast<double>(sum), 1e-4);
  }
  EXPECT_EQ(recorder_stats(cpu()).plan_misses, 1u);
}

TEST_F(GemmCall, WhatIsNotTaken) {
  Random random(5);
  const BufferRef a = random_buffer(random, Dtype::kFloat32, 64),
                  c = random_buffer(random, Dtype::kFloat32, 80);
  RecordGemm g{
      .m = 8, .n = 8, .k = 8, .a = {a.get(), 0, 8}, .b = {a.get(), 0, 8}, .c = {c.get(), 0, 8}};
  RecordGemm other = g;
  other.dtype = Dtype::kBFloat16;
  EXPECT_FALSE(record_gemm(other));
  other = g;
  other.b.buffer = c.get();
  EXPECT_FALSE(record_gemm(other)) << "C is read while it is written";
  other = g;
  other.beta = 1;
  other.input = {c.get(), 4, 0, 8, 1};
  EXPECT_FALSE(record_gemm(other)) << "the input lies one element beside C";
  other = g;
  other.n = -1;
  EXPECT_ERROR(record_gemm(other), ErrorKind::kInvalidArgument,
               "record_gemm: batch, m, n and k must not be negative, got 1, 8, -1, 8");
  other = g;
  other.a.ld = 7;
  EXPECT_ERROR(record_gemm(other), ErrorKind::kInvalidArgument,
               "record_gemm: rows of a have 8 elements but lie only 7 apart");
  other = g;
  other.m = 0;
  EXPECT_TRUE(record_gemm(other)) << "nothing to do";
  register_gemm_provider({.name = "test",
                          .priority = 50,
                          .supports = [](Dtype dtype) { return dtype == Dtype::kFloat32; },
                          .gemm = [](const GemmArgs&) {}});
  EXPECT_FALSE(record_gemm(g)) << "the product is another provider's";
  unregister_gemm_provider("test");
  set_deferring(false);
  EXPECT_FALSE(record_gemm(g));
  set_deferring(true);
  mark_exported(*a);
  EXPECT_FALSE(record_gemm(g));
}

}  // namespace
}  // namespace hologram
