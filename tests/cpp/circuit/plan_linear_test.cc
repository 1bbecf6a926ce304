// SPDX-License-Identifier: MIT
// Planning takes time in proportion to the ops, whatever they do to each other's memory.
#include <gtest/gtest.h>

#include "src/circuit/plan.h"
#include "tests/cpp/circuit/interpreter.h"
#include "tests/cpp/circuit/shapes.h"

namespace hologram::circuit {
namespace {

using testing::Shape;
using testing::Sketch;

class Planning : public ::testing::TestWithParam<Shape> {};

// What planning looks at for an op, at most: a tree over 10,000 ops is about 16 high, and is asked
// and changed for each operand, which may be in as many places as it is high.
constexpr int64_t kMostVisits = 800;

TEST_P(Planning, VisitsGrowWithTheOps) {
  for (const int most : {64, 1024}) {
    PlanOptions options;
    options.limits.max_instrs = most;
    int64_t before = 0;
    for (const int ops : {100, 1000, 10000}) {
      const Sketch sketch = GetParam().make(ops);
      const auto plan = make_plan(sketch.tape().words(), sketch.states(), options);
      const int64_t visits = plan->stats.visits;
      EXPECT_GT(visits, sketch.tape().records());
      EXPECT_LE(visits, kMostVisits * sketch.tape().records()) << ops << " ops";
      // Of ten times the ops, and n log n of the trees over them.
      if (ops == 10000) {
        EXPECT_LE(visits, 14 * before) << visits << " after " << before;
      }
      before = visits;
      RecordProperty("visits_" + std::to_string(most) + "_" + std::to_string(ops),
                     std::to_string(visits));
    }
  }
}

TEST_P(Planning, ComputesWhatTheRecordsSay) {
  std::mt19937 random(1);
  for (const int ops : {2, 3, 10, 40, 150}) {
    const Sketch sketch = GetParam().make(ops);
    testing::Memory memory;
    for (const int64_t elements : sketch.elements()) {
      std::vector<char>& bytes = memory.emplace_back(static_cast<size_t>(4 * elements));
      for (int64_t i = 0; i < elements; ++i) {
        testing::write(bytes.data() + 4 * i, Dtype::kFloat32, static_cast<double>(random() % 64));
      }
    }
    testing::Memory expected = memory;
    testing::run_tape(sketch.tape().words(), sketch.tape().immediates(), expected);
    for (const bool fuse : {true, false}) {
      PlanOptions options;
      options.fuse = fuse;
      const auto plan = make_plan(sketch.tape().words(), sketch.states(), options);
      testing::Memory actual = memory;
      testing::run_plan(*plan, sketch.tape().immediates(), actual, random);
      for (size_t s = 0; s < actual.size(); ++s) {
        if ((sketch.states()[s] & kSlotLive) == 0) continue;
        ASSERT_TRUE(actual[s] == expected[s])
            << ops << " ops, slot " << s << (fuse ? " fused" : " apart") << "\n"
            << print_tape(sketch.tape().words()) << print_plan(*plan);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Planning, ::testing::ValuesIn(testing::shapes()),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

TEST(PlanningDead, WritesThatAreNotReadAreLeftOut) {
  // 60 columns twice: the first time was for nothing.
  const Sketch sketch = testing::shapes()[1].make(120);
  EXPECT_EQ(make_plan(sketch.tape().words(), sketch.states())->stats.dead, 60);
}

TEST(PlanningDead, PiecesTogetherHideWhatWasThere) {
  Sketch s;
  const uint32_t x = s.buffer(64, true);
  s.fill(Sketch::run(x, 64));
  s.fill(Sketch::run(x, 32));
  s.fill(Sketch::run(x, 32, 32));
  EXPECT_EQ(make_plan(s.tape().words(), s.states())->stats.dead, 1);
}

}  // namespace
}  // namespace hologram::circuit
