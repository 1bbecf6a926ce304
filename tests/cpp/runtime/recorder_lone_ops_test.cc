// SPDX-License-Identifier: MIT
// Ops of a program that looks at each result: they run at their call, until it stops looking.
#include <atomic>
#include <cmath>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "hologram/memory.h"
#include "hologram/trace.h"
#include "src/runtime/recording/circuit_check.h"
#include "src/runtime/recording/recorder.h"
#if defined(__SSE__)
#include "tests/cpp/runtime/float_modes.h"
#endif
#include "tests/cpp/runtime/recording_device.h"

namespace hologram {
namespace {

using internal::LoneOps;
using internal::Recorder;

class LoneOpsTest : public RecorderTest {
 protected:
  // a + value, not looked at.
  BufferRef add(const BufferRef& a, float value, int64_t n = 8) {
    BufferRef out = deferred(n);
    EXPECT_TRUE(record(OpId::add, memory(out), memory(a), number(value), n));
    return out;
  }
  // Looks at an op after another; how many of them had run at their call.
  int look(int ops) {
    int ran = 0;
    for (int i = 0; i < ops; ++i) {
      const BufferRef out = add(a_, static_cast<float>(i));
      ran += is_pending(*out) ? 0 : 1;
      EXPECT_EQ(floats(out), std::vector<float>(8, 2 + static_cast<float>(i)));
    }
    return ran;
  }

  const BufferRef a_ = filled(8, 2);
};

TEST_F(LoneOpsTest, RunAtTheirCallWhileEachIsLookedAt) {
  EXPECT_EQ(look(16), 0);
  EXPECT_EQ(look(80), 70) << "each eighth is recorded";
  const RecorderStats stats = recorder_stats(scalar());
  EXPECT_EQ(stats.ops_recorded, 96u);
  EXPECT_EQ(stats.circuits, 96u);
  EXPECT_EQ(stats.kernels, 96u);
  EXPECT_EQ(stats.plan_hits + stats.plan_misses, 96u);
  EXPECT_LE(stats.plan_misses, 4u) << "plans differ by 0, 1, 2 and other numbers";
}

TEST_F(LoneOpsTest, AChainIsRecordedAfterAFewOps) {
  look(64);
  BufferRef x = a_;
  int ran = 0;
  for (int i = 0; i < 40; ++i) {
    x = add(x, 1);
    ran += is_pending(*x) ? 0 : 1;
  }
  EXPECT_LE(ran, 7);
  reset_recorder_stats(scalar());
  EXPECT_EQ(floats(x), std::vector<float>(8, 42));
  EXPECT_EQ(recorder_stats(scalar()).kernels, 1u) << "the rest is one kernel";
  // And so are the next chains, however short they are.
  for (int chain = 0; chain < 30; ++chain) {
    const BufferRef y = add(add(a_, 1), 1);
    EXPECT_TRUE(is_pending(*y));
    EXPECT_EQ(floats(y), std::vector<float>(8, 4));
  }
  EXPECT_EQ(look(16), 0);
  EXPECT_GT(look(16), 0);
}

TEST_F(LoneOpsTest, EqualProgramsRunAlike) {
  const auto program = [&] {
    std::vector<bool> ran;
    for (int i = 0; i < 30; ++i) ran.push_back(look(1) == 1);
    BufferRef x = a_;
    for (int i = 0; i < 10; ++i) {
      x = add(x, 1);
      ran.push_back(!is_pending(*x));
    }
    floats(x);
    return ran;
  };
  reset_recorder_stats(scalar());
  const std::vector<bool> first = program();
  reset_recorder_stats(scalar());
  EXPECT_EQ(program(), first);
}

TEST_F(LoneOpsTest, WhatIsLargeOrHasMemoryIsRecorded) {
  look(64);
  const int64_t n = LoneOps::kMostElements + 1;
  const BufferRef large = filled(n, 1);
  EXPECT_TRUE(is_pending(*add(large, 1, n)));
  flush(scalar());
  for (int i = 0; i < 20; ++i) {  // whether or not it is one that is recorded anyway
    look(17);
    ASSERT_TRUE(record(OpId::add, memory(a_), memory(a_), number(1), 8));
    EXPECT_TRUE(is_pending(*a_));
    ASSERT_TRUE(record(OpId::sub, memory(a_), memory(a_), number(1), 8));
    EXPECT_EQ(floats(a_), std::vector<float>(8, 2));
  }
  // Nothing is computed from what has no contents yet.
  for (int i = 0; i < 20; ++i) {
    look(17);
    const BufferRef empty = deferred(8), out = deferred(8);
    ASSERT_TRUE(record(OpId::add, memory(out), memory(empty), memory(a_), 8));
    EXPECT_TRUE(is_pending(*out));
    flush(scalar());
  }
}

TEST_F(LoneOpsTest, NamesOneBufferAsOften) {
  look(64);
  for (int i = 0; i < 16; ++i) {
    const BufferRef pair = filled(8, 3), out = deferred(4);
    pair->data_as<float>()[5] = 10;
    ASSERT_TRUE(record(OpId::sub, memory(out), memory(pair, 4), memory(pair), 4));
    EXPECT_EQ(floats(out), (std::vector<float>{0, 7, 0, 0}));
    RecordOperand one = memory(pair, 5);
    one.one = true;
    const BufferRef other = deferred(4);
    ASSERT_TRUE(record(OpId::mul, memory(other), one, memory(pair), 4));
    EXPECT_EQ(floats(other), std::vector<float>(4, 30));
  }
}

TEST_F(LoneOpsTest, ForeignMemoryIsNotTouched) {
  look(64);
  Recorder& recorder = Recorder::of(scalar());
  for (int i = 0; i < 16; ++i) {
    const BufferRef shared = filled(8, 1), out = deferred(8);
    recorder.mark_exported(shared.get());
    EXPECT_FALSE(record(OpId::add, memory(out), memory(shared), number(1), 8));
    recorder.unmark_exported(shared.get());
    look(1);
  }
}

TEST_F(LoneOpsTest, WhatFailsIsRecordedAndCanBeAskedForAgain) {
  look(64);
  for (int i = 0; i < 16; ++i) {
    const RecorderStats before = recorder_stats(scalar());
    std::atomic<int> fails = 2;
    scalar().on_run = [&] {
      if (fails-- > 0) fail(ErrorKind::kInternal, "the device is asked too much");
    };
    const BufferRef out = add(a_, 1);
    EXPECT_TRUE(is_pending(*out));
    fails = 0;
    scalar().on_run = nullptr;
    EXPECT_EQ(floats(out), std::vector<float>(8, 3));
    const RecorderStats after = recorder_stats(scalar());
    EXPECT_EQ(after.ops_recorded, before.ops_recorded + 1);
    EXPECT_EQ(after.circuits, before.circuits + 1);
    EXPECT_EQ(after.kernels, before.kernels + 1);
  }
  EXPECT_GT(look(16), 0);
}

TEST_F(LoneOpsTest, WithoutMemoryTheyAreRecorded) {
  look(64);
  constexpr int64_t kSize = LoneOps::kMostElements;
  const BufferRef a = filled(kSize, 1);
  empty_cache();
  set_memory_limit(static_cast<size_t>(memory_stats().reserved_bytes.current));
  std::vector<BufferRef> made;
  bool failed = false;
  while (!failed && made.size() < 4096) {
    made.push_back(add(a, 1, kSize));
    try {
      materialize(*made.back());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
      failed = true;
    }
  }
  EXPECT_TRUE(failed);
  EXPECT_TRUE(is_pending(*made.back()));
  set_memory_limit(0);
  EXPECT_EQ(floats(made.back()), std::vector<float>(static_cast<size_t>(kSize), 2));
}

#if defined(__SSE__)
TEST_F(LoneOpsTest, RoundAsTheirThreadDoes) {
  const BufferRef denormal = filled(8, 1e-39F), third = filled(8, 1.0F / 3);
  for (const auto& [mode, factor, sum] :
       {std::tuple{0U, 2e-39F, 1.0F / 3 + 1e-9F}, std::tuple{kFlush, 0.0F, 1.0F / 3 + 1e-9F},
        std::tuple{kUp, 2e-39F, std::nextafter(1.0F / 3, 1.0F)}}) {
    const InMode here(mode);
    for (int i = 0; i < 40; ++i) {
      const BufferRef out = deferred(8);
      if (i % 2 == 0) {
        ASSERT_TRUE(record(OpId::mul, memory(out), memory(denormal), number(2), 8));
      } else {
        ASSERT_TRUE(record(OpId::add, memory(out), memory(third), number(1e-9F), 8));
      }
      EXPECT_EQ(floats(out), std::vector<float>(8, i % 2 == 0 ? factor : sum));
    }
  }
}
#endif

TEST_F(LoneOpsTest, AreCheckedWhereCircuitsAre) {
  look(64);
  internal::set_checks_circuits(true);
  EXPECT_EQ(look(20), 0);
  internal::set_checks_circuits(false);
  EXPECT_GT(look(20), 0);
}

// Every launch is seen by who wants it.
TEST_F(LoneOpsTest, AreRecordedWhereAnObserverWantsThem) {
  static bool wanted = false;
  static int seen = 0;
  const LaunchObserver observer = {[] { return wanted; },
                                   [](const Launch&) -> void* {
                                     ++seen;
                                     return nullptr;
                                   },
                                   [](void*) {}};
  set_launch_observer(&observer);
  look(64);
  EXPECT_GT(look(20), 0);
  EXPECT_EQ(seen, 0);
  wanted = true;
  EXPECT_EQ(look(20), 0);
  EXPECT_EQ(seen, 20);
  wanted = false;
  const uint64_t trace = start_tracing(scalar());
  EXPECT_EQ(look(20), 0);
  EXPECT_EQ(stop_tracing(trace).size(), 20u);
  EXPECT_EQ(seen, 20);
  EXPECT_GT(look(20), 0);
  set_launch_observer(nullptr);
}

TEST_F(LoneOpsTest, ThreadsThatLookAtTheirOwn) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, n = int64_t{64} + t] {
      const BufferRef a = filled(n, static_cast<float>(t));
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 3000; ++i) {
        BufferRef x = a;
        const int ops = random() % 16 == 0 ? 5 : 1;
        for (int k = 0; k < ops; ++k) {
          BufferRef out = deferred(n);
          ASSERT_TRUE(record(OpId::add, memory(out), memory(x), number(1), n));
          x = out;
        }
        ASSERT_EQ(floats(x),
                  std::vector<float>(static_cast<size_t>(n), static_cast<float>(t + ops)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LoneOpsTest, WithAWorkerBesideThem) {
  internal::set_circuit_worker(true);
  for (int round = 0; round < 50; ++round) {
    look(40);
    BufferRef x = a_;
    for (int i = 0; i < 60; ++i) x = add(x, 1);
    Recorder::of(scalar()).hand_over();
    look(3);
    EXPECT_EQ(floats(x), std::vector<float>(8, 62));
  }
  internal::set_circuit_worker(false);
}

}  // namespace
}  // namespace hologram
