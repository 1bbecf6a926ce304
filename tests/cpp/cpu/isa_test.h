// SPDX-License-Identifier: MIT
// Runs the tests of a suite on every instruction set that this machine has.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "hologram/cpu_info.h"

namespace hologram {

// The instruction set is the parameter:
//   class GemmTest : public IsaTest {};
//   INSTANTIATE_TEST_SUITE_P(Isas, GemmTest, kEveryIsa, isa_of);
class IsaTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!isa_available(GetParam())) GTEST_SKIP() << "not on this machine";
    force_isa(GetParam());
  }
  void TearDown() override { force_isa(before_); }

 private:
  const Isa before_ = current_isa();
};

inline const auto kEveryIsa = ::testing::Values(Isa::kBaseline, Isa::kAvx2, Isa::kAvx512);

// The name of a test's instance.
inline std::string isa_of(const ::testing::TestParamInfo<Isa>& info) {
  return std::string(isa_name(info.param));
}

}  // namespace hologram
