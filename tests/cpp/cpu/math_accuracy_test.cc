// SPDX-License-Identifier: MIT
// Holds every row to the accuracy that the op table states, on every instruction set of the
// machine.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

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
