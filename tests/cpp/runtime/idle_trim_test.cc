// SPDX-License-Identifier: MIT
// Memory that nobody uses goes back to the system by itself.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "hologram/device.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"
#include "src/runtime/recording/circuit_worker.h"
#include "src/runtime/recording/recorder.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

constexpr size_t kBytes = size_t{64} << 20;

int64_t cached() { return memory_stats().cached_large_bytes; }

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Waits until it is so, for many times as long as that may take.
bool comes_true(const std::function<bool()>& is) {
  for (int i = 0; i < 1000 && !is(); ++i) sleep_for(0.02);
  return is();
}

// Starts the worker, where there is to be one.
void record_something() {
  const BufferRef x = allocate(4096);
  const BufferRef y = BufferRef::adopt(allocate_deferred(cpu(), 4096));
  const RecordOperand operands[] = {{.buffer = y.get()}, {.buffer = x.get()}};
  if (!record_flat(OpId::neg, Dtype::kFloat32, operands, 1, 1024)) std::exit(2);
  internal::Recorder::of(cpu()).hand_over();
  materialize(*y);
}

// Runs a check in a process of its own, since the environment is read once. `worker`: whether the
// recorder has a thread.
void expect_in_child(const char* seconds, bool worker, bool (*check)()) {
  if (worker && !is_deferring()) GTEST_SKIP() << "nothing is recorded";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto child = [&] {
    seconds != nullptr ? setenv("HOLOGRAM_TRIM_SECONDS", seconds, 1)
                       : unsetenv("HOLOGRAM_TRIM_SECONDS");
    setenv("HOLOGRAM_WORKER", worker ? "1" : "0", 1);
    if (worker && !internal::has_circuit_worker()) std::exit(0);  // there is one processor
    std::exit(check() ? 0 : 1);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0), "");
}

TEST(IdleTrim, TheWorkerGivesMemoryBack) {
  expect_in_child("0.3", true, [] {
    allocate(kBytes);
    record_something();
    return cached() >= static_cast<int64_t>(kBytes) && comes_true([] { return cached() == 0; }) &&
           memory_stats().reserved_bytes.current < static_cast<int64_t>(kBytes);
  });
}

// Memory that is dropped while the worker sleeps, with nothing recorded any more, wakes it.
TEST(IdleTrim, ALaterReleaseCounts) {
  expect_in_child("0.3", true, [] {
    record_something();
    for (int i = 0; i < 3; ++i) {
      BufferRef held = allocate(kBytes);
      sleep_for(2.5);
      held.reset();
      if (cached() == 0 || !comes_true([] { return cached() == 0; })) return false;
    }
    return true;
  });
}

TEST(IdleTrim, MediumBlocksGoBackToo) {
  expect_in_child("0.3", true, [] {
    record_something();
    {
      std::vector<BufferRef> blocks;
      for (int i = 0; i < 100; ++i) blocks.push_back(allocate(size_t{500} << 10));
    }
    return comes_true([] { return memory_stats().cached_bytes < int64_t{4} << 20; });
  });
}

TEST(IdleTrim, LiveMemoryStays) {
  expect_in_child("0.3", true, [] {
    const BufferRef held = allocate(kBytes);
    std::fill_n(held->data_as<uint8_t>(), kBytes, uint8_t{7});
    allocate(kBytes);
    record_something();
    if (!comes_true([] { return cached() == 0; })) return false;
    const auto* first = held->data_as<uint8_t>();
    return std::all_of(first, first + kBytes, [](uint8_t x) { return x == 7; });
  });
}

TEST(IdleTrim, ProgramsThatGoOnKeepTheirMemory) {
  expect_in_child("2", true, [] {
    const void* place = allocate(kBytes)->data();
    for (int i = 0; i < 20; ++i) {
      sleep_for(0.2);
      record_something();
      if (allocate(kBytes)->data() != place) return false;
    }
    return memory_stats().os_frees == 0;
  });
}

TEST(IdleTrim, ZeroIsNever) {
  expect_in_child("0", true, [] {
    allocate(kBytes);
    record_something();
    sleep_for(3);
    flush(cpu());
    return cached() >= static_cast<int64_t>(kBytes);
  });
}

TEST(IdleTrim, WithoutAWorkerTheNextOpDoesIt) {
  expect_in_child("0.3", false, [] {
    allocate(kBytes);
    sleep_for(1);
    if (cached() == 0) return false;  // nobody was there
    flush(cpu());
    if (cached() != 0) return false;
    allocate(kBytes);
    flush(cpu());
    if (cached() == 0) return false;  // it was used a moment ago
    sleep_for(1);
    if (!is_deferring()) return true;
    record_something();
    return cached() == 0;
  });
}

TEST(IdleTrim, WhatIsNoNumberIsTenSeconds) {
  for (const char* text : {"soon", "", "-1"}) {
    expect_in_child(text, false, [] {
      allocate(kBytes);
      sleep_for(0.2);
      flush(cpu());
      return cached() != 0;
    });
  }
}

TEST(IdleTrim, AForkedChildHasItsOwn) {
  if (kThreadSanitizer) GTEST_SKIP() << "it does not follow forks of threaded programs";
  expect_in_child("0.3", true, [] {
    record_something();
    sleep_for(2);  // the worker sleeps until the pools are used
    const pid_t child = fork();
    if (child == 0) {
      allocate(kBytes);  // which must not call the worker that is not here
      record_something();
      _exit(comes_true([] { return cached() == 0; }) ? 0 : 1);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  });
}

}  // namespace
}  // namespace hologram
