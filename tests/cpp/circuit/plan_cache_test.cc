// SPDX-License-Identifier: MIT
// The plan cache: hits are exact, and it stays within its bounds.
#include "src/circuit/plan_cache.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace hologram::circuit {
namespace {

struct Made {
  std::vector<uint64_t> words, states;
  int owner = 0;
  PlanOptions options{};
  PlanCache::Key key() const { return {&kOwners[owner], words, states, options}; }
  static constexpr char kOwners[2] = {};
};

std::unique_ptr<Plan> plan(int slots, size_t kernels = 1) {
  auto made = std::make_unique<Plan>();
  made->slots = slots;
  made->kernels.resize(kernels);
  return made;
}

TEST(PlanCache, FindsWhatWasInserted) {
  PlanCache cache;
  const Made a{{1, 2, 3}, {7}};
  EXPECT_EQ(cache.find(a.key(), a.key().hash()), nullptr);
  const std::shared_ptr<Plan> kept = cache.insert(a.key(), a.key().hash(), plan(5));
  EXPECT_EQ(kept->slots, 5);
  const Made again{{1, 2, 3}, {7}};
  EXPECT_EQ(cache.find(again.key(), again.key().hash()), kept);
  const PlanCache::Stats stats = cache.stats();
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.plans, 1u);
  EXPECT_GE(stats.bytes, sizeof(Plan) + sizeof(Kernel) + 4 * sizeof(uint64_t));
}

TEST(PlanCache, EqualHashesAreNotEnough) {
  PlanCache cache;
  const Made made[] = {{{1, 2, 3}, {7}},
                       {{1, 2, 4}, {7}},
                       {{1, 2, 3}, {8}},
                       {{1, 2}, {7}},
                       {{1, 2, 3, 0}, {7}},
                       {{1, 2, 3}, {7}, 1},
                       {{1, 2, 3}, {7}, 0, {.limits = {.fuse_reductions = false}}},
                       {{1, 2, 3}, {7}, 0, {.float_laws = false}}};
  int slots = 0;
  for (const Made& m : made) cache.insert(m.key(), 42, plan(slots++));
  slots = 0;
  for (const Made& m : made) {
    const std::shared_ptr<Plan> found = cache.find(m.key(), 42);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->slots, slots++);
  }
  EXPECT_EQ(cache.find(Made{{9}, {7}}.key(), 42), nullptr);
  // Words and states do not run into each other.
  EXPECT_NE((Made{{1, 2}, {3}}.key().hash()), (Made{{1}, {2, 3}}.key().hash()));
  cache.forget(&Made::kOwners[0]);
  EXPECT_EQ(cache.stats().plans, 1u);
  EXPECT_EQ(cache.find(made[0].key(), 42), nullptr);
  EXPECT_EQ(cache.find(made[5].key(), 42)->slots, 5);
}

TEST(PlanCache, TheLongestUnusedGoesFirst) {
  PlanCache cache(/*max_plans=*/3);
  const auto key = [](uint64_t i) { return Made{{i}, {}}; };
  const auto has = [&](uint64_t i) { return cache.find(key(i).key(), i % 2) != nullptr; };
  std::shared_ptr<Plan> held;
  for (uint64_t i = 0; i < 3; ++i) {
    auto kept = cache.insert(key(i).key(), i % 2, plan(static_cast<int>(i)));
    if (i == 1) held = kept;
  }
  EXPECT_TRUE(has(0));
  cache.insert(key(3).key(), 1, plan(3));
  EXPECT_TRUE(has(0));
  EXPECT_FALSE(has(1));
  EXPECT_TRUE(has(2));
  EXPECT_TRUE(has(3));
  EXPECT_EQ(held->slots, 1) << "who holds a plan keeps it";
  EXPECT_EQ(cache.stats().evictions, 1u);
  EXPECT_EQ(cache.stats().plans, 3u);
}

TEST(PlanCache, BytesAreBoundedToo) {
  const size_t one = sizeof(Plan) + 100 * sizeof(Kernel);
  PlanCache cache(/*max_plans=*/1000, /*max_bytes=*/5 * one);
  for (uint64_t i = 0; i < 50; ++i) {
    const Made made{{i}, {}};
    cache.insert(made.key(), made.key().hash(), plan(1, 100));
    EXPECT_LE(cache.stats().bytes, 5 * one);
  }
  EXPECT_EQ(cache.stats().plans, 4u);
  const Made large{{99}, {}};
  cache.insert(large.key(), large.key().hash(), plan(1, 10000));
  EXPECT_EQ(cache.stats().plans, 1u) << "one that is too large is all there is";
  EXPECT_NE(cache.find(large.key(), large.key().hash()), nullptr);
}

class MadeCode final : public PlanCode {
 public:
  explicit MadeCode(size_t bytes) : bytes_(bytes) {}
  size_t bytes() const override { return bytes_; }

 private:
  const size_t bytes_;
};

TEST(PlanCache, WhatDevicesMakeCountsToo) {
  PlanCache cache(/*max_plans=*/1000, /*max_bytes=*/100000);
  std::vector<std::shared_ptr<Plan>> plans;
  for (uint64_t i = 0; i < 10; ++i) {
    const Made made{{i}, {}};
    plans.push_back(cache.insert(made.key(), i % 3, plan(1)));
  }
  const size_t before = cache.stats().bytes;
  plans[4]->code = std::make_unique<MadeCode>(20000);
  cache.note_code(*plans[4]);
  EXPECT_EQ(cache.stats().bytes, before + 20000);
  plans[4]->code = std::make_unique<MadeCode>(30000);  // again, with generated loops
  cache.note_code(*plans[4]);
  EXPECT_EQ(cache.stats().bytes, before + 30000);
  plans[9]->code = std::make_unique<MadeCode>(80000);
  cache.note_code(*plans[9]);
  EXPECT_LE(cache.stats().bytes, 100000u);
  EXPECT_EQ(cache.find(Made{{4}, {}}.key(), 1), nullptr) << "longest unused of what is too much";
  EXPECT_EQ(cache.find(Made{{9}, {}}.key(), 0), plans[9]);
  // Of a plan that it has forgotten, or never knew.
  const size_t after = cache.stats().bytes;
  cache.note_code(*plans[4]);
  cache.note_code(*plan(1));
  EXPECT_EQ(cache.stats().bytes, after);
  // A forgotten plan takes what it had with it.
  cache.forget(&Made::kOwners[0]);
  EXPECT_EQ(cache.stats().bytes, 0u);
}

TEST(PlanCache, GivesUpTheLongestUnused) {
  PlanCache cache;
  for (uint64_t i = 0; i < 16; ++i) {
    const Made made{{i}, {}};
    cache.insert(made.key(), i, plan(1));
  }
  EXPECT_TRUE(cache.give_up_some());
  EXPECT_EQ(cache.stats().plans, 14u);
  EXPECT_EQ(cache.find(Made{{1}, {}}.key(), 1), nullptr);
  EXPECT_NE(cache.find(Made{{2}, {}}.key(), 2), nullptr);
  while (cache.give_up_some()) {
  }
  EXPECT_EQ(cache.stats().plans, 1u);
  EXPECT_NE(cache.find(Made{{2}, {}}.key(), 2), nullptr) << "used last";
}

TEST(PlanCache, ThreadsShareIt) {
  PlanCache cache(/*max_plans=*/16);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 2000; ++i) {
        const Made made{{i * static_cast<uint64_t>(t + 1) % 40}, {}};
        std::shared_ptr<Plan> found = cache.find(made.key(), made.words[0] % 8);
        if (found == nullptr) {
          found =
              cache.insert(made.key(), made.words[0] % 8, plan(static_cast<int>(made.words[0])));
        }
        ASSERT_EQ(found->slots, static_cast<int>(made.words[0]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache.stats().plans, 16u);
  EXPECT_EQ(cache.stats().hits + cache.stats().misses, 16000u);
}

}  // namespace
}  // namespace hologram::circuit
