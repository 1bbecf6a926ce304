// SPDX-License-Identifier: MIT
// Random numbers against a scalar Philox, published test vectors, statistics and every instruction
// set.
#include "hologram/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "hologram/cpu_info.h"
#include "hologram/elementwise.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/random/random_kernels.h"

namespace hologram {
namespace {

using Block = std::array<uint32_t, 4>;

// The definition, one block at a time.
Block philox(uint64_t counter, uint64_t seed, uint64_t high = 0) {
  Block c{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
          static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

uint32_t word32(PhiloxStream s, int64_t i, uint64_t attempt = 0) {
  const auto n = static_cast<uint64_t>(i);
  return philox(s.offset + 16 * (n / 64) + n % 16, s.seed, attempt)[n % 64 / 16];
}

uint64_t word64(PhiloxStream s, int64_t i, uint64_t attempt = 0) {
  const auto n = static_cast<uint64_t>(i);
  const Block b = philox(s.offset + 8 * (n / 16) + n % 8, s.seed, attempt);
  const size_t h = n % 16 / 8;
  return b[2 * h] | static_cast<uint64_t>(b[2 * h + 1]) << 32;
}

std::vector<Isa> isas() {
  std::vector<Isa> found;
  for (int i = 0; i < kIsaCount; ++i) {
    if (isa_available(static_cast<Isa>(i))) found.push_back(static_cast<Isa>(i));
  }
  return found;
}

constexpr PhiloxStream kStream{0x123456789abcdef0, 0xfffffff9};  // carries into the second word

TEST(Random, PublishedVector) {
  EXPECT_EQ(philox(0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x85a308d3243f6a88, 0x299f31d0a4093822, 0x0370734413198a2e),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, WordsAreWhereTheyShouldBe) {
  for (const Isa isa : isas()) {
    for (const int64_t n : {1, 3, 15, 16, 17, 63, 64, 65, 200}) {
      std::vector<uint32_t> w32(n + 1, 7);
      std::vector<uint64_t> w64(n + 1, 7);
      cpu::random_kernels(isa).words32(kStream, w32.data(), n);
      cpu::random_kernels(isa).words64(kStream, w64.data(), n);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(w32[i], word32(kStream, i)) << isa_name(isa) << " " << i;
        ASSERT_EQ(w64[i], word64(kStream, i)) << isa_name(isa) << " " << i;
      }
      EXPECT_EQ(w32[n], 7u);
      EXPECT_EQ(w64[n], 7u);
    }
  }
}

// The calls as functions of n contiguous elements.
struct Flat {
  int64_t n, stride = 1;
  View view(Dtype dtype, const void* data) const {
    return {const_cast<void*>(data), dtype, 1, &n, &stride};
  }
};
void fill_uniform(PhiloxStream at, double low, double high, Dtype dtype, void* out, int64_t n) {
  const Flat flat{n};
  cpu::run(calls::Uniform<>{.self = flat.view(dtype, out),
                            .seed = at.seed,
                            .offset = at.offset,
                            .low = low,
                            .high = high},
           CallThreads(0));
}
void fill_normal(PhiloxStream at, double mean, double std, Dtype dtype, void* out, int64_t n,
                 int threads = 0) {
  const Flat flat{n};
  cpu::run(calls::Normal<>{.self = flat.view(dtype, out),
                           .seed = at.seed,
                           .offset = at.offset,
                           .mean = mean,
                           .std = std},
           CallThreads(threads));
}
void fill_bernoulli(PhiloxStream at, double p, Dtype dtype, void* out, int64_t n) {
  const Flat flat{n};
  cpu::run(
      calls::Bernoulli<>{
          .self = flat.view(dtype, out), .seed = at.seed, .offset = at.offset, .p = p},
      CallThreads(0));
}
void fill_integers(PhiloxStream at, int64_t low, uint64_t count, Dtype dtype, void* out,
                   int64_t n) {
  const Flat flat{n};
  cpu::run(calls::Integers<>{.self = flat.view(dtype, out),
                             .seed = at.seed,
                             .offset = at.offset,
                             .low = static_cast<uint64_t>(low),
                             .count = count},
           CallThreads(0));
}
void dropout(PhiloxStream at, double p, Dtype dtype, const void* in, void* out, uint8_t* mask,
             int64_t n) {
  const Flat flat{n};
  cpu::run(calls::Dropout<>{.input = flat.view(dtype, in),
                            .seed = at.seed,
                            .offset = at.offset,
                            .p = p,
                            .out = flat.view(dtype, out),
                            .mask = flat.view(Dtype::kBool, mask)},
           CallThreads(0));
}
void apply_dropout(Dtype dtype, const void* in, const uint8_t* mask, double scale, void* out,
                   int64_t n) {
  const Flat flat{n};
  cpu::run(calls::DropoutBackward<>{.grad = flat.view(dtype, in),
                                    .mask = flat.view(Dtype::kBool, mask),
                                    .scale = scale,
                                    .grad_input = flat.view(dtype, out)},
           CallThreads(0));
}

TEST(Random, UniformIsTheUpperBits) {
  const Isa before = current_isa();
  for (const Isa isa : isas()) {
    force_isa(isa);
    constexpr int64_t kN = 333;
    std::vector<float> f(kN);
    std::vector<double> d(kN);
    fill_uniform(kStream, -2, 5, Dtype::kFloat32, f.data(), kN);
    fill_uniform(kStream, -2, 5, Dtype::kFloat64, d.data(), kN);
    for (int64_t i = 0; i < kN; ++i) {
      const float u = static_cast<float>(word32(kStream, i) >> 8) * 0x1p-24f;
      ASSERT_EQ(f[i], u * 7.0f + -2.0f);
      const double v = static_cast<double>(word64(kStream, i) >> 11) * 0x1p-53;
      ASSERT_EQ(d[i], v * 7.0 + -2.0);
    }
  }
  force_isa(before);
}

TEST(Random, NormalIsBoxMuller) {
  const Isa before = current_isa();
  for (const Isa isa : isas()) {
    force_isa(isa);
    constexpr int64_t kN = 64 * 40;
    std::vector<float> f(kN);
    std::vector<double> d(kN);
    fill_normal(kStream, 0, 1, Dtype::kFloat32, f.data(), kN);
    fill_normal(kStream, 3, 2, Dtype::kFloat64, d.data(), kN);
    for (int64_t i = 0; i < kN; ++i) {
      const bool second = i % 32 >= 16;
      const int64_t first = second ? i - 16 : i;
      const double u = (word32(kStream, first) + 0.5) * 0x1p-32;
      const double angle = word32(kStream, first + 16) * 0x1p-32 * 2 * M_PI;
      const double r = std::sqrt(-2 * std::log(u));
      ASSERT_NEAR(f[i], r * (second ? std::sin(angle) : std::cos(angle)), 2e-6 * r + 1e-7 / r);
      const bool other = i % 16 >= 8;
      const int64_t low = other ? i - 8 : i;
      const double v = (static_cast<double>(word64(kStream, low) >> 11) + 0.5) * 0x1p-53;
      const double turn = static_cast<double>(word64(kStream, low + 8)) * 0x1p-64 * 2 * M_PI;
      const double s = std::sqrt(-2 * std::log(v));
      ASSERT_NEAR(d[i], s * (other ? std::sin(turn) : std::cos(turn)) * 2 + 3, 1e-14);
    }
  }
  force_isa(before);
}

TEST(Random, NormalHasNormalMoments) {
  constexpr int64_t kN = 1 << 20;
  std::vector<float> x(kN);
  fill_normal({42, 0}, 0, 1, Dtype::kFloat32, x.data(), kN);
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  for (const float v : x) {
    m1 += v;
    m2 += static_cast<double>(v) * v;
    m3 += std::pow(v, 3);
    m4 += std::pow(v, 4);
  }
  EXPECT_NEAR(m1 / kN, 0, 5e-3);
  EXPECT_NEAR(m2 / kN, 1, 7e-3);
  EXPECT_NEAR(m3 / kN, 0, 2e-2);
  EXPECT_NEAR(m4 / kN, 3, 5e-2);
  // Kolmogorov and Smirnov's distance, at far beyond the 1 - 1e-6 quantile.
  std::sort(x.begin(), x.end());
  double distance = 0;
  for (int64_t i = 0; i < kN; ++i) {
    distance =
        std::max(distance, std::abs(0.5 * std::erfc(-x[i] / std::sqrt(2.0)) - (i + 0.5) / kN));
  }
  EXPECT_LT(distance, 2.7 / std::sqrt(double{kN}));
}

TEST(Random, BernoulliAndIntegers) {
  constexpr int64_t kN = 200000;
  std::vector<uint8_t> b(kN);
  for (const double p : {0.0, 1e-3, 0.3, 0.5, 1.0}) {
    fill_bernoulli({1, 0}, p, Dtype::kBool, b.data(), kN);
    int64_t ones = 0;
    for (const uint8_t v : b) {
      ASSERT_LE(v, 1);
      ones += v;
    }
    EXPECT_NEAR(static_cast<double>(ones), p * kN, 5 * std::sqrt(p * (1 - p) * kN) + 1e-9) << p;
  }
  std::vector<int64_t> x(kN);
  for (const uint64_t range : {uint64_t{10}, uint64_t{1} << 28, uint64_t{1} << 40, uint64_t{0}}) {
    fill_integers({5, 3}, -7, range, Dtype::kInt64, x.data(), kN);
    double mean = 0;
    for (const int64_t v : x) {
      if (range != 0) {
        ASSERT_GE(v, -7);
        ASSERT_LT(v, static_cast<int64_t>(range) - 7);
      }
      mean += static_cast<double>(v) / kN;
    }
    const double width = range == 0 ? 0x1p64 : static_cast<double>(range);
    const double expected = range == 0 ? 0 : -7 + (width - 1) / 2;
    EXPECT_NEAR(mean, expected, 5 * width / std::sqrt(12.0 * kN));
  }
  // Each of few values is as frequent as the next: chi-squared with 9 degrees of freedom.
  fill_integers({5, 3}, 0, 10, Dtype::kInt64, x.data(), kN);
  std::array<int64_t, 10> count{};
  for (const int64_t v : x) ++count[v];
  double chi = 0;
  for (const int64_t c : count) chi += std::pow(c - kN / 10.0, 2) / (kN / 10.0);
  EXPECT_LT(chi, 40);
}

// Every integer is chosen by as many words as any other: those of the last, incomplete share are
// drawn again.
TEST(Random, IntegersAreExactlyEven) {
  const Isa before = current_isa();
  constexpr int64_t kN = 3001;
  constexpr uint64_t kRanges[] = {1,
                                  7,
                                  uint64_t{3} << 26,
                                  (uint64_t{1} << 28) - 1,
                                  uint64_t{1} << 28,
                                  (uint64_t{1} << 33) + 1,
                                  uint64_t{3} << 62,
                                  (uint64_t{1} << 63) + 1,
                                  ~uint64_t{0},
                                  0};
  for (const Isa isa : isas()) {
    force_isa(isa);
    for (const uint64_t range : kRanges) {
      std::vector<int64_t> x(kN);
      fill_integers(kStream, -7, range, Dtype::kInt64, x.data(), kN);
      int64_t again = 0;
      for (int64_t i = 0; i < kN; ++i) {
        uint64_t value = 0;
        for (uint64_t attempt = 0;; ++attempt) {
          again += attempt != 0;
          const bool narrow = range != 0 && range < uint64_t{1} << 28;
          using Wide = unsigned __int128;
          const Wide all = Wide{1} << (narrow ? 32 : 64);
          const Wide word = narrow ? word32(kStream, i, attempt) : word64(kStream, i, attempt);
          const Wide width = range == 0 ? all : Wide{range};
          value = static_cast<uint64_t>(word * width / all);
          if (word * width % all >= all % width) break;
        }
        ASSERT_EQ(static_cast<uint64_t>(x[i]), value - 7) << range << " " << i;
      }
      const bool is_often = range == uint64_t{3} << 26 || range >= uint64_t{3} << 61;
      EXPECT_EQ(again != 0, is_often && range != ~uint64_t{0}) << range;
    }
  }
  force_isa(before);
}

TEST(Random, ThreadsAndPiecesDoNotMatter) {
  constexpr int64_t kN = 100003;
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    const int bits = float_random_bits(dtype);
    const size_t size = itemsize(dtype);
    std::vector<char> one(kN * size), many(kN * size), pieces(kN * size);
    fill_normal(kStream, 1, 2, dtype, one.data(), kN, 1);
    fill_normal(kStream, 1, 2, dtype, many.data(), kN, 4);
    for (int64_t i = 0; i < kN; i += 64 * 321) {
      PhiloxStream s = kStream;
      s.offset += philox_blocks(i, bits);
      fill_normal(s, 1, 2, dtype, pieces.data() + i * size, std::min<int64_t>(64 * 321, kN - i));
    }
    EXPECT_EQ(one, many);
    EXPECT_EQ(one, pieces);
  }
}

TEST(Random, DropoutKeepsScaled) {
  constexpr int64_t kN = 1000;
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    std::vector<double> in(kN), out(kN), back(kN);
    for (int64_t i = 0; i < kN; ++i) in[i] = static_cast<double>(i % 200) / 8;
    std::vector<char> x(kN * 8), y(kN * 8);
    std::vector<uint8_t> mask(kN), expected(kN);
    convert(Dtype::kFloat64, in.data(), dtype, x.data(), kN);
    dropout(kStream, 0.75, dtype, x.data(), y.data(), mask.data(), kN);
    fill_bernoulli(kStream, 0.25, Dtype::kBool, expected.data(), kN);
    EXPECT_EQ(mask, expected);
    convert(dtype, y.data(), Dtype::kFloat64, out.data(), kN);
    apply_dropout(dtype, x.data(), mask.data(), 4, y.data(), kN);
    convert(dtype, y.data(), Dtype::kFloat64, back.data(), kN);
    for (int64_t i = 0; i < kN; ++i) {
      ASSERT_EQ(out[i], mask[i] ? in[i] * 4 : 0);
      ASSERT_EQ(back[i], out[i]);
    }
  }
}

TEST(Random, HalfUniformStaysBelowOne) {
  constexpr int64_t kN = 1 << 16;
  std::vector<uint16_t> x(kN);
  std::vector<float> f(kN);
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBFloat16}) {
    fill_uniform({9, 9}, 0, 1, dtype, x.data(), kN);
    convert(dtype, x.data(), Dtype::kFloat32, f.data(), kN);
    EXPECT_LT(*std::max_element(f.begin(), f.end()), 1.0f);
    EXPECT_EQ(*std::min_element(f.begin(), f.end()), 0.0f);
  }
}

}  // namespace
}  // namespace hologram
