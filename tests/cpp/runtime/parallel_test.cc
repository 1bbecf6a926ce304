// SPDX-License-Identifier: MIT
// Worker threads: every tile once, errors carried, nothing lost on a loaded machine or after fork.
#include "hologram/parallel.h"

#include <sys/wait.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "src/runtime/threads/spin.h"
#include "src/runtime/threads/worker_scope.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

void burn(int64_t nanoseconds) {
  const int64_t start = internal::now_ns();
  while (internal::now_ns() - start < nanoseconds) {
  }
}

class Parallel : public ::testing::Test {
 protected:
  void SetUp() override { set_num_threads(4); }
};

TEST_F(Parallel, EveryTileRunsOnceWithAValidWorker) {
  for (const int64_t tiles : {1, 2, 3, 7, 64, 1000, 12345}) {
    for (const int threads : {0, 1, 2, 3, 4, 16}) {
      std::vector<std::atomic<int>> runs(tiles);
      std::atomic<int> wrong{0};
      const int limit = threads == 0 ? num_threads() : threads;
      parallel_for(tiles, threads, [&](int64_t begin, int64_t end, int worker) {
        if (begin >= end || begin < 0 || end > tiles || worker < 0 || worker >= limit) ++wrong;
        for (int64_t i = begin; i < end; ++i) ++runs[i];
      });
      ASSERT_EQ(wrong, 0);
      for (const auto& count : runs) ASSERT_EQ(count, 1) << tiles << " " << threads;
    }
  }
  parallel_for(0, 0, [](int64_t, int64_t, int) { FAIL(); });
  parallel_for(-5, 0, [](int64_t, int64_t, int) { FAIL(); });
}

TEST_F(Parallel, AGuestJoinsWorkBesideTheProgram) {
  for (const int threads : {2, 4}) {
    std::vector<std::atomic<int>> runs(400);
    std::atomic<bool> done{false}, guest_came{false};
    std::atomic<int> wrong{0};
    std::thread beside([&] {
      const internal::WorkerScope scope(threads);
      EXPECT_EQ(num_threads(), threads);
      parallel_for(400, 0, [&](int64_t begin, int64_t end, int worker) {
        if (worker < 0 || worker >= threads) ++wrong;
        if (worker == threads - 1) guest_came = true;
        const int64_t since = internal::now_ns();
        while (!guest_came && internal::now_ns() - since < 2'000'000'000) {
        }
        for (int64_t i = begin; i < end; ++i) ++runs[i];
      });
      done = true;
      internal::beside_bell().ring();
    });
    while (!done) {
      if (internal::help_beside()) continue;
      internal::beside_bell().sleep_unless(
          [&] { return done.load() || internal::is_beside_claimable(); });
    }
    beside.join();
    EXPECT_TRUE(guest_came);
    EXPECT_EQ(wrong, 0);
    for (const auto& count : runs) ASSERT_EQ(count, 1);
  }
  EXPECT_FALSE(internal::help_beside());
  // With one thread there is no place for a guest.
  const internal::WorkerScope scope(1);
  parallel_for(10, 0, [&](int64_t begin, int64_t end, int) {
    EXPECT_EQ(end - begin, 10);
    EXPECT_FALSE(internal::is_beside_claimable());
  });
}

TEST_F(Parallel, OneWorkerIndexIsOneThreadAtATime) {
  std::vector<std::atomic<int>> inside(16);
  std::atomic<int> clashes{0};
  for (int round = 0; round < 200; ++round) {
    parallel_for(50, 4, [&](int64_t, int64_t, int worker) {
      if (++inside[worker] != 1) ++clashes;
      burn(2000);
      --inside[worker];
    });
  }
  EXPECT_EQ(clashes, 0);
}

TEST_F(Parallel, WorkersTakePart) {
  // On a machine that others keep busy the caller may be through before they come.
  const int64_t before = parallel_stats().worker_tiles;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (parallel_stats().worker_tiles == before && std::chrono::steady_clock::now() < deadline) {
    parallel_for(200, 2, [](int64_t begin, int64_t end, int) { burn((end - begin) * 100'000); });
  }
  EXPECT_GT(parallel_stats().worker_tiles, before);
  EXPECT_GE(parallel_stats().workers, 1);
}

#if defined(__SSE__)
TEST_F(Parallel, WorkersRoundAndFlushAsTheCallerDoes) {
  constexpr unsigned kFlush = 0x8040;  // flush to zero, denormals are zero
  const unsigned before = _mm_getcsr();
  for (const unsigned mode : {before | kFlush, (before & ~0x6000u) | 0x4000u, before}) {
    _mm_setcsr(mode);
    std::atomic<int> others = 0;
    std::atomic<int> wrong = 0;
    const auto caller = std::this_thread::get_id();
    for (int i = 0; i < 2000 && others < 20; ++i) {
      parallel_for(64, 0, [&](int64_t begin, int64_t end, int) {
        burn((end - begin) * 2000);
        if ((_mm_getcsr() & 0xffc0) != (mode & 0xffc0)) ++wrong;
        if (std::this_thread::get_id() != caller) ++others;
      });
    }
    _mm_setcsr(before);
    EXPECT_GE(others, 20);
    EXPECT_EQ(wrong, 0);
  }
}
#endif

TEST_F(Parallel, NestedLoopsRunInline) {
  std::atomic<int> total{0};
  std::atomic<int> wrong{0};
  EXPECT_FALSE(in_parallel_region());
  parallel_for(20, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const std::thread::id outer = std::this_thread::get_id();
      parallel_for(10, 4, [&](int64_t from, int64_t to, int worker) {
        if (std::this_thread::get_id() != outer || worker != 0 || !in_parallel_region()) ++wrong;
        total += static_cast<int>(to - from);
      });
    }
  });
  EXPECT_EQ(total, 200);
  EXPECT_EQ(wrong, 0);
  EXPECT_FALSE(in_parallel_region());
}

TEST_F(Parallel, ErrorsReachTheCallerAndStopFurtherTiles) {
  for (int round = 0; round < 300; ++round) {
    const int64_t bad = round % 100;
    std::atomic<int> ran{0};
    try {
      parallel_for(100, 4, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          if (i == bad) throw std::runtime_error("tile " + std::to_string(i));
          ++ran;
        }
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      ASSERT_EQ(error.what(), "tile " + std::to_string(bad));
    }
    ASSERT_LT(ran, 100);
    ASSERT_FALSE(in_parallel_region());
  }
  std::atomic<int> ran{0};
  parallel_for(100, 4,
               [&](int64_t begin, int64_t end, int) { ran += static_cast<int>(end - begin); });
  EXPECT_EQ(ran, 100);
}

TEST_F(Parallel, AllTilesMayThrow) {
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(parallel_for(64, 4, [](int64_t, int64_t, int) { throw std::logic_error("tile"); }),
                 std::logic_error);
  }
}

TEST_F(Parallel, ManyCallersAtOnce) {
  constexpr int kCallers = 16;
  const int rounds = kThreadSanitizer ? 100 : 1000;
  std::atomic<int64_t> wrong{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < kCallers; ++t) {
    callers.emplace_back([&, t] {
      for (int i = 0; i < rounds; ++i) {
        const int64_t tiles = 2 + (i * 7 + t) % 40;
        std::atomic<int64_t> sum{0};
        parallel_for(tiles, 1 + i % 5, [&](int64_t begin, int64_t end, int) {
          for (int64_t k = begin; k < end; ++k) sum += k;
        });
        if (sum != tiles * (tiles - 1) / 2) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Parallel, ThreadCountsAreHonouredAndChecked) {
  set_num_threads(3);
  EXPECT_EQ(num_threads(), 3);
  std::atomic<int> highest{0};
  for (int i = 0; i < 50; ++i) {
    parallel_for(100, 0, [&](int64_t, int64_t, int worker) {
      int seen = highest;
      while (worker > seen && !highest.compare_exchange_weak(seen, worker)) {
      }
    });
  }
  EXPECT_LT(highest, 3);
  set_num_threads(1);
  const std::thread::id caller = std::this_thread::get_id();
  parallel_for(100, 0, [&](int64_t begin, int64_t end, int) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 100);
  });
  EXPECT_ERROR(set_num_threads(0), ErrorKind::kInvalidArgument, "0 is not a number of threads");
  EXPECT_ERROR(set_num_threads(-3), ErrorKind::kInvalidArgument, "-3");
  EXPECT_ERROR(parallel_for(10, -1, [](int64_t, int64_t, int) {}), ErrorKind::kInvalidArgument,
               "max_threads is -1");
}

TEST_F(Parallel, ForkedChildrenHaveWorkersOfTheirOwn) {
  if (kThreadSanitizer)
    GTEST_SKIP() << "ThreadSanitizer does not follow forks of threaded programs";
  const auto total = [] {
    std::atomic<int64_t> sum{0};
    parallel_for(500, 4, [&](int64_t begin, int64_t end, int) {
      burn((end - begin) * 2000);
      sum += end - begin;
    });
    return sum.load();
  };
  EXPECT_EQ(total(), 500);
  for (int i = 0; i < 5; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      bool right = true;
      for (int k = 0; k < 50; ++k) right = right && total() == 500;
      exit(right ? 0 : 1);  // through the destructors too
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    EXPECT_EQ(total(), 500);
  }
}

// A team of fresh threads stands for another runtime's.
void fresh_threads(int threads, void (*member)(void*), void* context) {
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(member, context);
  member(context);
  for (std::thread& other : others) other.join();
}

TEST(LentTeam, RunsEveryTileOnceAndCarriesErrors) {
  const int threads_before = num_threads();
  set_num_threads(4);
  const auto team_jobs = [] {
    static std::atomic<int> jobs;
    jobs = 0;
    set_thread_team([](int threads, void (*member)(void*), void* context) {
      ++jobs;
      fresh_threads(threads, member, context);
    });
    parallel_for(100, 0, [](int64_t, int64_t, int) {});
    return jobs.load();
  };
  EXPECT_EQ(team_jobs(), 0) << "its threads sleep";
  int jobs = 0;
  int64_t noted = 0;
  for (int i = 0; i < 1000 && jobs == 0; ++i) {  // a busy machine may pause longer than it spins
    noted = internal::now_ns();
    note_team_in_use();
    jobs = team_jobs();
  }
  EXPECT_EQ(jobs, 1);
  EXPECT_TRUE(internal::does_team_spin(noted));
  std::thread([&] { EXPECT_EQ(team_jobs(), 0) << "it spins for another thread"; }).join();
  EXPECT_FALSE(internal::does_team_spin(internal::now_ns() + 1'000'000'000));
  set_thread_team(&fresh_threads);
  for (int round = 0; round < 50; ++round) {
    note_team_in_use();
    std::vector<std::atomic<int>> seen(997);
    std::atomic<int> highest{0};
    std::atomic<int> nested{0};
    parallel_for(997, 4, [&](int64_t begin, int64_t end, int worker) {
      int before = highest.load();
      while (before < worker && !highest.compare_exchange_weak(before, worker)) {
      }
      for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)].fetch_add(1);
      parallel_for(3, 4, [&](int64_t b, int64_t e, int w) {
        if (w == 0) nested.fetch_add(static_cast<int>(e - b));
      });
    });
    for (auto& count : seen) ASSERT_EQ(count.load(), 1);
    ASSERT_LT(highest.load(), 4);
    ASSERT_GT(nested.load(), 0);
    ASSERT_EQ(nested.load() % 3, 0);
    EXPECT_THROW(parallel_for(100, 3,
                              [](int64_t begin, int64_t end, int) {
                                if (begin <= 57 && 57 < end) throw std::runtime_error("tile 57");
                              }),
                 std::runtime_error);
  }
  set_thread_team(nullptr);
  set_num_threads(threads_before);
}

TEST(LentTeam, IsUsedWhileItsThreadsRunForItsOwner) {
  const int threads_before = num_threads();
  set_num_threads(2);
  static std::atomic<int> jobs;
  static std::atomic<bool> awake;
  jobs = 0, awake = false;
  const auto run = [] {
    const int before = jobs;
    parallel_for(100, 0, [](int64_t, int64_t, int) {});
    return jobs != before;
  };
  const auto wait = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  std::thread([&] {
    set_thread_team(
        [](int threads, void (*member)(void*), void* context) {
          ++jobs;
          fresh_threads(threads, member, context);
        },
        [] { return awake.load(); });
    EXPECT_FALSE(run()) << "its threads sleep";
    EXPECT_FALSE(internal::does_team_spin(internal::now_ns()));
    awake = true;
    wait(1);
    EXPECT_TRUE(internal::does_team_spin(internal::now_ns()));
    EXPECT_TRUE(run()) << "its owner uses it";
    // What spins now spins for us, until it sleeps or its owner must have used it again.
    int64_t last = 0;
    do {
      last = internal::now_ns();
      run();
      wait(1);
    } while (run());
    EXPECT_TRUE(internal::does_team_spin(last)) << "it has not gone to sleep";
    awake = false;
    wait(1);
    EXPECT_FALSE(internal::does_team_spin(internal::now_ns() + 1'000'000'000));
    set_thread_team(nullptr);
  }).join();
  set_num_threads(threads_before);
}

// Who works for another thread's job at that moment would not be waited for.
TEST(LentTeam, LeavesWorkersOut) {
  const int threads_before = num_threads();
  set_num_threads(4);
  static std::atomic<int> jobs;
  static thread_local bool is_member = false;
  jobs = 0;
  set_thread_team([](int threads, void (*member)(void*), void* context) {
    ++jobs;
    // Workers are awake, and look for more.
    const int64_t before = parallel_stats().worker_tiles;
    std::thread other([&] {
      for (int i = 0; i < 1000 && parallel_stats().worker_tiles == before; ++i) {
        parallel_for(64, 4, [](int64_t begin, int64_t end, int) { burn((end - begin) * 20'000); });
      }
    });
    other.join();
    burn(1'000'000);
    is_member = true;
    member(context);
    is_member = false;
    for (int i = 1; i < threads; ++i) {
      std::thread([&] {
        is_member = true;
        member(context);
      }).join();
    }
  });
  for (int i = 0; i < 1000 && jobs < 20; ++i) {
    note_team_in_use();
    const int before = jobs;
    std::atomic<int64_t> outside{0};
    parallel_for(1000, 4, [&](int64_t begin, int64_t end, int) {
      if (!is_member) outside += end - begin;
    });
    if (jobs != before) {
      EXPECT_EQ(outside.load(), 0);
    }
  }
  EXPECT_EQ(jobs, 20);
  set_thread_team(nullptr);
  set_num_threads(threads_before);
}

TEST_F(Parallel, AnotherRuntimeMaySetTheNumberOfThreads) {
  const int before = num_threads();
  static int count = 3;
  set_thread_count_source([] { return count; });
  EXPECT_EQ(num_threads(), 3);
  count = -1;
  EXPECT_EQ(num_threads(), 1);
  set_num_threads(2);
  EXPECT_EQ(num_threads(), 2);
  set_num_threads(before);
}

}  // namespace
}  // namespace hologram
