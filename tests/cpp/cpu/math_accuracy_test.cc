// SPDX-License-Identifier: MIT
// Holds every row to the accuracy that the op table states, on every instruction set of the
// machine.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/op.h"
#include "tools/accuracy/measure.h"

namespace hologram {
namespace {

class MathAccuracy : public testing::Test {
 protected:
  void TearDown() override { force_isa(best_); }
  const Isa best_ = current_isa();
};

template <class T>
void check_row(const OpInfo& row) {
  constexpr accuracy::Effort kEffort = {.unary32 = 1 << 16, .unary64 = 30'000, .tuples = 20'000};
  const auto isas = accuracy::available_isas();
  const double stated = accuracy::stated_ulp<T>(row);
  for (const auto& finding : accuracy::measure<T>(row, isas, kEffort)) {
    EXPECT_LE(finding.max_ulp, stated)
        << row.name << " on " << isa_name(finding.isa) << " in float" << 8 * sizeof(T) << " at "
        << static_cast<double>(finding.operands[0]) << ", "
        << static_cast<double>(finding.operands[1]) << ": got " << static_cast<double>(finding.got)
        << ", want " << static_cast<double>(finding.want);
    EXPECT_GT(finding.count, 0) << row.name;
  }
}

TEST_F(MathAccuracy, EveryFloatRowHasAReference) {
  for (const OpInfo& row : ops()) {
    EXPECT_EQ(ref::has_reference(row.id), row.supports(Dtype::kFloat32)) << row.name;
  }
}

TEST_F(MathAccuracy, Float32RowsKeepTheirPromise) {
  for (const OpInfo& row : ops()) {
    if (accuracy::is_measured(row)) check_row<float>(row);
  }
}

TEST_F(MathAccuracy, Float64RowsKeepTheirPromise) {
  for (const OpInfo& row : ops()) {
    if (accuracy::is_measured(row)) check_row<double>(row);
  }
}

// log() and log2() halve mantissas from the root of two on. It counts as halved on every
// instruction set with fused multiply-adds, whichever way they take a number apart.
template <class T>
std::vector<T> logarithms(OpId op, const std::vector<T>& x) {
  std::vector<T> y(x.size());
  const int64_t n = static_cast<int64_t>(x.size()), one = 1;
  const Dtype dtype = sizeof(T) == 4 ? Dtype::kFloat32 : Dtype::kFloat64;
  const View in{const_cast<T*>(x.data()), dtype, 1, &n, &one};
  elementwise(op, dtype, &in, 1, {y.data(), dtype, 1, &n, &one}, 1);
  return y;
}

TEST_F(MathAccuracy, LogarithmsOfTheRootOfTwoAreAlikeOnEveryInstructionSet) {
  std::vector<float> narrow;
  std::vector<double> wide;
  for (int e = -60; e <= 60; ++e) {
    narrow.push_back(std::ldexp(0x1.6a09e6p0f, e));
    wide.push_back(std::ldexp(0x1.6a09e667f3bcdp0, e));
  }
  for (const Isa isa : accuracy::available_isas()) {
    if (isa == Isa::kBaseline) continue;
    force_isa(isa);
    for (const OpId op : {OpId::log, OpId::log2}) {
      const std::vector<float> got = logarithms(op, narrow);
      const std::vector<double> also = logarithms(op, wide);
      force_isa(Isa::kAvx2);
      EXPECT_EQ(got, logarithms(op, narrow)) << isa_name(isa);
      EXPECT_EQ(also, logarithms(op, wide)) << isa_name(isa);
      force_isa(isa);
    }
    EXPECT_EQ(logarithms(OpId::log, narrow)[60], 0x1.62e42ep-2f) << isa_name(isa);
    EXPECT_EQ(logarithms(OpId::log2, narrow)[60], 0x1.fffffep-2f) << isa_name(isa);
  }
}

// The measure itself: a kernel that is off must not pass.
TEST_F(MathAccuracy, ErrorsAreSeen) {
  using accuracy::error_in_ulp;
  EXPECT_EQ(error_in_ulp<float>(1.0f, 1.0, 1.0, true), 0.0);
  EXPECT_EQ(error_in_ulp<float>(std::nextafter(1.0f, 2.0f), 1.0, 1.0, true), 1.0);
  EXPECT_EQ(error_in_ulp<float>(0x1p-149f, 0.0, 0.0, true), 1.0);
  EXPECT_TRUE(std::isinf(error_in_ulp<float>(NAN, 1.0, 1.0, true)));
  EXPECT_TRUE(std::isinf(error_in_ulp<float>(1.0f, NAN, 1.0, true)));
  EXPECT_TRUE(std::isinf(error_in_ulp<float>(0.0f, -0.0, 0.0, true)));
  EXPECT_EQ(error_in_ulp<float>(0.0f, -0.0, 0.0, false), 0.0);
  EXPECT_EQ(error_in_ulp<float>(INFINITY, 1e60, 1e60, true), 0.0);
  EXPECT_EQ(error_in_ulp<float>(0x1.fffffep127f, 1e60, 1e60, true), 1.0);
  EXPECT_TRUE(std::isinf(error_in_ulp<float>(0x1.fffffep127f, INFINITY, INFINITY, true)));
}

}  // namespace
}  // namespace hologram
