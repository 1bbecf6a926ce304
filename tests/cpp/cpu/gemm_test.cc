// SPDX-License-Identifier: MIT
// Compares GEMM and matmul with plain loops in float64 over sizes, transposes, layouts and dtypes.
#include "hologram/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/cpu/gemm/bfloat16_kernels.h"
#include "src/cpu/gemm/gemm_builtin.h"
#include "src/cpu/gemm/gemm_float.h"
#include "src/cpu/gemm/gemm_provider.h"
#include "src/cpu/gemm/gemm_tiles.h"
#include "src/cpu/gemm/narrow_kernels.h"
#include "tests/cpp/cpu/isa_test.h"
#include "tests/cpp/cpu/jit_cases.h"

namespace hologram {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double epsilon(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return 0x1p-10;
    case Dtype::kBFloat16:
      return 0x1p-7;
    case Dtype::kFloat32:
      return 0x1p-22;
    case Dtype::kFloat64:
      return 0x1p-50;
    default:
      return 0;
  }
}

std::vector<char> stored(const std::vector<double>& values, Dtype dtype) {
  std::vector<char> bytes(values.size() * itemsize(dtype) + 8);
  const int64_t n = static_cast<int64_t>(values.size()), one = 1;
  copy({const_cast<double*>(values.data()), Dtype::kFloat64, 1, &n, &one},
       {bytes.data(), dtype, 1, &n, &one});
  return bytes;
}
std::vector<double> loaded(std::vector<char>& bytes, Dtype dtype, int64_t n) {
  std::vector<double> values(static_cast<size_t>(n));
  const int64_t one = 1;
  copy({bytes.data(), dtype, 1, &n, &one}, {values.data(), Dtype::kFloat64, 1, &n, &one});
  return values;
}

std::vector<double> random_values(std::mt19937& rng, int64_t n, Dtype dtype) {
  std::vector<double> values(static_cast<size_t>(n));
  std::normal_distribution<double> normal;
  for (double& v : values) v = is_floating(dtype) ? normal(rng) : static_cast<double>(rng() % 3);
  return values;
}

class GemmTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isas, GemmTest, kEveryIsa, isa_of);

const Dtype kDtypes[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kFloat16, Dtype::kBFloat16,
                         Dtype::kInt64,   Dtype::kInt32,   Dtype::kInt16,   Dtype::kInt8,
                         Dtype::kUInt8,   Dtype::kFloat32};

void check_random_gemms(std::mt19937& rng, int rounds, const Dtype* dtypes, size_t count) {
  const int64_t sizes[] = {1, 1, 2, 3, 7, 16, 31, 33, 64, 100, 170, 300};
  for (int round = 0; round < rounds; ++round) {
    const Dtype dtype = dtypes[rng() % count];
    GemmArgs g;
    g.dtype = dtype;
    g.m = sizes[rng() % 12], g.n = sizes[rng() % 12], g.k = sizes[rng() % 12];
    if (round % 20 == 0) g.k = 700;
    if (round % 30 == 7) g.m = 130, g.n = 3 + round % 90, g.k = 1100;  // B in pieces
    if (round % 33 == 0) g.k = 0;
    g.trans_a = rng() % 2, g.trans_b = rng() % 2;
    g.lda = (g.trans_a ? g.m : g.k) + static_cast<int64_t>(rng() % 3);
    g.ldb = (g.trans_b ? g.k : g.n) + static_cast<int64_t>(rng() % 3);
    g.ldc = g.n + static_cast<int64_t>(rng() % 3);
    g.lda = std::max<int64_t>(1, g.lda), g.ldb = std::max<int64_t>(1, g.ldb);
    const double alphas[] = {1, 1, 2, -1}, betas[] = {0, 0, 1, 2};
    g.alpha = alphas[rng() % 4], g.beta = betas[rng() % 4];
    auto a_bytes = stored(random_values(rng, g.lda * (g.trans_a ? g.k : g.m) + 1, dtype), dtype);
    auto b_bytes = stored(random_values(rng, g.ldb * (g.trans_b ? g.n : g.k) + 1, dtype), dtype);
    auto c_values = random_values(rng, g.ldc * g.m, dtype);
    const bool poisoned = g.beta == 0 && is_floating(dtype);
    if (poisoned) std::fill(c_values.begin(), c_values.end(), kNan);
    auto c_bytes = stored(c_values, dtype);
    const auto a = loaded(a_bytes, dtype, g.lda * (g.trans_a ? g.k : g.m));
    const auto b = loaded(b_bytes, dtype, g.ldb * (g.trans_b ? g.n : g.k));
    const auto before = loaded(c_bytes, dtype, g.ldc * g.m);
    g.a = a_bytes.data(), g.b = b_bytes.data(), g.c = c_bytes.data();
    auto again = c_bytes;
    g.max_threads = 1;
    gemm(g);
    const auto got = loaded(c_bytes, dtype, g.ldc * g.m);
    for (int64_t i = 0; i < g.m; ++i) {
      for (int64_t j = 0; j < g.ldc; ++j) {
        const double old = before[static_cast<size_t>(i * g.ldc + j)];
        const double value = got[static_cast<size_t>(i * g.ldc + j)];
        if (j >= g.n) {
          ASSERT_TRUE(value == old || poisoned) << "wrote beyond a row";
          continue;
        }
        double sum = 0, size = 0;
        for (int64_t p = 0; p < g.k; ++p) {
          const double x = a[static_cast<size_t>(g.trans_a ? p * g.lda + i : i * g.lda + p)];
          const double y = b[static_cast<size_t>(g.trans_b ? j * g.ldb + p : p * g.ldb + j)];
          sum += x * y, size += std::abs(x * y);
        }
        double want = g.alpha * sum + (g.beta != 0 ? g.beta * old : 0);
        if (dtype == Dtype::kInt8) want = static_cast<int8_t>(static_cast<int64_t>(want));
        if (dtype == Dtype::kUInt8) want = static_cast<uint8_t>(static_cast<int64_t>(want));
        const double bound =
            epsilon(dtype) * std::abs(want) +
            epsilon(dtype == Dtype::kFloat64 ? dtype : Dtype::kFloat32) *
                (is_floating(dtype) ? 2 * size + (g.beta != 0 ? std::abs(old * g.beta) : 0) : 0);
        if (bound == 0 || !is_floating(dtype)) {
          ASSERT_EQ(value, want);
        } else {
          ASSERT_NEAR(value, want, bound)
              << dtype_name(dtype) << " " << g.m << " " << g.n << " " << g.k;
        }
      }
    }
    const auto first = c_bytes;
    c_bytes = again;
    g.c = c_bytes.data();
    g.max_threads = 2;
    gemm(g);
    if (gemm_provider_name(dtype) == std::string("hologram")) {
      ASSERT_EQ(first, c_bytes) << "thread count changed the result";
    }
  }
}

TEST_P(GemmTest, AgreesWithLoops) {
  std::mt19937 rng(1);
  check_random_gemms(rng, 250, kDtypes, 10);
}

// Every way of blocking and packing: B where it lies and copied, for all of k and piece by piece, A
// where it lies and copied, and narrow last panels.
TEST_P(GemmTest, ThreadsChangeNoBits) {
  const int64_t sizes[][3] = {{1, 70, 40},
                              {70, 1, 40},
                              {33, 45, 300},
                              {200, 30, 90},
                              {190, 600, 70},
                              {150, 90, 1100},
                              {70, 530, 600},
                              // Dot products of few rows, those of a large matrix, too.
                              {5, 90, 700},
                              {1600, 12, 800},
                              // Blocks of which some are just low enough to read B in place.
                              {113, 70, 500},
                              {225, 90, 250},
                              {99, 40, 600},
                              // Vectors: some results a task, and a dot product in pieces.
                              {1, 5000, 300},
                              {5000, 1, 300},
                              // Those whose matrix has short rows, several to a vector.
                              {1, 3, 90000},
                              {17, 1, 9000},
                              {1, 20000, 5},
                              {3000, 1, 40},
                              {1, 1, 300000},
                              {3, 1, 70000},
                              {1, 20, 16385}};
  std::mt19937 rng(5);
  for (const auto& [m, n, k] : sizes) {
    for (int kind = 0; kind < 16; ++kind) {
      GemmArgs g;
      constexpr Dtype kTypes[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kBFloat16,
                                  Dtype::kFloat16};
      g.dtype = kTypes[kind / 4];
      g.trans_a = kind % 2 == 1, g.trans_b = kind / 2 % 2 == 1;
      g.m = m, g.n = n, g.k = k;
      g.lda = g.trans_a ? m : k, g.ldb = g.trans_b ? k : n, g.ldc = n;
      g.alpha = 1.5, g.beta = -0.25;
      const auto a = stored(random_values(rng, m * k, g.dtype), g.dtype),
                 b = stored(random_values(rng, n * k, g.dtype), g.dtype),
                 before = stored(random_values(rng, m * n, g.dtype), g.dtype);
      g.a = a.data(), g.b = b.data();
      auto whole = before;
      g.c = whole.data(), g.max_threads = 1;
      gemm_providers().back().gemm(g);
      for (const int threads : {2, 3, 8, 70}) {
        auto again = before;
        g.c = again.data(), g.max_threads = threads;
        gemm_providers().back().gemm(g);
        ASSERT_EQ(whole, again) << m << " " << n << " " << k << ", " << threads << " threads";
      }
    }
  }
}

// Rows of A that meet in one set of a cache are read in lower tiles; their sums are the same.
TEST_P(GemmTest, HowFarRowsLieApartChangesNoBits) {
  std::mt19937 rng(7);
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
    for (const int64_t m : {9, 14, 15, 29, 40}) {
      for (const int64_t n : {16, 20, 70}) {
        const int64_t k = 300, far = 1024;
        const auto near_values = random_values(rng, m * (k + 1), dtype);
        std::vector<double> far_values(static_cast<size_t>(m * far));
        for (int64_t i = 0; i < m; ++i) {
          std::copy_n(near_values.begin() + i * (k + 1), k, far_values.begin() + i * far);
        }
        const auto b = stored(random_values(rng, k * n, dtype), dtype);
        const auto product = [&](const auto& values, int64_t lda) {
          const auto a = stored(values, dtype);
          auto c = stored(std::vector<double>(static_cast<size_t>(m * n)), dtype);
          GemmArgs g;
          g.dtype = dtype;
          g.m = m, g.n = n, g.k = k;
          g.a = a.data(), g.b = b.data(), g.c = c.data();
          g.lda = lda, g.ldb = g.ldc = n;
          gemm_providers().back().gemm(g);
          return c;
        };
        ASSERT_EQ(product(near_values, k + 1), product(far_values, far)) << m << " " << n;
      }
    }
  }
}

// A product whose B lies by columns may be computed turned; its sums are the same.
TEST_P(GemmTest, HowBLiesChangesNoBits) {
  std::mt19937 rng(6);
  for (const int64_t m : {9, 16, 32, 33, 64, 100, 128, 160}) {
    for (const int64_t k : {90, 300, 1100}) {
      for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
        const int64_t n = 71 + 2 * m, lda = k + 1, ldc = n + 3;
        const auto a = random_values(rng, m * lda, dtype), b = random_values(rng, n * k, dtype);
        std::vector<double> turned(b.size());
        for (int64_t p = 0; p < k; ++p) {
          for (int64_t j = 0; j < n; ++j) {
            turned[static_cast<size_t>(j * k + p)] = b[static_cast<size_t>(p * n + j)];
          }
        }
        const auto before = stored(random_values(rng, m * ldc, dtype), dtype);
        const auto a_data = stored(a, dtype), rows = stored(b, dtype), cols = stored(turned, dtype);
        for (const double beta : {0.0, 0.5}) {
          GemmArgs g;
          g.dtype = dtype;
          g.m = m, g.n = n, g.k = k;
          g.a = a_data.data(), g.lda = lda, g.ldc = ldc;
          g.alpha = 1.5, g.beta = beta;
          auto first = before, second = before;
          g.b = rows.data(), g.ldb = n, g.c = first.data();
          gemm_providers().back().gemm(g);
          g.b = cols.data(), g.ldb = k, g.trans_b = true, g.c = second.data();
          gemm_providers().back().gemm(g);
          ASSERT_EQ(first, second) << m << " " << n << " " << k << " " << beta;
        }
      }
    }
  }
}

// What lies between the rows of the matrix is NaN, and behind them there is no memory.
TEST_P(GemmTest, VectorsTimesMatricesOfShortRows) {
  std::mt19937 rng(8);
  constexpr Dtype kTypes[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kBFloat16, Dtype::kFloat16};
  const int64_t heights[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 257, 1100, 4500};
  for (int round = 0; round < 600; ++round) {
    const Dtype dtype = kTypes[round % 4];
    const size_t size = itemsize(dtype);
    const int64_t rows = heights[rng() % 15], cols = 1 + static_cast<int64_t>(rng() % 70);
    const int64_t ld = cols + (rng() % 2 == 0 ? 0 : static_cast<int64_t>(rng() % 20));
    // The matrix is A or B; the vector has as many elements as a row of it has, or a column.
    const bool row = rng() % 2 == 0, along_k = rng() % 2 == 0;
    const int64_t k = along_k ? cols : rows, count = along_k ? rows : cols;
    const int64_t step = 1 + static_cast<int64_t>(rng() % 2);
    auto matrix = random_values(rng, (rows - 1) * ld + cols, dtype);
    for (size_t i = 0; i < matrix.size(); ++i) {
      if (static_cast<int64_t>(i) % ld >= cols) matrix[i] = kNan;
    }
    if (round % 10 == 0) matrix[rng() % static_cast<unsigned>(cols)] = INFINITY;
    const auto vector = random_values(rng, (k - 1) * step + 1, dtype);
    auto matrix_bytes = stored(matrix, dtype), vector_bytes = stored(vector, dtype);
    const auto m = loaded(matrix_bytes, dtype, static_cast<int64_t>(matrix.size()));
    const auto x = loaded(vector_bytes, dtype, static_cast<int64_t>(vector.size()));
    const size_t matrix_size = matrix.size() * size, vector_size = vector.size() * size;
    const cpu::Guarded matrix_memory(matrix_size), vector_memory(vector_size);
    char* const guarded = matrix_memory.last(matrix_size);
    char* const guarded_x = vector_memory.last(vector_size);
    std::copy_n(matrix_bytes.data(), matrix_size, guarded);
    std::copy_n(vector_bytes.data(), vector_size, guarded_x);
    GemmArgs g;
    g.dtype = dtype;
    g.m = row ? 1 : count, g.n = row ? count : 1, g.k = k;
    g.alpha = round % 3 == 0 ? 1.5 : 1, g.beta = round % 5 == 0 ? -0.5 : 0;
    g.ldc = row ? count : 1 + static_cast<int64_t>(rng() % 2);
    if (row) {
      g.b = guarded, g.ldb = ld, g.trans_b = along_k;
      g.a = guarded_x, g.trans_a = step > 1, g.lda = step > 1 ? step : k;
    } else {
      g.a = guarded, g.lda = ld, g.trans_a = !along_k;
      g.b = guarded_x, g.ldb = step;
    }
    const int64_t c_step = row ? 1 : g.ldc, of_c = (count - 1) * c_step + 1;
    auto c_bytes = stored(random_values(rng, of_c, dtype), dtype);
    const auto before = loaded(c_bytes, dtype, of_c);
    const size_t c_size = static_cast<size_t>(of_c) * size;
    const cpu::Guarded c_memory(c_size);
    char* const guarded_c = c_memory.last(c_size);
    std::copy_n(c_bytes.data(), c_size, guarded_c);
    g.c = guarded_c, g.max_threads = 1 + round % 2;
    gemm_providers().back().gemm(g);
    std::copy_n(guarded_c, c_size, c_bytes.data());
    const auto got = loaded(c_bytes, dtype, of_c);
    for (int64_t i = 0; i < of_c; ++i) {
      const double old = before[static_cast<size_t>(i)], value = got[static_cast<size_t>(i)];
      if (i % c_step != 0) {
        ASSERT_EQ(value, old) << "wrote beside the results";
        continue;
      }
      double sum = 0, magnitude = std::abs(g.beta * old);
      for (int64_t p = 0; p < k; ++p) {
        const int64_t at = along_k ? i / c_step * ld + p : p * ld + i / c_step;
        const double product = m[static_cast<size_t>(at)] * x[static_cast<size_t>(p * step)];
        sum += product, magnitude += 2 * std::abs(product);
      }
      const double want = g.alpha * sum + g.beta * old;
      if (!std::isfinite(want)) {
        ASSERT_EQ(value, want);
        continue;
      }
      const double bound = epsilon(dtype) * std::abs(want) +
                           epsilon(dtype == Dtype::kFloat64 ? dtype : Dtype::kFloat32) * magnitude;
      ASSERT_NEAR(value, want, bound) << dtype_name(dtype) << " " << rows << " x " << cols << ", "
                                      << ld << (row ? " row" : " column") << along_k;
    }
  }
}

// Sums are the same however far the rows lie apart.
TEST_P(GemmTest, HowFarShortRowsLieApartChangesNoBits) {
  std::mt19937 rng(9);
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64, Dtype::kBFloat16, Dtype::kFloat16}) {
    for (const int64_t cols : {1, 2, 3, 5, 8, 17, 40, 41, 64, 65}) {
      for (const bool along_k : {false, true}) {
        const int64_t rows = 531, k = along_k ? cols : rows, count = along_k ? rows : cols;
        const auto near_values = random_values(rng, rows * cols, dtype);
        const auto x = stored(random_values(rng, k, dtype), dtype);
        const auto product = [&](int64_t ld) {
          std::vector<double> values(static_cast<size_t>(rows * ld), kNan);
          for (int64_t i = 0; i < rows; ++i) {
            std::copy_n(near_values.begin() + i * cols, cols, values.begin() + i * ld);
          }
          const auto a = stored(values, dtype);
          auto c = stored(std::vector<double>(static_cast<size_t>(count)), dtype);
          GemmArgs g;
          g.dtype = dtype;
          g.m = count, g.n = 1, g.k = k;
          g.trans_a = !along_k, g.lda = ld, g.ldb = g.ldc = 1;
          g.a = a.data(), g.b = x.data(), g.c = c.data();
          gemm_providers().back().gemm(g);
          return c;
        };
        ASSERT_EQ(product(cols), product(cols + 3)) << dtype_name(dtype) << " " << cols;
      }
    }
  }
}

TEST_P(GemmTest, MatmulOfAnyLayout) {
  std::mt19937 rng(2);
  for (int round = 0; round < 400; ++round) {
    const Dtype dtype = kDtypes[rng() % 5];
    const int64_t sizes[] = {1, 2, 3, 8, 20};
    const int batch = static_cast<int>(rng() % 3);
    const bool a_vector = rng() % 8 == 0, b_vector = rng() % 8 == 0;
    const int64_t m = sizes[rng() % 5], n = sizes[rng() % 5], k = sizes[rng() % 5];
    std::vector<int64_t> a_shape, b_shape, out_shape;
    const int a_batch = a_vector ? 0 : static_cast<int>(rng() % (static_cast<unsigned>(batch) + 1));
    const int b_batch = b_vector ? 0 : batch;
    const int dims = std::max(a_batch, b_batch);
    for (int i = 0; i < dims; ++i) {
      const int64_t size = sizes[rng() % 3];
      out_shape.push_back(size);
      const bool in_a = i >= dims - a_batch, in_b = i >= dims - b_batch;
      // Where both have the dimension one of them may broadcast.
      const auto which = in_a && in_b ? rng() % 4 : 0;
      if (in_a) a_shape.push_back(which == 1 ? 1 : size);
      if (in_b) b_shape.push_back(which == 2 ? 1 : size);
    }
    if (!a_vector) a_shape.push_back(m), out_shape.push_back(m);
    a_shape.push_back(k), b_shape.push_back(k);
    if (!b_vector) b_shape.push_back(n), out_shape.push_back(n);
    const auto layout = [&](const std::vector<int64_t>& shape, int64_t& extent) {
      std::vector<int> order(shape.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
      if (rng() % 2) std::shuffle(order.begin(), order.end(), rng);
      std::vector<int64_t> strides(shape.size());
      extent = rng() % 4 == 0 ? 2 : 1;
      for (size_t i = order.size(); i-- > 0;) {
        strides[static_cast<size_t>(order[i])] = extent;
        extent *= shape[static_cast<size_t>(order[i])];
      }
      return strides;
    };
    int64_t a_extent, b_extent, out_extent;
    const auto a_strides = layout(a_shape, a_extent), b_strides = layout(b_shape, b_extent),
               out_strides = layout(out_shape, out_extent);
    auto a_bytes = stored(random_values(rng, a_extent, dtype), dtype);
    auto b_bytes = stored(random_values(rng, b_extent, dtype), dtype);
    auto out_bytes = stored(random_values(rng, out_extent, dtype), dtype);
    const auto a = loaded(a_bytes, dtype, a_extent), b = loaded(b_bytes, dtype, b_extent),
               before = loaded(out_bytes, dtype, out_extent);
    const View av{a_bytes.data(), dtype, static_cast<int>(a_shape.size()), a_shape.data(),
                  a_strides.data()};
    const View bv{b_bytes.data(), dtype, static_cast<int>(b_shape.size()), b_shape.data(),
                  b_strides.data()};
    const View ov{out_bytes.data(), dtype, static_cast<int>(out_shape.size()), out_shape.data(),
                  out_strides.data()};
    const double alpha = rng() % 2 ? 1 : 2, beta = static_cast<double>(rng() % 2);
    matmul(av, bv, ov, alpha, beta);
    const auto got = loaded(out_bytes, dtype, out_extent);
    int64_t outputs = 1;
    for (const int64_t s : out_shape) outputs *= s;
    for (int64_t at = 0; at < outputs; ++at) {
      std::vector<int64_t> index(out_shape.size());
      int64_t rest = at, out_at = 0;
      for (size_t i = out_shape.size(); i-- > 0;) {
        index[i] = rest % out_shape[i];
        rest /= out_shape[i];
        out_at += index[i] * out_strides[i];
      }
      const int64_t row = a_vector ? 0 : index[static_cast<size_t>(dims)];
      const int64_t col = b_vector ? 0 : index.back();
      int64_t a_at = a_vector ? 0 : row * a_strides[a_shape.size() - 2];
      int64_t b_at = b_vector ? 0 : col * b_strides.back();
      for (int i = 0; i < dims; ++i) {
        const int ai = i - (dims - a_batch), bi = i - (dims - b_batch);
        if (ai >= 0 && a_shape[static_cast<size_t>(ai)] != 1)
          a_at += index[static_cast<size_t>(i)] * a_strides[static_cast<size_t>(ai)];
        if (bi >= 0 && b_shape[static_cast<size_t>(bi)] != 1)
          b_at += index[static_cast<size_t>(i)] * b_strides[static_cast<size_t>(bi)];
      }
      double sum = 0, size = 0;
      for (int64_t p = 0; p < k; ++p) {
        const double x = a[static_cast<size_t>(a_at + p * a_strides.back())];
        const double y =
            b[static_cast<size_t>(b_at + p * b_strides[b_vector ? 0 : b_shape.size() - 2])];
        sum += x * y, size += std::abs(x * y);
      }
      const double want = alpha * sum + beta * before[static_cast<size_t>(out_at)];
      ASSERT_NEAR(got[static_cast<size_t>(out_at)], want,
                  epsilon(dtype) * (4 * size + std::abs(want) + 1))
          << "round " << round;
    }
  }
}

TEST(Gemm, AddmmBroadcastsItsInput) {
  float a[] = {1, 2, 3, 4}, b[] = {1, 0, 0, 1}, bias[] = {10, 20}, out[] = {0, 0, 0, 0};
  const int64_t shape[] = {2, 2}, strides[] = {2, 1}, one[] = {1};
  addmm({bias, Dtype::kFloat32, 1, shape, one}, {a, Dtype::kFloat32, 2, shape, strides},
        {b, Dtype::kFloat32, 2, shape, strides}, {out, Dtype::kFloat32, 2, shape, strides}, 2.0,
        0.5);
  EXPECT_EQ(std::vector<float>(out, out + 4), (std::vector<float>{7, 14, 11, 18}));
}

TEST(Gemm, ErrorsAreClear) {
  float x[4] = {};
  GemmArgs g;
  g.m = g.n = g.k = 2;
  g.a = g.b = x, g.c = x;
  g.lda = 1, g.ldb = g.ldc = 2;
  EXPECT_THROW(gemm(g), Error);
  g.lda = 2, g.m = -1;
  EXPECT_THROW(gemm(g), Error);
  g.m = 2, g.dtype = Dtype::kComplex64;
  EXPECT_THROW(gemm(g), Error);
  const int64_t three[] = {3}, two[] = {2}, one[] = {1};
  EXPECT_THROW(matmul({x, Dtype::kFloat32, 1, three, one}, {x, Dtype::kFloat32, 1, two, one},
                      {x, Dtype::kFloat32, 0, nullptr, nullptr}),
               Error);
}

TEST(Gemm, ProvidersComeByPriority) {
  static int calls = 0;
  register_gemm_provider({"test", 50, [](Dtype dtype) { return dtype == Dtype::kFloat64; },
                          [](const GemmArgs&) { ++calls; }, nullptr});
  EXPECT_EQ(gemm_provider_name(Dtype::kFloat64), std::string("test"));
  EXPECT_EQ(gemm_provider_name(Dtype::kInt8), std::string("hologram"));
  double x = 1;
  GemmArgs g;
  g.dtype = Dtype::kFloat64;
  g.m = g.n = g.k = g.lda = g.ldb = g.ldc = 1;
  g.a = g.b = g.c = &x;
  gemm(g);
  EXPECT_EQ(calls, 1);
  unregister_gemm_provider("test");
  EXPECT_NE(gemm_provider_name(Dtype::kFloat64), std::string("test"));
}

GemmArgs args_of(int64_t m, int64_t n, int64_t k, bool trans_b, Dtype dtype) {
  GemmArgs g;
  g.dtype = dtype;
  g.m = m, g.n = n, g.k = k;
  g.trans_b = trans_b;
  g.lda = k, g.ldb = trans_b ? k : n, g.ldc = n;
  return g;
}

TEST(Gemm, AProviderThatIsFastComputesLargeProducts) {
  static const GemmProvider builtin = gemm_providers().back();
  static std::atomic<int> calls;
  calls = 0;
  // Faster than the built-in GEMM on the busiest machine, as it computes nothing, or four times as
  // slow.
  const auto provider = [](const char* name, void (*gemm)(const GemmArgs&)) {
    return GemmProvider{.name = name,
                        .priority = 50,
                        .supports = [](Dtype d) { return is_floating(d); },
                        .gemm = gemm,
                        .one_thread = true,
                        .only_where_faster = true};
  };
  register_gemm_provider(provider("fast", [](const GemmArgs&) { ++calls; }));
  const auto chosen = [](const GemmArgs& g) { return std::string(cpu::provider_for(g).name); };
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
    const auto name = [&](int64_t m, int64_t n, int64_t k, bool trans_b) {
      return chosen(args_of(m, n, k, trans_b, dtype));
    };
    calls = 0;
    EXPECT_EQ(name(32, 128, 784, false), "hologram");
    EXPECT_EQ(name(1, 512, 512, true), "hologram") << "dot products";
    EXPECT_EQ(name(1, 768, 3072, false), "hologram") << "a vector";
    EXPECT_EQ(name(3072, 1, 768, false), "hologram") << "a vector";
    EXPECT_EQ(calls, 0) << "small products ask for no measurement";
    EXPECT_EQ(name(512, 512, 512, false), "fast");
    EXPECT_EQ(calls, 4) << "the measurement";
    EXPECT_EQ(name(512, 128, 128, false), "fast");
    EXPECT_EQ(name(4, 512, 512, true), "fast") << "few rows";
    EXPECT_EQ(name(2, 768, 3072, false), "fast") << "waits for memory";
    EXPECT_EQ(calls, 4) << "measured once";
  }
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBFloat16}) {
    const auto half = [&](int64_t m, int64_t n, int64_t k) {
      return chosen(args_of(m, n, k, true, dtype));
    };
    EXPECT_EQ(half(64, 64, 64), "hologram");
    EXPECT_EQ(half(1, 768, 3072), "hologram") << "a vector";
    EXPECT_EQ(half(128, 128, 128), "fast");
    const bool has_dots =
        dtype == Dtype::kBFloat16 && cpu::bfloat16_kernel(current_isa()) != nullptr;
    const char* few = has_dots ? "hologram" : "fast";
    EXPECT_EQ(half(4, 768, 768), few) << "converting the weight takes longer";
    EXPECT_EQ(half(768, 32, 768), few);
    EXPECT_EQ(half(33, 768, 768), "fast");
    EXPECT_EQ(half(8, 8, 100000), "fast") << "few dot products";
  }
  EXPECT_EQ(gemm_provider_name(Dtype::kFloat32), std::string("fast"));
  unregister_gemm_provider("fast");
  const auto expect_builtin = [&](const char* name, void (*gemm)(const GemmArgs&)) {
    register_gemm_provider(provider(name, gemm));
    EXPECT_EQ(chosen(args_of(512, 512, 512, false, Dtype::kFloat32)), "hologram") << name;
    EXPECT_EQ(gemm_provider_name(Dtype::kFloat32), std::string("hologram")) << name;
    unregister_gemm_provider(name);
  };
  expect_builtin("slow", [](const GemmArgs& g) {
    for (int i = 0; i < 4; ++i) builtin.gemm(g);
  });
}

// What a kernel needs to multiply `rows` rows of one type by up to `most` of another.
struct DotsCase {
  Dtype row_type, factor_type;
  int64_t vector;  // of packed rows; 0: they are not packed
  std::function<void(const char* x, int64_t n, int64_t k, char* to)> pack;
  std::function<void(int64_t m, int64_t n, int64_t k, const char* a, const char* x, float* y)> dots;
};

std::vector<DotsCase> dots_cases(Isa isa) {
  using cpu::GemmDots;
  std::vector<DotsCase> cases;
  const auto& kernel = cpu::gemm_kernel(isa, float());
  const auto floats = [](const char* at) { return reinterpret_cast<const float*>(at); };
  const auto pack = [&kernel, floats](const char* x, int64_t n, int64_t k, char* to) {
    kernel.pack_factors(floats(x), k, n, k, reinterpret_cast<float*>(to));
  };
  for (const int64_t vector : {int64_t{0}, kernel.vector}) {
    cases.push_back({Dtype::kFloat32, Dtype::kFloat32, vector, pack,
                     [&kernel, floats, vector](auto m, auto n, auto k, auto* a, auto* x, auto* y) {
                       GemmDots<float> g{m, n, k, floats(a), k, floats(x), k, y, n, 1};
                       g.packed = vector != 0;
                       kernel.dots(g);
                     }});
  }
  for (const Dtype type : {Dtype::kInt8, Dtype::kFloat16, Dtype::kBFloat16}) {
    const auto& narrow = cpu::narrow_kernel(isa, type);
    cases.push_back({type, Dtype::kFloat32, kernel.vector, pack,
                     [&narrow, floats](auto m, auto n, auto k, auto* a, auto* x, auto* y) {
                       GemmDots<float, void> g{m, n, k, a, k, floats(x), 0, y, n, 1};
                       g.packed = true;
                       narrow.dots(g);
                     }});
  }
  const cpu::BFloat16Kernel* brain = cpu::bfloat16_kernel(isa);
  if (brain == nullptr) return cases;
  const auto bits = [](const char* at) { return reinterpret_cast<const uint16_t*>(at); };
  for (const Dtype type : {Dtype::kInt8, Dtype::kBFloat16}) {
    const auto& kernel = type == Dtype::kInt8 ? brain->of_int8 : brain->of_bfloat16;
    for (const int64_t vector : {int64_t{0}, kernel.vector}) {
      cases.push_back({type, Dtype::kBFloat16, vector,
                       [&kernel, bits](auto* x, auto n, auto k, auto* to) {
                         kernel.pack_factors(bits(x), k, n, k, reinterpret_cast<uint16_t*>(to));
                       },
                       [&kernel, bits, vector](auto m, auto n, auto k, auto* a, auto* x, auto* y) {
                         cpu::BFloat16Dots g{m, n, k, a, k, bits(x), k, y, n, 1};
                         g.packed = vector != 0;
                         kernel.dots(g);
                       }});
    }
  }
  return cases;
}

// Whether a weight of int8 is converted before a product or in it, the bits are the same.
TEST_P(GemmTest, Int8RowsHaveTheBitsOfConvertedRows) {
  const auto& of_floats = cpu::gemm_kernel(GetParam(), float{});
  const auto& of_int8 = cpu::narrow_kernel(GetParam(), Dtype::kInt8);
  const cpu::BFloat16Kernel* brain = cpu::bfloat16_kernel(GetParam());
  std::mt19937 rng(9);
  const int64_t rows = 5;
  for (const int64_t k : {31, 32, 63, 64, 100, 256, 1000}) {
    std::vector<int8_t> narrow(static_cast<size_t>(rows * k));
    for (size_t i = 0; i < narrow.size(); ++i) narrow[i] = static_cast<int8_t>(i * 7);
    std::vector<float> floats(narrow.begin(), narrow.end());
    std::vector<uint16_t> halves(narrow.size());
    convert(Dtype::kInt8, narrow.data(), Dtype::kBFloat16, halves.data(), rows * k);
    for (const int64_t n : {1, 2, 3, 7, 9, 12}) {
      std::vector<float> y(static_cast<size_t>(rows * n)), expected(y);
      const auto x = stored(random_values(rng, n * k, Dtype::kFloat32), Dtype::kFloat32);
      const auto* factors = reinterpret_cast<const float*>(x.data());
      of_int8.dots({rows, n, k, narrow.data(), k, factors, k, y.data(), n, 1});
      of_floats.dots({rows, n, k, floats.data(), k, factors, k, expected.data(), n, 1});
      EXPECT_EQ(y, expected) << k << " " << n;
      if (brain == nullptr) continue;
      const auto z = stored(random_values(rng, n * k, Dtype::kBFloat16), Dtype::kBFloat16);
      const auto* half_factors = reinterpret_cast<const uint16_t*>(z.data());
      brain->of_int8.dots({rows, n, k, narrow.data(), k, half_factors, k, y.data(), n, 1});
      brain->of_bfloat16.dots(
          {rows, n, k, halves.data(), k, half_factors, k, expected.data(), n, 1});
      EXPECT_EQ(y, expected) << k << " " << n;
    }
  }
}

// An element's bits depend on its two rows alone, and nothing beyond these is read.
TEST_P(GemmTest, DotsDependOnTheirRowsAlone) {
  std::mt19937 rng(8);
  const int64_t most = 14, rows = 19;
  const cpu::Guarded a_memory(rows * 1000 * 4), x_memory(most * 1000 * 4);
  for (const DotsCase& which : dots_cases(GetParam())) {
    const auto a_size = static_cast<int64_t>(itemsize(which.row_type));
    const auto x_size = static_cast<int64_t>(itemsize(which.factor_type));
    for (const int64_t k : {1, 31, 32, 33, 95, 300, 1000}) {
      const auto a_bytes = stored(random_values(rng, rows * k, which.row_type), which.row_type);
      const auto x_bytes =
          stored(random_values(rng, most * k, which.factor_type), which.factor_type);
      char* const a = a_memory.last(static_cast<size_t>(rows * k * a_size));
      char* const x = x_memory.last(static_cast<size_t>(most * k * x_size));
      std::copy_n(a_bytes.data(), rows * k * a_size, a);
      std::copy_n(x_bytes.data(), most * k * x_size, x);
      const auto dots = [&](int64_t i, int64_t m, int64_t j, int64_t n) {
        const char* from = x + j * k * x_size;
        std::vector<char> packed;
        if (which.vector != 0) {
          const int64_t padded = (k + which.vector - 1) / which.vector * which.vector;
          packed.assign(static_cast<size_t>(n * padded * x_size), '\x7f');
          which.pack(from, n, k, packed.data());
          from = packed.data();
        }
        std::vector<float> y(static_cast<size_t>(m * n));
        which.dots(m, n, k, a + i * k * a_size, from, y.data());
        return y;
      };
      std::vector<float> want;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < most; ++j) want.push_back(dots(i, 1, j, 1)[0]);
      }
      for (int64_t n = 1; n <= most; ++n) {
        for (const int64_t m : {int64_t{1}, 2 + n % 3, rows}) {
          const std::vector<float> got = dots(rows - m, m, most - n, n);
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              ASSERT_EQ(got[static_cast<size_t>(i * n + j)],
                        want[static_cast<size_t>((rows - m + i) * most + most - n + j)])
                  << dtype_name(which.row_type) << " and " << dtype_name(which.factor_type) << ' '
                  << m << " x " << n << " x " << k;
            }
          }
        }
      }
    }
  }
}

TEST(Gemm, DotsOfBFloat16OfSpecialNumbers) {
  const double infinity = std::numeric_limits<double>::infinity();
  const int64_t k = 40;
  const auto product = [&](double first, double second, double third, int64_t m,
                           double others = 1) {
    std::vector<double> values(static_cast<size_t>(k * m), others);
    for (int64_t i = 0; i < m; ++i) {
      const auto row = values.begin() + i * k;
      row[0] = first, row[33] = second, row[39] = third;
    }
    auto a = stored(values, Dtype::kBFloat16);
    std::vector<double> ones(static_cast<size_t>(k * 50), 1.0);
    auto b = stored(ones, Dtype::kBFloat16);
    GemmArgs g = args_of(m, 50, k, true, Dtype::kBFloat16);
    auto c = stored(std::vector<double>(static_cast<size_t>(m * 50), kNan), Dtype::kBFloat16);
    g.a = a.data(), g.b = b.data(), g.c = c.data();
    cpu::builtin_gemm().gemm(g);
    return loaded(c, Dtype::kBFloat16, m * 50).back();
  };
  for (const int64_t m : {1, 4, 7, 32}) {
    EXPECT_EQ(product(2, 3, 4, m), 46);
    EXPECT_EQ(product(infinity, 3, 4, m), infinity);
    EXPECT_EQ(product(1, -infinity, 4, m), -infinity);
    EXPECT_TRUE(std::isnan(product(infinity, 1, -infinity, m)));
    EXPECT_TRUE(std::isnan(product(1, kNan, 1, m)));
    EXPECT_EQ(product(0x1p127, 0x1p127, 1, m), infinity) << "beyond float32";
    const bool has_dots = cpu::bfloat16_kernel(current_isa()) != nullptr;
    EXPECT_EQ(product(0x1p-133, 0, 0, m, 0), has_dots ? 0 : 0x1p-133) << "a subnormal";
  }
}

TEST(Gemm, TilesCoverAProductOnce) {
  std::mt19937 rng(12);
  for (int round = 0; round < 3000; ++round) {
    const auto size = [&] { return int64_t{1} << (rng() % 12) | static_cast<int64_t>(rng() % 64); };
    const int64_t m = size(), n = size(), k = size();
    const int processors = static_cast<int>(1 + rng() % 64);
    const cpu::TileGrid grid = cpu::tile_grid(m, n, k, processors, int64_t{1} << 20);
    ASSERT_GE(grid.rows * grid.height, m);
    ASSERT_LT((grid.rows - 1) * grid.height, m);
    ASSERT_GE(grid.cols * grid.width, n);
    ASSERT_LT((grid.cols - 1) * grid.width, n);
    ASSERT_LE(grid.rows * grid.cols, 2 * processors);
    if (processors == 1 || m * n * k < (int64_t{1} << 16)) {
      ASSERT_EQ(grid.rows * grid.cols, 1);
    }
  }
  const auto tiles = [](int64_t m, int64_t n, int64_t k, int processors, int64_t tile_work) {
    const cpu::TileGrid grid = cpu::tile_grid(m, n, k, processors, tile_work);
    return std::array{grid.rows, grid.cols};
  };
  const auto square = tiles(1024, 1024, 1024, 8, 1 << 20);
  EXPECT_EQ(square[0] * square[1], 16) << "two for each processor";
  EXPECT_EQ(tiles(8, 768, 768, 4, 1 << 20), (std::array<int64_t, 2>{1, 4}))
      << "few rows are not cut";
  EXPECT_EQ(tiles(128, 128, 128, 4, 1 << 22), (std::array<int64_t, 2>{1, 1})) << "too little work";
}

}  // namespace
}  // namespace hologram
