// SPDX-License-Identifier: MIT
// Holds a GEMM's kernel for a few columns to the bits of its panels.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "src/cpu/gemm/gemm_kernels.h"
#include "tests/cpp/cpu/isa_test.h"

namespace hologram {
namespace {

class ColumnTileTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isas, ColumnTileTest, kEveryIsa, isa_of);

template <class T>
std::vector<T> random(int64_t count, std::mt19937& rng) {
  std::vector<T> values(static_cast<size_t>(count));
  std::normal_distribution<double> normal;
  for (T& x : values) {
    x = std::is_floating_point_v<T> ? static_cast<T>(normal(rng)) : static_cast<T>(rng());
  }
  return values;
}

// Whatever is added, and however far the rows lie apart, columns() gives what panel() gives.
template <class T>
void compare(std::mt19937& rng) {
  const cpu::GemmKernel<T>& kernel = cpu::gemm_kernel(current_isa(), T());
  const int64_t lanes = kernel.cols / 2;
  for (const int64_t m : {lanes, lanes + 1, 4 * lanes - 1, 4 * lanes, 9 * lanes + 3}) {
    for (const int64_t k : {0, 1, 3, 4, 15, 16, 17, 35, 256}) {
      for (const int64_t n : {1, 2, 3}) {
        const int64_t row = k + (k % 2 == 0 ? 5 : 1024 - k), ldb = kernel.cols + 3, ldc = n + 2;
        const std::vector<T> a = random<T>(m * row, rng), bias = random<T>(m, rng);
        const std::vector<T> b = random<T>(k * ldb + kernel.cols, rng);
        const std::vector<T> before = random<T>(m * ldc, rng);
        for (const int way : {0, 1, 2}) {
          std::vector<T> columns = before, panel = before;
          cpu::GemmPanel<T> g;
          g.m = m, g.n = n, g.k = k;
          g.a = a.data(), g.row = row, g.col = 1;
          g.b = b.data(), g.ldb = ldb;
          g.ldc = ldc;
          g.alpha = way == 1 ? T(3) : T(1), g.beta = static_cast<T>(way);
          g.bias = way == 0 ? bias.data() : nullptr;
          g.c = columns.data();
          kernel.columns(g);
          g.c = panel.data();
          kernel.panel(g);
          ASSERT_EQ(std::memcmp(columns.data(), panel.data(), columns.size() * sizeof(T)), 0)
              << m << " x " << n << " x " << k << ", way " << way << ", " << sizeof(T) << " bytes";
        }
      }
    }
  }
}

TEST_P(ColumnTileTest, ColumnsHaveTheBitsOfPanels) {
  std::mt19937 rng(1);
  compare<float>(rng);
  compare<double>(rng);
  compare<uint32_t>(rng);
  compare<uint64_t>(rng);
}

}  // namespace
}  // namespace hologram
