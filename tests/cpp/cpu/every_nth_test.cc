// SPDX-License-Identifier: MIT
// Rows of which every second, third or fourth element is gathered, against one element at a time.
#include "src/cpu/movement/every_nth.h"

#include <cstring>
#include <random>
#include <vector>

#include "tests/cpp/cpu/jit_cases.h"

namespace hologram::cpu {
namespace {

class EveryNth : public IsaTest {};

// The last element lies before memory that may not be read, and nothing behind the result changes.
TEST_P(EveryNth, ReadsAndWritesItsElementsAlone) {
  std::mt19937_64 rng(1);
  for (const int64_t itemsize : {1, 2, 4, 8}) {
    const auto size = static_cast<size_t>(itemsize);
    for (const int64_t step : {2, 3, 4}) {
      const EveryNthKernel kernel = every_nth_kernel(GetParam(), step, itemsize);
      ASSERT_NE(kernel, nullptr);
      for (int64_t n = 1; n < 200; n += n < 70 ? 1 : 17) {
        const size_t bytes = static_cast<size_t>((n - 1) * step + 1) * size;
        const Guarded memory(bytes);
        char* const from = memory.last(bytes);
        for (size_t i = 0; i < bytes; ++i) from[i] = static_cast<char>(rng());
        std::vector<char> got((static_cast<size_t>(n) + 8) * size, 0x5a), want = got;
        for (int64_t i = 0; i < n; ++i) {
          std::memcpy(&want[static_cast<size_t>(i) * size], from + i * step * itemsize, size);
        }
        kernel(from, got.data(), n);
        ASSERT_EQ(got, want) << n << " elements of " << itemsize << " bytes, step " << step;
      }
    }
  }
}

TEST_P(EveryNth, HasNoKernelForOtherSteps) {
  for (const int64_t step : {-2, -1, 0, 1, 5}) {
    EXPECT_EQ(every_nth_kernel(GetParam(), step, 4), nullptr);
  }
  EXPECT_EQ(every_nth_kernel(GetParam(), 2, 16), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Isas, EveryNth, kEveryIsa, isa_of);

}  // namespace
}  // namespace hologram::cpu
