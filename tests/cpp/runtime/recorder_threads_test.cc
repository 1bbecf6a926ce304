// SPDX-License-Identifier: MIT
// The recorder under many threads, across fork and exit, and in the steady state of a loop.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <thread>

#include "tests/cpp/runtime/null_device.h"
#include "tests/cpp/runtime/recording_device.h"

namespace {
// How often this thread asked for memory; sanitizers bring an operator new of their own.
thread_local int64_t t_news = 0;
}  // namespace

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define HOLOGRAM_COUNTS_NEW 1
[[gnu::noinline]] void* operator new(size_t n) {
  ++t_news;
  if (void* data = std::malloc(n == 0 ? 1 : n)) return data;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, size_t) noexcept { std::free(data); }
#endif

namespace hologram {
namespace {

using RecorderThreads = RecorderTest;

TEST_F(RecorderThreads, EachSeesItsOwnResults) {
  constexpr int kThreads = 16;
  const int rounds = kThreadSanitizer ? 60 : 300;
  const BufferRef shared = filled(16, 3);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      const BufferRef sum = filled(16, 0);
      float expected = 0;
      for (int round = 0; round < rounds; ++round) {
        BufferRef x = shared;
        float value = 3;
        const int length = 1 + static_cast<int>(random() % 12);
        for (int i = 0; i < length; ++i) {
          // Most intermediates die while others of the same headers are being recorded.
          const BufferRef next = deferred(16);
          ASSERT_TRUE(record(OpId::add, memory(next), memory(x), number(1), 16));
          value += 1;
          x = next;
          if (random() % 16 == 0) {
            ASSERT_EQ(floats(x), std::vector<float>(16, value));
          }
        }
        ASSERT_TRUE(record(OpId::sub, memory(sum), memory(x), memory(sum), 16));
        expected = value - expected;
        if (random() % 8 == 0) {
          ASSERT_EQ(floats(sum), std::vector<float>(16, expected));
        }
        if (random() % 32 == 0) flush(scalar());
      }
      ASSERT_EQ(floats(sum), std::vector<float>(16, expected));
    });
  }
  for (std::thread& thread : threads) thread.join();
  flush(scalar());
  EXPECT_EQ(shared->use_count(), 1u);
  EXPECT_EQ(floats(shared), std::vector<float>(16, 3));
}

TEST_F(RecorderThreads, TwoMayMaterializeOneBuffer) {
  const int rounds = kThreadSanitizer ? 300 : 2000;
  for (int round = 0; round < rounds; ++round) {
    const BufferRef b = deferred(16);
    const bool written = round % 2 == 0;
    if (written) {
      ASSERT_TRUE(record(OpId::add, memory(b), number(1), number(2), 16));
    }
    std::atomic<int> ready{0};
    void* seen[2];
    const auto look = [&](int t) {
      ready.fetch_add(1);
      while (ready.load() < 2) std::this_thread::yield();
      materialize(*b);
      seen[t] = b->data();
      if (written) {
        EXPECT_EQ(b->data_as<float>()[15], 3);
      }
    };
    std::thread other([&] { look(1); });
    look(0);
    other.join();
    ASSERT_EQ(seen[0], seen[1]);
    ASSERT_NE(seen[0], nullptr);
  }
}

TEST_F(RecorderThreads, ResultsPassFromOneToAnother) {
  const int rounds = kThreadSanitizer ? 500 : 5000;
  std::atomic<Buffer*> mail{nullptr};
  std::thread producer([&] {
    for (int i = 0; i < rounds; ++i) {
      BufferRef b = deferred(8);
      ASSERT_TRUE(record(OpId::add, memory(b), number(static_cast<float>(i)), number(1), 8));
      Buffer* empty = nullptr;
      while (!mail.compare_exchange_weak(empty, b.get())) {
        empty = nullptr;
        std::this_thread::yield();
      }
      b.detach();
    }
  });
  for (int i = 0; i < rounds; ++i) {
    Buffer* got;
    while ((got = mail.exchange(nullptr)) == nullptr) std::this_thread::yield();
    const BufferRef b = BufferRef::adopt(got), twice = deferred(8);
    ASSERT_TRUE(record(OpId::add, memory(twice), memory(b), memory(b), 8));
    if (i % 7 == 0) {
      ASSERT_EQ(floats(twice), std::vector<float>(8, 2 * static_cast<float>(i + 1)));
    }
  }
  producer.join();
}

TEST_F(RecorderThreads, RecordingGoesOnWhileACircuitRuns) {
  const BufferRef a = deferred(4), b = deferred(4);
  std::atomic<bool> running{false}, recorded{false};
  scalar().on_run = [&] {
    if (running.exchange(true)) return;
    while (!recorded.load()) std::this_thread::yield();
  };
  ASSERT_TRUE(record(OpId::add, memory(a), number(1), number(2), 4));
  std::thread runner([] { flush(scalar()); });
  while (!running.load()) std::this_thread::yield();
  ASSERT_TRUE(record(OpId::add, memory(b), memory(a), number(2), 4));
  EXPECT_TRUE(is_pending(*a));
  recorded.store(true);
  EXPECT_EQ(floats(b), std::vector<float>(4, 5));
  runner.join();
}

TEST_F(RecorderThreads, AForkedChildGoesOnByItself) {
  if (kThreadSanitizer) GTEST_SKIP() << "the sanitizer does not follow forks of threads";
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    const BufferRef sum = filled(64, 0);
    while (!stop.load()) {
      const BufferRef t = deferred(64);
      record(OpId::add, memory(t), memory(sum), number(1), 64);
      record(OpId::mul, memory(sum), memory(t), number(0.5f), 64);
    }
  });
  for (int i = 0; i < 20; ++i) {
    const BufferRef a = deferred(4);
    ASSERT_TRUE(record(OpId::add, memory(a), number(1), number(2), 4));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool good = !is_pending(*a) && a->data_as<float>()[3] == 3;
      const BufferRef b = deferred(4);
      good = good && record(OpId::mul, memory(b), memory(a), number(5), 4);
      good = good && is_pending(*b) && floats(b)[0] == 15;
      scalar().synchronize();
      _exit(good ? 0 : 1);
    }
    EXPECT_FALSE(is_pending(*a)) << "run before the fork";
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    const BufferRef b = deferred(4);
    ASSERT_TRUE(record(OpId::mul, memory(b), memory(a), number(7), 4));
    EXPECT_EQ(floats(b), std::vector<float>(4, 21));
  }
  stop.store(true);
  busy.join();
}

TEST_F(RecorderThreads, AProcessMayEndWithWorkRecorded) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        static BufferRef late = deferred(4);  // released by a destructor that runs after all else
        if (!record(OpId::add, memory(late), number(1), number(2), 4)) std::exit(1);
        std::exit(is_pending(*late) ? 0 : 2);
      },
      ::testing::ExitedWithCode(0), "");
}

// Without the fixture, which decides by itself.
TEST(Deferring, TheEnvironmentDecidesFirst) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto first = [](const char* wish) {
    wish != nullptr ? setenv("HOLOGRAM_EXECUTION", wish, 1) : unsetenv("HOLOGRAM_EXECUTION");
    std::exit(is_deferring() ? 11 : 12);
  };
  EXPECT_EXIT(first("eager"), ::testing::ExitedWithCode(12), "");
  EXPECT_EXIT(first("deferred"), ::testing::ExitedWithCode(11), "");
  EXPECT_EXIT(first(nullptr), ::testing::ExitedWithCode(11), "");
}

TEST_F(RecorderThreads, ARepeatedStepPlansAndAllocatesNothing) {
  static NullDevice* null = [] {
    auto device = std::make_unique<NullDevice>();
    NullDevice* made = device.get();
    register_device(std::move(device));
    return made;
  }();
  std::vector<BufferRef> weights;
  for (int i = 0; i < 8; ++i) weights.push_back(filled(1000, 1, *null));
  const auto step = [&](float rate) {
    BufferRef x = weights[0];
    for (int i = 0; i < 100; ++i) {
      const BufferRef y = deferred(1000, *null);
      record(i % 2 == 0 ? OpId::add : OpId::mul, memory(y), memory(x),
             memory(weights[static_cast<size_t>(i) % 8]), 1000);
      x = y;
    }
    const int64_t shape[] = {10, 100}, rows[] = {100, 1}, columns[] = {1, 10};
    const int64_t* steps[] = {rows, columns, rows};
    const RecordOperand operands[] = {memory(weights[1]), memory(x), number(rate)};
    record_strided(OpId::mul, Dtype::kFloat32, operands, 2, 2, shape, steps);
    record_reduction(Reduction::sum, memory(weights[2]), memory(x), 10, 100);
    flush(*null);
  };
  for (int i = 0; i < 5; ++i) step(0.1f);
  reset_recorder_stats(*null);
  const MemoryStats before = memory_stats();
  const int64_t news = t_news;
  for (int i = 0; i < 50; ++i) step(0.3f + static_cast<float>(i));  // other numbers, same plan
  const int64_t news_after = t_news;
  const RecorderStats stats = recorder_stats(*null);
  EXPECT_EQ(stats.circuits, 50u);
  EXPECT_EQ(stats.ops_recorded, 50u * 102);
  EXPECT_EQ(stats.plan_hits, 50u);
  EXPECT_EQ(stats.plan_misses, 0u);
  EXPECT_EQ(memory_stats().os_allocations, before.os_allocations);
  EXPECT_EQ(memory_stats().reserved_bytes.current, before.reserved_bytes.current);
#ifdef HOLOGRAM_COUNTS_NEW
  EXPECT_EQ(news_after - news, 0);
  EXPECT_GT(news, 0);
#else
  (void)news, (void)news_after;
#endif
  // A known number is part of the plan, since laws know it.
  step(1.f);
  EXPECT_EQ(recorder_stats(*null).plan_misses, 1u);
}

}  // namespace
}  // namespace hologram
