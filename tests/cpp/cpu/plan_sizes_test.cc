// SPDX-License-Identifier: MIT
// Plans that are given other sizes, with what the CPU has made of them, against plans made anew.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "hologram/cpu_info.h"
#include "src/circuit/plan_cache.h"
#include "src/cpu/executor/run.h"
#include "tests/cpp/circuit/random_tape.h"
#include "tests/cpp/cpu/isa_test.h"
#include "tests/cpp/cpu/plan_support.h"

namespace hologram {
namespace {

using circuit::Plan;
using circuit::testing::Memory;
using circuit::testing::RandomTape;

void run(Plan& plan, const RandomTape& program, Memory& memory, int threads) {
  std::vector<char*> places;
  for (auto& bytes : memory) places.push_back(bytes.data());
  cpu::run_plan(plan, {places.data(), program.tape().immediates().data()}, threads);
}

class PlanSizes : public IsaTest {};

TEST_P(PlanSizes, GiveTheBitsOfPlansMadeAnew) {
  static constexpr int64_t kSizes[][3] = {{10, 12, 14}, {9, 20, 22},  {15, 12, 26},
                                          {5, 36, 22},  {60, 12, 14}, {11, 12, 18}};
  const auto limits = *device(BackendType::kCpu).plan_limits();
  uint64_t resized = 0;
  for (uint32_t seed = 0; seed < 80; ++seed) {
    // Two plans, which change their sizes.
    circuit::PlanCache cache(circuit::PlanCache::kMaxPlans, circuit::PlanCache::kMaxBytes, 2);
    for (int turn = 0; turn < 2; ++turn) {  // in the second one most plans have generated loops
      for (const auto& [a, b, c] : kSizes) {
        const RandomTape program(seed, a, b, c);
        std::vector<uint64_t> states((program.states().size() + 7) / 8);
        std::memcpy(states.data(), program.states().data(), program.states().size());
        const circuit::PlanOptions options{.limits = limits};
        const auto plan =
            cache.get({&cache, program.tape().words(), states, options, program.states().size()})
                .plan;
        const auto anew = circuit::make_plan(program.tape().words(), program.states(), options);
        Memory expected = program.memory(), actual = expected;
        run(*anew, program, expected, 1);
        run(*plan, program, actual, 1 + turn);
        for (size_t s = 0; s < actual.size(); ++s) {
          if ((program.states()[s] & circuit::kSlotLive) == 0) continue;
          // A plan made anew has no generated loops yet, which may pass on another of two NaNs.
          ASSERT_EQ(plans::first_difference(Dtype::kFloat32, actual[s], expected[s]), -1)
              << "seed " << seed << ", sizes " << a << ' ' << b << ' ' << c << ", slot " << s
              << "\n"
              << print_plan(*plan);
        }
      }
    }
    resized += cache.stats().resized;
  }
  EXPECT_GT(resized, 300u);
}

INSTANTIATE_TEST_SUITE_P(Isas, PlanSizes, kEveryIsa, isa_of);

}  // namespace
}  // namespace hologram
