// SPDX-License-Identifier: MIT
// Random fused kernels over random layouts against their instructions run one by one.
#include <gtest/gtest.h>

#include "src/cpu/executor/run.h"
#include "tests/cpp/circuit/interpreter.h"
#include "tests/cpp/circuit/shapes.h"
#include "tests/cpp/cpu/isa_test.h"
#include "tests/cpp/cpu/random_kernel.h"

namespace hologram {
namespace {

using namespace plans;

class RandomPlans : public IsaTest {};

TEST_P(RandomPlans, EqualTheirInstructions) {
  const char* seed = std::getenv("HOLOGRAM_TEST_SEED");
  const int first = seed != nullptr ? std::atoi(seed) : 1000 * static_cast<int>(GetParam());
  for (int trial = 0; trial < 400 && !HasFailure(); ++trial) {
    Random random(static_cast<unsigned>(first + trial));
    Case test;
    const int kernels = pick(random, 1, 3);
    for (int i = 0; i < kernels; ++i) {
      test.add(RandomKernel(random, test).make(), pick(random, 0, 1) + 2 * i, i);
    }
    expect_unfused_bits(test, "seed " + std::to_string(first + trial), 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, RandomPlans, kEveryIsa, isa_of);

// Circuits whose ops crowd on the same memory: fused, and one by one, against scalar arithmetic.
TEST(PlanRandom, CrowdedMemoryHoldsWhatTheRecordsSay) {
  namespace planned = circuit::testing;
  Random random(5);
  for (const planned::Shape& shape : planned::shapes()) {
    for (const int ops : {7, 60, 300}) {
      const planned::Sketch sketch = shape.make(ops);
      planned::Memory start;
      for (const int64_t elements : sketch.elements()) {
        std::vector<char>& bytes = start.emplace_back(static_cast<size_t>(4 * elements));
        for (int64_t i = 0; i < elements; ++i) {
          planned::write(bytes.data() + 4 * i, Dtype::kFloat32, static_cast<double>(i % 61));
        }
      }
      planned::Memory expected = start;
      planned::run_tape(sketch.tape().words(), sketch.tape().immediates(), expected);
      for (const bool fuse : {true, false}) {
        circuit::PlanOptions options{.limits = *device(BackendType::kCpu).plan_limits()};
        options.fuse = fuse;
        const auto plan = circuit::make_plan(sketch.tape().words(), sketch.states(), options);
        for (int run = 0; run < 2; ++run) {  // with generated loops the second time
          planned::Memory actual = start;
          std::vector<char*> places;
          for (auto& bytes : actual) places.push_back(bytes.data());
          cpu::run_plan(*plan, {places.data(), sketch.tape().immediates().data()}, 1 + run);
          for (size_t s = 0; s < actual.size(); ++s) {
            if ((sketch.states()[s] & circuit::kSlotLive) == 0) continue;
            ASSERT_TRUE(actual[s] == expected[s])
                << shape.name << ", " << ops << " ops, slot " << s << "\n"
                << print_plan(*plan);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace hologram
