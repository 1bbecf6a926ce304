// SPDX-License-Identifier: MIT
// Conversions of a weight that become part of the recorded product that reads them.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>

#include "hologram/gemm.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"
#include "tests/cpp/cpu/narrow_support.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

class NarrowGemmCall : public ::testing::Test {
 protected:
  void SetUp() override {
    set_deferring(true);
    flush(cpu());
  }
};

BufferRef buffer_of(const Bytes& bytes) {
  BufferRef buffer = allocate(bytes.size());
  std::memcpy(buffer->data(), bytes.data(), bytes.size());
  return buffer;
}

// The weight of n rows converted, and its product with m rows of x.
struct Converted {
  NarrowTypes types;
  int64_t m, n, k;
  BufferRef x, weight;
  Bytes want;

  Converted(Random& random, NarrowTypes of, int64_t rows, int64_t cols, int64_t depth)
      : types(of), m(rows), n(cols), k(depth) {
    const Bytes a = random_bytes(random, of.dtype, m * k);
    const Bytes b = random_bytes(random, of.narrow, n * k);
    x = buffer_of(a), weight = buffer_of(b);
    want.resize(static_cast<size_t>(m * n) * itemsize(of.dtype));
    const Bytes wide = converted(b, of.narrow, of.dtype, n * k);
    GemmArgs g;
    g.dtype = of.dtype;
    g.trans_b = true;
    g.m = m, g.n = n, g.k = k;
    g.a = a.data(), g.lda = k, g.b = wide.data(), g.ldb = k, g.c = want.data(), g.ldc = n;
    gemm(g);
  }
  BufferRef convert_weight() const {
    BufferRef wide = BufferRef::adopt(
        allocate_deferred(cpu(), static_cast<size_t>(n * k) * itemsize(types.dtype)));
    EXPECT_TRUE(record_flat_copy({.buffer = wide.get(), .dtype = types.dtype},
                                 {.buffer = weight.get(), .dtype = types.narrow}, n * k));
    return wide;
  }
  BufferRef product(const BufferRef& wide) const {
    BufferRef out = BufferRef::adopt(allocate_deferred(cpu(), want.size()));
    EXPECT_TRUE(record_gemm({.dtype = types.dtype,
                             .trans_b = true,
                             .m = m,
                             .n = n,
                             .k = k,
                             .a = {x.get(), 0, k},
                             .b = {wide.get(), 0, k},
                             .c = {out.get(), 0, n}}));
    return out;
  }
  void check(const BufferRef& out) const {
    materialize(*out);
    EXPECT_EQ(std::memcmp(out->data(), want.data(), want.size()), 0)
        << m << " x " << n << " x " << k;
  }
};

uint64_t kernels_of(const std::function<void()>& work) {
  flush(cpu());
  reset_recorder_stats(cpu());
  work();
  flush(cpu());
  return recorder_stats(cpu()).kernels;
}

TEST_F(NarrowGemmCall, TakesConversionsIn) {
  Random random(4);
  for (const NarrowTypes types : kNarrowTypes) {
    // Sizes one after another: plans get other sizes.
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 70, 40},
                                  {1, 90, 50},
                                  {1, 33, 64},
                                  {3, 70, 40},
                                  {4, 50, 60},
                                  {5, 40, 50},
                                  {20, 60, 40},
                                  {21, 61, 44},
                                  {22, 62, 48},
                                  {22, 62, 48}}) {
      const Converted test(random, types, m, n, k);
      BufferRef out;
      const uint64_t kernels = kernels_of([&] { out = test.product(test.convert_weight()); });
      EXPECT_EQ(kernels, 1u);
      test.check(out);
    }
  }
}

TEST_F(NarrowGemmCall, ConversionsThatOthersReadAreThereToo) {
  Random random(5);
  const Converted test(random, kNarrowTypes[0], 4, 70, 40);
  const BufferRef wide = test.convert_weight();
  const BufferRef out = test.product(wide);
  test.check(out);
  materialize(*wide);
  for (int64_t i = 0; i < 70 * 40; ++i) {
    ASSERT_EQ(wide->data_as<float>()[i], static_cast<float>(test.weight->data_as<int8_t>()[i]));
  }
}

TEST_F(NarrowGemmCall, WhatIsWrittenInBetweenIsSeen) {
  Random random(6);
  const Converted test(random, kNarrowTypes[0], 4, 70, 40);
  const int64_t size = 70 * 40;
  const RecordOperand weight{.buffer = test.weight.get(), .dtype = Dtype::kInt8};
  const RecordOperand zero{.dtype = Dtype::kInt64, .bits = 0};
  // The weight changes after it was converted.
  BufferRef wide = test.convert_weight();
  const BufferRef kept = allocate(static_cast<size_t>(size));
  ASSERT_TRUE(record_flat_copy({.buffer = kept.get(), .dtype = Dtype::kInt8}, weight, size));
  ASSERT_TRUE(record_flat_copy(weight, zero, size));
  BufferRef out = test.product(wide);
  test.check(out);
  ASSERT_TRUE(record_flat_copy(weight, {.buffer = kept.get(), .dtype = Dtype::kInt8}, size));
  flush(cpu());
  // One element of what was converted changes.
  wide = test.convert_weight();
  const RecordOperand one{.dtype = Dtype::kFloat32, .bits = 0};
  ASSERT_TRUE(record_flat_copy({.buffer = wide.get(), .offset = 8}, one, 1));
  out = test.product(wide);
  materialize(*out);
  const int8_t* row = test.weight->data_as<int8_t>();
  for (int64_t i = 0; i < 4; ++i) {
    double sum = 0, bound = 0;
    for (int64_t p = 0; p < 40; ++p) {
      const double product =
          p == 2 ? 0 : test.x->data_as<float>()[i * 40 + p] * static_cast<double>(row[p]);
      sum += product, bound += std::abs(product);
    }
    EXPECT_NEAR(out->data_as<float>()[i * 70], sum, 0x1p-21 * bound);
  }
}

}  // namespace
}  // namespace hologram
