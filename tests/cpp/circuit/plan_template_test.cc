// SPDX-License-Identifier: MIT
// Plans for other sizes: what the cache hands out against planning anew, and against the records.
#include "src/circuit/plan_template.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "src/circuit/plan_cache.h"
#include "tests/cpp/circuit/interpreter.h"
#include "tests/cpp/circuit/random_tape.h"
#include "tests/cpp/circuit/shapes.h"

namespace hologram::circuit {
namespace {

std::vector<uint64_t> padded(const std::vector<uint8_t>& states) {
  std::vector<uint64_t> words((states.size() + 7) / 8);
  std::copy(states.begin(), states.end(), reinterpret_cast<uint8_t*>(words.data()));
  return words;
}

TEST(PlanTemplate, PlansForOtherSizesAreThoseMadeAnew) {
  static constexpr int64_t kSizes[][3] = {{10, 12, 14}, {9, 20, 22},  {15, 12, 26},
                                          {11, 12, 18}, {13, 12, 30}, {7, 12, 34}};
  uint64_t resized = 0, made = 0;
  for (uint32_t seed = 0; seed < 250; ++seed) {
    PlanCache cache(PlanCache::kMaxPlans, PlanCache::kMaxBytes, /*max_sizes=*/2);
    PlanOptions options;
    options.limits = testing::some_limits(seed);
    for (const auto& [a, b, c] : kSizes) {
      testing::RandomTape program(seed, a, b, c);
      const std::vector<uint64_t> states = padded(program.states());
      const auto plan =
          cache.get({&cache, program.tape().words(), states, options, program.states().size()})
              .plan;
      const auto anew = make_plan(program.tape().words(), program.states(), options);
      EXPECT_EQ(canonical_hash(*plan), canonical_hash(*anew)) << "seed " << seed;
      EXPECT_EQ(print_plan(*plan), print_plan(*anew)) << "seed " << seed;
      testing::Memory expected = program.memory(), actual = expected;
      testing::run_tape(program.tape().words(), program.tape().immediates(), expected);
      testing::run_plan(*plan, program.tape().immediates(), actual, program.random());
      for (size_t s = 0; s < actual.size(); ++s) {
        if ((program.states()[s] & kSlotLive) == 0) continue;
        ASSERT_TRUE(actual[s] == expected[s])
            << "seed " << seed << ", sizes " << a << ' ' << b << ' ' << c << ", slot " << s << "\n"
            << print_tape(program.tape().words()) << print_plan(*plan) << "made anew:\n"
            << print_plan(*anew);
      }
      if (HasFailure()) return;
    }
    resized += cache.stats().resized;
    made += cache.stats().misses;
  }
  EXPECT_GT(resized, made / 2) << "templates have to serve other sizes";
}

// A sum, its square, and what is left of the buffer's end, of n elements.
testing::Sketch lengths(int64_t n) {
  testing::Sketch s;
  const uint32_t x = s.buffer(2000, true), y = s.buffer(2000, true);
  const uint32_t z = s.sum_of(testing::Sketch::run(x, n), false, n);
  s.add(testing::Sketch::run(z, n), testing::Sketch::run(z, n), testing::Sketch::run(y, n));
  s.sum_of(testing::Sketch::run(z, n), true, n);
  return s;
}

PlanCache::Found get(PlanCache& cache, const testing::Sketch& sketch,
                     const std::vector<uint64_t>& states, const void* owner = nullptr) {
  return cache.get({owner, sketch.tape().words(), states, {}, sketch.states().size()});
}

int64_t length_of(const Plan& plan) { return plan.kernels.at(0).numel(); }

TEST(PlanTemplate, AThousandLengthsMakeAHandfulOfPlans) {
  PlanCache cache;
  const std::vector<uint64_t> states = padded(lengths(2).states());
  for (int64_t n = 2; n < 1002; ++n) {
    const auto found = get(cache, lengths(n), states);
    ASSERT_EQ(length_of(*found.plan), n);
    ASSERT_EQ(found.plan->stats.bytes_moved, 4 * n * 3);
  }
  const PlanCache::Stats stats = cache.stats();
  EXPECT_LE(stats.misses, 4u);
  EXPECT_EQ(stats.hits, 1000 - stats.misses);
  EXPECT_LE(stats.structures, 3u);
  EXPECT_LE(stats.plans, PlanCache::kMaxSizes + 3);
  const size_t bytes = stats.bytes;
  for (int64_t n = 1002; n < 2000; ++n) get(cache, lengths(n), states);
  EXPECT_EQ(cache.stats().bytes, bytes);
  // The sizes that came last are there as they are.
  const uint64_t resized = cache.stats().resized;
  EXPECT_EQ(length_of(*get(cache, lengths(1999), states).plan), 1999);
  EXPECT_EQ(cache.stats().resized, resized);
}

TEST(PlanTemplate, APlanThatIsHeldKeepsItsSizes) {
  PlanCache cache;
  const std::vector<uint64_t> states = padded(lengths(2).states());
  std::vector<std::shared_ptr<Plan>> held;
  for (int64_t n = 100; n < 200; ++n) held.push_back(get(cache, lengths(n), states).plan);
  for (int64_t n = 100; n < 200; ++n) {
    EXPECT_EQ(length_of(*held[static_cast<size_t>(n - 100)]), n);
  }
  EXPECT_EQ(cache.stats().plans, 100u);
}

class CountedCode final : public PlanCode {
 public:
  size_t bytes() const override { return 1000; }
  std::unique_ptr<PlanCode> copy() const override { return std::make_unique<CountedCode>(*this); }
};

TEST(PlanTemplate, WhatADeviceMadeOfAPlanGoesAlong) {
  PlanCache cache;
  const std::vector<uint64_t> states = padded(lengths(2).states());
  for (int64_t n = 100; n < 140; ++n) {
    const auto found = get(cache, lengths(n), states);
    if (n == 101) {  // the first of the template
      found.plan->code = std::make_unique<CountedCode>();
      cache.note_code(*found.plan);
    }
    if (n < 102) continue;
    ASSERT_NE(found.plan->code, nullptr);
    EXPECT_NE(found.plan->code->sizes, found.plan->sizes) << "it is for other ones";
    found.plan->code->sizes = found.plan->sizes;
  }
}

TEST(PlanTemplate, OwnersStatesAndOptionsAreTakenApart) {
  PlanCache cache;
  std::vector<uint64_t> states = padded(lengths(2).states());
  static constexpr char kOwners[2] = {};
  get(cache, lengths(100), states, &kOwners[0]);
  get(cache, lengths(101), states, &kOwners[0]);
  EXPECT_FALSE(get(cache, lengths(102), states, &kOwners[0]).made);
  EXPECT_TRUE(get(cache, lengths(103), states, &kOwners[1]).made);
  reinterpret_cast<uint8_t*>(states.data())[0] = 0;
  EXPECT_TRUE(get(cache, lengths(104), states, &kOwners[0]).made);
  EXPECT_EQ(cache.stats().structures, 3u);
  cache.forget(&kOwners[0]);
  EXPECT_EQ(cache.stats().structures, 1u);
  cache.forget(&kOwners[1]);
  EXPECT_EQ(cache.stats().structures, 0u);
  EXPECT_EQ(cache.stats().bytes, 0u);
}

TEST(PlanTemplate, GoesWithTheLastOfItsPlans) {
  PlanCache cache(/*max_plans=*/3);
  const std::vector<uint64_t> states = padded(lengths(2).states());
  for (int64_t n = 100; n < 110; ++n) get(cache, lengths(n), states);
  EXPECT_EQ(cache.stats().misses, 2u);
  const auto other = [](int ops) {
    testing::Sketch s;
    uint32_t x = s.buffer(8, true);
    for (int i = 0; i < ops; ++i) x = s.sum_of(testing::Sketch::run(x, 8), i + 1 == ops, 8);
    return s;
  };
  for (int ops = 2; ops < 5; ++ops) {
    const testing::Sketch sketch = other(ops);
    get(cache, sketch, padded(sketch.states()));
  }
  EXPECT_TRUE(get(cache, lengths(111), states).made);
  EXPECT_TRUE(get(cache, lengths(112), states).made) << "the structure begins anew";
  EXPECT_FALSE(get(cache, lengths(113), states).made);
}

TEST(PlanTemplate, ThreadsGetPlansOfTheirSizes) {
  PlanCache cache(/*max_plans=*/20);
  const std::vector<uint64_t> states = padded(lengths(2).states());
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 1000; ++i) {
        const int64_t n = 100 + (i * (t + 1) + t) % 300;
        const auto found = get(cache, lengths(n), states);
        ASSERT_EQ(length_of(*found.plan), n);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.stats().hits + cache.stats().misses, 4000u);
}

}  // namespace
}  // namespace hologram::circuit
