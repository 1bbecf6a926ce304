// SPDX-License-Identifier: MIT
// Products whose right operand is int8 or of a half type: against converting first, bit for bit,
// and with scales against plain loops in float64.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "hologram/call_frame.h"
#include "hologram/call_ops.h"
#include "hologram/gemm.h"
#include "hologram/runtime.h"
#include "src/cpu/gemm/bfloat16_kernels.h"
#include "src/cpu/gemm/gemm_builtin.h"
#include "src/cpu/gemm/gemm_float.h"
#include "tests/cpp/cpu/isa_test.h"
#include "tests/cpp/cpu/narrow_support.h"

namespace hologram {
namespace {

class NarrowGemm : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isas, NarrowGemm, kEveryIsa, isa_of);

// Dot products of few rows on either side, products with vectors, turned ones, panels that are
// packed for all of k and piece by piece.
constexpr int64_t kSizes[][3] = {
    {1, 1, 1},     {1, 70, 41},    {1, 5, 9000},  {1, 1, 9000},   {70, 1, 300}, {2, 90, 33},
    {3, 65, 1027}, {8, 33, 64},    {7, 4, 31},    {40, 3, 1030},  {9, 70, 33},  {20, 300, 260},
    {100, 70, 97}, {130, 70, 600}, {300, 45, 70}, {190, 600, 70}, {1, 3, 900},  {1, 300, 5},
    {1, 40, 40},   {1, 64, 70},    {1, 17, 1030}, {1, 7, 20000}};

TEST_P(NarrowGemm, GivesTheBitsOfConvertingFirst) {
  Random random(1);
  for (const auto& [m, n, k] : kSizes) {
    for (int round = 0; round < 20; ++round) {
      const auto [dtype, narrow] = kNarrowTypes[round % 5];
      GemmArgs g;
      g.dtype = dtype;
      g.m = m, g.n = n, g.k = k;
      g.trans_a = random() % 4 == 0, g.trans_b = round / 5 % 2 == 0;
      g.lda = (g.trans_a ? m : k) + static_cast<int64_t>(random() % 3);
      g.ldb = (g.trans_b ? k : n) + static_cast<int64_t>(random() % 3);
      g.ldc = n + static_cast<int64_t>(random() % 3);
      g.alpha = random() % 2 == 0 ? 1 : 0.5, g.beta = random() % 2 == 0 ? 0 : 2;
      const int64_t of_a = g.lda * (g.trans_a ? k : m), of_b = g.ldb * (g.trans_b ? n : k);
      const Bytes a = random_bytes(random, dtype, of_a), b = random_bytes(random, narrow, of_b);
      const Bytes c = random_bytes(random, dtype, g.ldc * m);
      Bytes want = c, got = c;
      const Bytes wide = converted(b, narrow, dtype, of_b);
      g.a = a.data(), g.b = wide.data(), g.c = want.data();
      g.max_threads = 1;
      cpu::builtin_gemm().gemm(g);
      g.b = b.data(), g.c = got.data();
      g.max_threads = 1 + round % 2;
      cpu::narrow_gemm(g, narrow);
      ASSERT_EQ(want, got) << m << " x " << n << " x " << k << " of " << dtype_name(dtype)
                           << " and " << dtype_name(narrow) << ", trans " << g.trans_a << g.trans_b;
    }
  }
}

TEST_P(NarrowGemm, BlocksHaveTheSameBits) {
  Random random(2);
  for (const bool trans_b : {false, true}) {
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{20, 300, 260}, {130, 70, 600}}) {
      const Bytes a = random_bytes(random, Dtype::kFloat32, m * k);
      const Bytes b = random_bytes(random, Dtype::kInt8, n * k);
      GemmArgs g;
      g.m = m, g.n = n, g.k = k;
      g.trans_b = trans_b;
      g.lda = k, g.ldb = trans_b ? k : n, g.ldc = n;
      Bytes want(static_cast<size_t>(m * n) * 4), got = want;
      g.a = a.data(), g.b = b.data(), g.c = want.data();
      cpu::narrow_gemm(g, Dtype::kInt8);
      g.c = nullptr;
      struct Context {
        char* to;
        int64_t n;
      } context{got.data(), n};
      cpu::GemmBlocks blocks;
      blocks.context = &context;
      blocks.before = [](void*, const cpu::GemmBlocks::Block&) {};
      blocks.after = [](void* at, const cpu::GemmBlocks::Block& block) {
        const auto& [to, width] = *static_cast<Context*>(at);
        for (int64_t i = 0; i < block.rows; ++i) {
          std::memcpy(to + ((block.row + i) * width + block.col) * 4,
                      block.data + i * block.pitch * 4, static_cast<size_t>(block.cols) * 4);
        }
      };
      cpu::float_gemm_blocks(g, Dtype::kInt8, blocks);
      EXPECT_EQ(want, got);
    }
  }
}

// linear_int8 on dense operands.
void run_linear(Dtype dtype, int64_t m, int64_t n, int64_t k, const Bytes& x, const Bytes& weight,
                const Bytes& scale, Bytes& out, int threads) {
  std::vector<uint64_t> words;
  const auto view = [&](Dtype type, std::initializer_list<int64_t> sizes) {
    words.push_back(view_head(type, sizes.size(), true));
    for (const int64_t size : sizes) words.push_back(static_cast<uint64_t>(size));
  };
  view(dtype, {m, k}), view(Dtype::kInt8, {n, k}), view(dtype, {n}), view(dtype, {m, n});
  char* operands[] = {const_cast<char*>(x.data()), const_cast<char*>(weight.data()),
                      const_cast<char*>(scale.data()), out.data()};
  run_call(call_op("linear_int8").number, {operands, words.data(), nullptr, threads});
}

void check_scaled(Random& random, Dtype dtype, int64_t m, int64_t n, int64_t k) {
  // Half a step of the result, and the sums of float32 or float64.
  const double step = dtype == Dtype::kBFloat16  ? 0x1p-8
                      : dtype == Dtype::kFloat16 ? 0x1p-11
                      : dtype == Dtype::kFloat32 ? 0x1p-23
                                                 : 0x1p-52;
  const double sums = dtype == Dtype::kFloat64 ? 0x1p-50 : 0x1p-21;
  const Bytes x = random_bytes(random, dtype, m * k);
  const Bytes weight = random_bytes(random, Dtype::kInt8, n * k);
  // Small: sums of float16 have to stay in its range.
  Bytes scale = random_bytes(random, dtype, n);
  Bytes small = converted(scale, dtype, Dtype::kFloat64, n);
  for (int64_t j = 0; j < n; ++j) reinterpret_cast<double*>(small.data())[j] *= 0x1p-6;
  scale = converted(small, Dtype::kFloat64, dtype, n);
  Bytes out = random_bytes(random, dtype, m * n), again = out;
  run_linear(dtype, m, n, k, x, weight, scale, out, 1);
  run_linear(dtype, m, n, k, x, weight, scale, again, 2);
  ASSERT_EQ(out, again) << "threads change bits";
  const Bytes xs = converted(x, dtype, Dtype::kFloat64, m * k);
  const Bytes by = converted(scale, dtype, Dtype::kFloat64, n);
  const Bytes ys = converted(out, dtype, Dtype::kFloat64, m * n);
  const auto at = [](const Bytes& bytes, int64_t i) {
    return reinterpret_cast<const double*>(bytes.data())[i];
  };
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (int64_t p = 0; p < k; ++p) {
        const double product =
            at(xs, i * k + p) * static_cast<int8_t>(weight[static_cast<size_t>(j * k + p)]);
        sum += product, size += std::abs(product);
      }
      const double want = sum * at(by, j);
      const double bound = 2 * step * std::abs(want) + sums * size * std::abs(at(by, j)) +
                           (dtype == Dtype::kFloat16 ? 0x1p-24 : 0);
      ASSERT_NEAR(at(ys, i * n + j), want, bound)
          << dtype_name(dtype) << ' ' << m << " x " << n << " x " << k;
    }
  }
}

TEST_P(NarrowGemm, ScaledProductsAgreeWithLoops) {
  register_builtin_devices();
  Random random(3);
  std::vector<std::array<int64_t, 3>> sizes = {{0, 3, 4}, {3, 0, 4}, {3, 4, 0}, {600, 40, 70}};
  for (const auto& [m, n, k] : kSizes) sizes.push_back({m, n, k});
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat16, Dtype::kFloat64}) {
    for (const auto& [m, n, k] : sizes) check_scaled(random, dtype, m, n, k);
  }
}

TEST_P(NarrowGemm, ScaledProductsOfHalfTypesByAProvider) {
  register_builtin_devices();
  const HalfToFloatByLoops provider;
  Random random(4);
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat16}) {
    // Fewer rows, and smaller products, stay where they are.
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{9, 400, 1200}, {10, 40, 60}}) {
      check_scaled(random, dtype, m, n, k);
    }
    EXPECT_EQ(provider.calls, 0);
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{10, 400, 1200},
                                  {128, 300, 110},
                                  {129, 400, 90},
                                  {1100, 70, 60},
                                  {17, 1, 300000}}) {
      provider.calls = 0;
      check_scaled(random, dtype, m, n, k);
      // Unless the processor has an instruction for few rows.
      const bool has_dots =
          dtype == Dtype::kBFloat16 && m == 10 && cpu::bfloat16_kernel(current_isa()) != nullptr;
      EXPECT_EQ(provider.calls > 0, dtype != Dtype::kFloat32 && !has_dots) << m;
    }
    provider.calls = 0;
  }
}

}  // namespace
}  // namespace hologram
