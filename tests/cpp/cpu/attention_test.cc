// SPDX-License-Identifier: MIT
// Compares attention and its gradients with plain loops in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hologram/parallel.h"
#include "src/cpu/device/call_table.h"
#include "tests/cpp/cpu/isa_test.h"

namespace hologram {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Shape {
  int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
  bool causal = false;
  // 0: none, 1: one number per query and key, 2: one row for all, 3: one number per query.
  int mask = 0;
  // Whether rows of the heads alternate, as after x.view(batch, rows, heads, dim).transpose(1, 2).
  bool alternate = false;
};

// A (batch, heads, rows, dim) array of T, computed on in float64.
template <class T>
struct Array {
  int64_t heads = 0, rows = 0, dim = 0;
  int64_t shape[4], strides[4];
  std::vector<T> data;

  Array(int64_t batch, int64_t h, int64_t r, int64_t d, bool alternate)
      : heads(h),
        rows(r),
        dim(d),
        shape{batch, h, r, d},
        // Room between rows, which must not be written.
        strides{h * r * (d + 3), alternate ? d + 3 : r * (d + 3), alternate ? h * (d + 3) : d + 3,
                1},
        data(static_cast<size_t>(batch * h * r * (d + 3)), T(7)) {}
  View view() {
    return {data.data(), sizeof(T) == 4 ? Dtype::kFloat32 : Dtype::kFloat64, 4, shape, strides};
  }
  T& at(int64_t b, int64_t h, int64_t r, int64_t d) {
    return data[static_cast<size_t>(b * strides[0] + h * strides[1] + r * strides[2] + d)];
  }
  void randomize(std::mt19937& rng) {
    std::normal_distribution<double> normal;
    for (T& x : data) x = static_cast<T>(normal(rng));
  }
};

template <class T>
struct Problem {
  Shape s;
  Array<T> q, k, v, grad, out, grad_q, grad_k, grad_v, logsumexp;
  std::vector<T> mask;
  int64_t mask_strides[4] = {};
  double scale;

  Problem(const Shape& shape, std::mt19937& rng)
      : s(shape),
        q(s.batch, s.heads, s.queries, s.dim, s.alternate),
        k(s.batch, s.kv_heads, s.keys, s.dim, s.alternate),
        v(s.batch, s.kv_heads, s.keys, s.value_dim, s.alternate),
        grad(s.batch, s.heads, s.queries, s.value_dim, !s.alternate),
        out(s.batch, s.heads, s.queries, s.value_dim, s.alternate),
        grad_q(s.batch, s.heads, s.queries, s.dim, s.alternate),
        grad_k(s.batch, s.kv_heads, s.keys, s.dim, s.alternate),
        grad_v(s.batch, s.kv_heads, s.keys, s.value_dim, s.alternate),
        logsumexp(s.batch, s.heads, s.queries, 1, true) {
    for (auto* array : {&q, &k, &v, &grad}) array->randomize(rng);
    scale = 0.7 / std::sqrt(static_cast<double>(std::max<int64_t>(1, s.dim)));
    if (s.mask > 0) {
      const int64_t cols = s.mask == 3 ? 1 : s.keys;
      mask.resize(static_cast<size_t>((s.mask == 2 ? 1 : s.heads * s.queries) * cols));
      std::normal_distribution<double> normal;
      for (T& x : mask) x = static_cast<T>(rng() % 4 == 0 ? -kInf : normal(rng));
      if (s.mask != 2) mask_strides[1] = s.queries * cols, mask_strides[2] = cols;
      mask_strides[3] = s.mask == 3 ? 0 : 1;
    }
  }
  void attend(int threads) {
    const int64_t sizes[] = {s.batch, s.heads, s.queries, s.keys};
    const View bias{mask.data(), q.view().dtype, 4, sizes, mask_strides};
    cpu::run(calls::Attention<>{.query = q.view(),
                                .key = k.view(),
                                .value = v.view(),
                                .mask = mask.empty() ? nullptr : &bias,
                                .is_causal = s.causal,
                                .scale = scale,
                                .out = out.view(),
                                .logsumexp = logsumexp.view()},
             CallThreads(threads));
  }
  void run(int threads) {
    attend(threads);
    const int64_t sizes[] = {s.batch, s.heads, s.queries, s.keys};
    const View bias{mask.data(), q.view().dtype, 4, sizes, mask_strides};
    cpu::run(calls::AttentionBackward<>{.query = q.view(),
                                        .key = k.view(),
                                        .value = v.view(),
                                        .mask = mask.empty() ? nullptr : &bias,
                                        .output = out.view(),
                                        .logsumexp = logsumexp.view(),
                                        .grad = grad.view(),
                                        .is_causal = s.causal,
                                        .scale = scale,
                                        .grad_query = grad_q.view(),
                                        .grad_key = grad_k.view(),
                                        .grad_value = grad_v.view()},
             CallThreads(threads));
  }
  double mask_at(int64_t h, int64_t i, int64_t j) const {
    return mask.empty() ? 0
                        : static_cast<double>(mask[static_cast<size_t>(
                              h * mask_strides[1] + i * mask_strides[2] + j * mask_strides[3])]);
  }
};

// Whether `got` is as near as float T can be expected to come, both being NaN or equal included.
template <class T>
::testing::AssertionResult near(T got, double want, double size) {
  const double value = static_cast<double>(got);
  if (std::isnan(want)) {
    if (std::isnan(value)) return ::testing::AssertionSuccess();
  } else if (std::abs(value - want) <= (sizeof(T) == 4 ? 2e-6 : 4e-15) * (size + std::abs(want))) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << value << " instead of " << want;
}

template <class T>
void compare(Problem<T>& p) {
  const Shape& s = p.s;
  const int64_t shared = s.heads / s.kv_heads;
  const size_t n = static_cast<size_t>(s.keys);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
      std::vector<double> dk(n * static_cast<size_t>(s.dim)),
          dv(n * static_cast<size_t>(s.value_dim));
      for (int64_t h = kv * shared; h < (kv + 1) * shared; ++h) {
        for (int64_t i = 0; i < s.queries; ++i) {
          std::vector<double> weight(n);
          double max = -kInf, sum = 0;
          for (int64_t j = 0; j < s.keys; ++j) {
            double& x = weight[static_cast<size_t>(j)];
            for (int64_t d = 0; d < s.dim; ++d)
              x += static_cast<double>(p.q.at(b, h, i, d)) *
                   static_cast<double>(p.k.at(b, kv, j, d));
            x = x * p.scale + p.mask_at(h, i, j);
            if (s.causal && j > i) x = -kInf;
            max = x > max || std::isnan(x) ? x : max;
          }
          for (double& x : weight) sum += x = max == -kInf ? 0 : std::exp(x - max);
          const double lse = max == -kInf ? 0 : max + std::log(sum);
          ASSERT_TRUE(near(p.logsumexp.at(b, h, i, 0), lse, 1)) << "logsumexp of " << i;
          for (double& x : weight) x /= sum == 0 ? 1 : sum;
          double dot = 0;
          for (int64_t d = 0; d < s.value_dim; ++d) {
            double want = 0;
            for (int64_t j = 0; j < s.keys; ++j)
              want += weight[static_cast<size_t>(j)] * static_cast<double>(p.v.at(b, kv, j, d));
            ASSERT_TRUE(near(p.out.at(b, h, i, d), want, 1)) << "out of query " << i;
            dot += want * static_cast<double>(p.grad.at(b, h, i, d));
          }
          std::vector<double> dq(static_cast<size_t>(s.dim));
          for (int64_t j = 0; j < s.keys; ++j) {
            double dp = -dot;
            for (int64_t d = 0; d < s.value_dim; ++d) {
              const double g = static_cast<double>(p.grad.at(b, h, i, d));
              dp += g * static_cast<double>(p.v.at(b, kv, j, d));
              dv[static_cast<size_t>(j * s.value_dim + d)] += weight[static_cast<size_t>(j)] * g;
            }
            const double ds = weight[static_cast<size_t>(j)] * dp * p.scale;
            for (int64_t d = 0; d < s.dim; ++d) {
              dq[static_cast<size_t>(d)] += ds * static_cast<double>(p.k.at(b, kv, j, d));
              dk[static_cast<size_t>(j * s.dim + d)] +=
                  ds * static_cast<double>(p.q.at(b, h, i, d));
            }
          }
          for (int64_t d = 0; d < s.dim; ++d)
            ASSERT_TRUE(near(p.grad_q.at(b, h, i, d), dq[static_cast<size_t>(d)], 4))
                << "grad_q of query " << i;
        }
      }
      for (int64_t j = 0; j < s.keys; ++j) {
        for (int64_t d = 0; d < s.dim; ++d)
          ASSERT_TRUE(near(p.grad_k.at(b, kv, j, d), dk[static_cast<size_t>(j * s.dim + d)], 8))
              << "grad_k of key " << j;
        for (int64_t d = 0; d < s.value_dim; ++d)
          ASSERT_TRUE(
              near(p.grad_v.at(b, kv, j, d), dv[static_cast<size_t>(j * s.value_dim + d)], 8))
              << "grad_v of key " << j;
      }
    }
  }
  // Between rows nothing is written.
  for (auto* array : {&p.out, &p.grad_q, &p.grad_k, &p.grad_v}) {
    for (size_t i = 0; i < array->data.size(); ++i) {
      const int64_t step = array->dim + 3;
      if (static_cast<int64_t>(i) % step >= array->dim) {
        ASSERT_EQ(array->data[i], T(7)) << "wrote beyond a row";
      }
    }
  }
}

class AttentionTest : public IsaTest {
 protected:
  void SetUp() override { IsaTest::SetUp(); }
  void TearDown() override { IsaTest::TearDown(); }
};
INSTANTIATE_TEST_SUITE_P(Isas, AttentionTest, kEveryIsa, isa_of);

// Several blocks of keys in both passes, blocks that the diagonal crosses, few queries, heads that
// share keys, sizes that are no multiple of a vector, masks of every form, empty rows.
const Shape kShapes[] = {
    {2, 2, 2, 64, 64, 32, 32, true, 0, true},
    {1, 2, 1, 70, 70, 40, 40, true},
    {1, 1, 1, 300, 600, 8, 5, false, 1},
    {1, 1, 1, 290, 270, 17, 17, true, 1},
    {1, 4, 2, 33, 45, 19, 24, false, 2, true},
    {2, 3, 1, 1, 700, 16, 16},
    {1, 2, 2, 3, 130, 9, 9, false, 3},
    {1, 1, 1, 100, 37, 3, 1, true},
    {1, 1, 1, 37, 100, 4, 6, true},
    {1, 1, 1, 5, 6, 0, 2},
    {3, 2, 2, 1, 1, 1, 1, true},
};

TEST_P(AttentionTest, AgreesWithLoops) {
  std::mt19937 rng(1);
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(::testing::Message() << shape.queries << " x " << shape.keys);
    Problem<float> narrow(shape, rng);
    narrow.run(1);
    compare(narrow);
    if (HasFatalFailure()) return;
    Problem<double> wide(shape, rng);
    wide.run(1);
    compare(wide);
    if (HasFatalFailure()) return;
  }
}

template <class T>
bool same_bits(const Problem<T>& x, const Problem<T>& y) {
  const auto same = [](const Array<T>& a, const Array<T>& b) {
    return std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(T)) == 0;
  };
  return same(x.out, y.out) && same(x.logsumexp, y.logsumexp) && same(x.grad_q, y.grad_q) &&
         same(x.grad_k, y.grad_k) && same(x.grad_v, y.grad_v);
}

TEST_P(AttentionTest, ThreadsDoNotChangeBits) {
  const Shape shapes[] = {{1, 2, 1, 400, 530, 40, 40, true, 1},
                          {1, 1, 1, 530, 600, 33, 32},
                          {3, 4, 4, 90, 90, 24, 24, true},
                          {1, 3, 3, 1, 2000, 64, 64}};
  std::mt19937 rng(2);
  for (const Shape& shape : shapes) {
    Problem<float> one(shape, rng);
    one.run(1);
    for (const int threads : {2, 3, 16}) {
      Problem<float> more = one;
      for (auto* array : {&more.out, &more.grad_q, &more.grad_k, &more.grad_v})
        for (int64_t h = 0; h < array->heads; ++h) array->at(0, h, 0, 0) = 3;
      more.run(threads);
      ASSERT_TRUE(same_bits(one, more)) << shape.queries << ", " << threads << " threads";
    }
  }
}

// A row without a key gives zeros, as PyTorch has it; NaN and inf stay in the rows they touch.
TEST_P(AttentionTest, SpecialValues) {
  std::mt19937 rng(3);
  Problem<float> p({1, 1, 1, 40, 50, 16, 16, false, 1}, rng);
  for (int64_t j = 0; j < 50; ++j)
    p.mask[static_cast<size_t>(4 * 50 + j)] = static_cast<float>(-kInf);
  p.run(1);
  compare(p);
  for (int64_t d = 0; d < 16; ++d) {
    EXPECT_EQ(p.out.at(0, 0, 4, d), 0.0f);
    EXPECT_EQ(p.grad_q.at(0, 0, 4, d), 0.0f);
  }
  EXPECT_EQ(p.logsumexp.at(0, 0, 4, 0), 0.0f);

  const std::vector<float> before = p.out.data;
  p.q.at(0, 0, 7, 3) = static_cast<float>(kNan);
  p.q.at(0, 0, 9, 3) = static_cast<float>(kInf);
  p.attend(1);
  for (int64_t i = 0; i < 40; ++i) {
    const float got = p.out.at(0, 0, i, 0);
    if (i == 7 || i == 9) {
      EXPECT_TRUE(std::isnan(got)) << got;
      EXPECT_TRUE(std::isnan(p.logsumexp.at(0, 0, i, 0)));
    } else {
      EXPECT_EQ(got, before[static_cast<size_t>(i * p.out.strides[2])]);
    }
  }
}

// A value that is not finite reaches the queries that see it, and no others, whatever blocks they
// are computed in; these have the bits that they have without it.
template <class T>
void check_values_that_are_not_finite(const Shape& shape, int64_t key, int threads) {
  SCOPED_TRACE(::testing::Message() << shape.queries << " x " << shape.keys << ", key " << key
                                    << ", " << threads << " threads, " << sizeof(T) << " bytes");
  std::mt19937 rng(5);
  Problem<T> p(shape, rng);
  p.attend(1);
  Array<T> finite = p.out;
  p.v.at(0, 0, key, 1) = static_cast<T>(kInf);
  p.v.at(0, 0, key, 2) = static_cast<T>(kNan);
  p.attend(threads);
  for (int64_t h = 0; h < shape.heads; ++h) {
    for (int64_t i = 0; i < shape.queries; ++i) {
      for (int64_t d = 0; d < shape.value_dim; ++d) {
        const T got = p.out.at(0, h, i, d);
        if (i < key || d == 0 || d > 2) {
          ASSERT_EQ(got, finite.at(0, h, i, d)) << "query " << i << ", element " << d;
        } else {
          ASSERT_TRUE(d == 1 ? got == static_cast<T>(kInf) : std::isnan(got))
              << "query " << i << ", element " << d << ": " << got;
        }
      }
    }
  }
}

TEST_P(AttentionTest, ValuesThatAreNotFiniteReachWhatSeesThem) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const int64_t key : {0, 31, 60, 99}) {
      const Shape shape{1, 2, 1, 100, 100, 64, 64, true};
      check_values_that_are_not_finite<float>(shape, key, threads);
      check_values_that_are_not_finite<double>(shape, key, threads);
    }
    check_values_that_are_not_finite<float>({1, 1, 1, 700, 700, 24, 19, true}, 520, threads);
    check_values_that_are_not_finite<float>({1, 1, 1, 3, 9, 24, 5, true}, 1, threads);
  }
}

TEST_P(AttentionTest, LargeScoresNeitherOverflowNorVanish) {
  std::mt19937 rng(4);
  Problem<float> p({1, 1, 1, 20, 600, 8, 8, false, 2}, rng);
  for (float& x : p.mask) x = x < 0 ? -3000.0f : 3000.0f * x;
  p.run(1);
  for (int64_t i = 0; i < 20; ++i) {
    int64_t best = 0;
    for (int64_t j = 0; j < 600; ++j)
      if (p.mask[static_cast<size_t>(j)] > p.mask[static_cast<size_t>(best)]) best = j;
    for (int64_t d = 0; d < 8; ++d) {
      ASSERT_NEAR(p.out.at(0, 0, i, d), p.v.at(0, 0, best, d), 1e-3);
    }
  }
}

TEST(Attention, EmptyOnes) {
  std::mt19937 rng(5);
  Problem<float>({0, 0, 1, 0, 0, 0, 0}, rng).run(1);
  Problem<float> p({1, 2, 1, 3, 0, 4, 5}, rng);
  p.run(2);
  for (int64_t d = 0; d < 5; ++d) EXPECT_EQ(p.out.at(0, 1, 2, d), 0.0f);
  for (int64_t d = 0; d < 4; ++d) EXPECT_EQ(p.grad_q.at(0, 1, 2, d), 0.0f);
}

}  // namespace
}  // namespace hologram
