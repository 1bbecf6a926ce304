// SPDX-License-Identifier: MIT
// A thread that is woken by another, or finds itself beside it, runs on another processor.
#include "src/runtime/threads/placement.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

namespace hologram::internal {
namespace {

cpu_set_t allowed(pid_t thread) {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(thread, sizeof set, &set), 0);
  return set;
}

// Runs f(its id) while a thread that entered `place` waits.
void with_thread(ThreadPlace& place, const std::function<void(pid_t)>& f) {
  std::atomic<pid_t> id{0};
  std::atomic<bool> over{false};
  std::thread thread([&] {
    place.enter(1);
    id.store(static_cast<pid_t>(syscall(SYS_gettid)));
    while (!over.load()) std::this_thread::yield();
  });
  while (id.load() == 0) std::this_thread::yield();
  f(id.load());
  over.store(true);
  thread.join();
}

TEST(Placement, AWokenThreadRunsOnTheOtherProcessorsOfItsWaker) {
  const cpu_set_t mine = allowed(0);
  ThreadPlace place;
  with_thread(place, [&](pid_t thread) {
    // One processor is left to this thread, so that it stays there.
    const int here = this_processor();
    ASSERT_GE(here, 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(here, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    place.send_elsewhere();  // there is nowhere else
    EXPECT_TRUE(CPU_ISSET(here, &mine));
    const cpu_set_t unchanged = allowed(thread);
    EXPECT_TRUE(CPU_EQUAL(&unchanged, &mine));
    ASSERT_EQ(sched_setaffinity(0, sizeof mine, &mine), 0);
    if (CPU_COUNT(&mine) < 2) return;
    for (int i = 0; i < 3; ++i) {
      const int before = this_processor();
      place.send_elsewhere();
      const cpu_set_t theirs = allowed(thread);
      if (this_processor() != before) continue;  // moved meanwhile
      EXPECT_EQ(CPU_COUNT(&theirs), CPU_COUNT(&mine) - 1);
      EXPECT_FALSE(CPU_ISSET(before, &theirs));
    }
  });
  const cpu_set_t after = allowed(0);
  EXPECT_TRUE(CPU_EQUAL(&after, &mine));
}

TEST(Placement, AThreadLeavesTheProcessorOfTheOneThatItWorksFor) {
  const cpu_set_t mine = allowed(0);
  std::thread thread([&] {
    ThreadPlace place;
    place.enter(1);
    const int here = this_processor();
    place.leave(here);
    const cpu_set_t theirs = allowed(0);
    if (CPU_COUNT(&mine) < 2) {
      EXPECT_TRUE(CPU_EQUAL(&theirs, &mine));  // there is nowhere else
    } else {
      EXPECT_FALSE(CPU_ISSET(here, &theirs));
      EXPECT_NE(this_processor(), here);
    }
    const cpu_set_t before = allowed(0);
    place.leave(-1);  // unknown
    const cpu_set_t after = allowed(0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  });
  thread.join();
}

TEST(Placement, MoreThreadsThanProcessorsAreLeftAlone) {
  const cpu_set_t before = allowed(0);
  ThreadPlace place;
  place.enter(CPU_COUNT(&before));
  place.send_elsewhere();
  place.leave(this_processor());
  const cpu_set_t after = allowed(0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(Placement, NothingHappensBeforeAThreadEntered) {
  ThreadPlace place;
  const cpu_set_t before = allowed(0);
  place.send_elsewhere();
  const cpu_set_t after = allowed(0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace hologram::internal
