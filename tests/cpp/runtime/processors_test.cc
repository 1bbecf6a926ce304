// SPDX-License-Identifier: MIT
// How many processors the process gets, and which its threads may use.
#include "src/runtime/threads/processors.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "hologram/parallel.h"
#include "src/runtime/recording/circuit_worker.h"

namespace hologram::internal {
namespace {

namespace fs = std::filesystem;

cpu_set_t mask_of(pid_t thread) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(thread, sizeof mask, &mask);
  return mask;
}

int count(const cpu_set_t& mask) { return CPU_COUNT(&mask); }

void bind_to_one() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  sched_setaffinity(0, sizeof one, &one);
}

// Runs a check in a process of its own, since what is found stays.
void expect_in_child(bool (*check)()) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(check() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

// A machine of 192 processors whose group has this quota of them.
void set_root(const char* cpu_max) {
  std::string root = (fs::temp_directory_path() / "hologram_root_XXXXXX").string();
  if (mkdtemp(root.data()) == nullptr) std::exit(2);
  const auto write = [&](const char* path, const char* text) {
    fs::create_directories((root + path).substr(0, (root + path).rfind('/')));
    std::ofstream(root + path) << text;
  };
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/cpu.max", cpu_max);
  write("/sys/devices/system/cpu/online", "0-63,128-255\n");
  setenv("HOLOGRAM_SYSTEM_ROOT", root.c_str(), 1);
  std::atexit([] { fs::remove_all(std::getenv("HOLOGRAM_SYSTEM_ROOT")); });
}

TEST(Processors, ThoseOfTheProcessAndTheMachine) {
  expect_in_child([] {
    return processors() == count(mask_of(0)) && usable_processors() == processors() &&
           machine_processors() >= processors() && !are_threads_bound();
  });
}

TEST(Processors, AQuotaLimitsThem) {
  expect_in_child([] {
    set_root("150000 100000\n");
    return processors() == 1 && machine_processors() == 1 && !has_circuit_worker();
  });
  expect_in_child([] {
    set_root("500000 100000\n");
    return processors() == std::min(5, count(mask_of(0))) && machine_processors() == 5;
  });
  expect_in_child([] {
    set_root("max 100000\n");
    return processors() == count(mask_of(0)) && machine_processors() == 192;
  });
}

TEST(Processors, ANumberOfThreadsThatIsGivenWins) {
  expect_in_child([] {
    set_root("100000 100000\n");
    setenv("OMP_NUM_THREADS", "3", 1);
    return num_threads() == 3;
  });
  expect_in_child([] {
    set_root("100000 100000\n");
    unsetenv("OMP_NUM_THREADS");
    if (num_threads() != 1) return false;
    set_num_threads(2);
    return num_threads() == 2;
  });
}

// OpenMP binds the thread that loads it, here the main one.
TEST(Processors, AThreadThatIsBoundDoesNotHideTheOthers) {
  expect_in_child([] {
    const int all = count(mask_of(0));
    std::atomic<bool> is_over{false};
    std::thread other([&] {
      while (!is_over.load()) std::this_thread::yield();
    });
    bind_to_one();
    const bool found = processors() == all && are_threads_bound() == (all > 1);
    is_over.store(true);
    other.join();
    return found && processors() == all;  // that stays
  });
}

TEST(Processors, ProcessorsThatAreNamedCount) {
  expect_in_child([] {
    const cpu_set_t all = mask_of(0);
    bind_to_one();
    if (processors() != 1) return false;
    for (int number = 0; number < CPU_SETSIZE; ++number) {
      if (CPU_ISSET(number, &all)) add_processors(&number, 1);
    }
    const int outside[] = {-1, CPU_SETSIZE};
    add_processors(outside, 2);
    return processors() == count(all) && are_threads_bound() == (count(all) > 1);
  });
}

// Workers that a bound thread starts, and wakes, get all of the process's processors.
TEST(Processors, WorkersOfABoundThreadAreFree) {
  expect_in_child([] {
    const cpu_set_t all = mask_of(0);
    if (count(all) < 2) return true;
    for (int number = 0; number < CPU_SETSIZE; ++number) {
      if (CPU_ISSET(number, &all)) add_processors(&number, 1);
    }
    bind_to_one();
    const int here = sched_getcpu();
    set_num_threads(2);
    const pid_t main = static_cast<pid_t>(syscall(SYS_gettid));
    std::atomic<pid_t> worker{0};
    for (int i = 0; i < 1000 && worker.load() == 0; ++i) {
      parallel_for(64, 2, [&](int64_t, int64_t, int id) {
        if (id != 0) worker.store(static_cast<pid_t>(syscall(SYS_gettid)));
        usleep(100);
      });
    }
    const cpu_set_t theirs = mask_of(worker.load());
    // It keeps away from the processor of the one that woke it.
    return worker.load() != 0 && worker.load() != main && !CPU_ISSET(here, &theirs) &&
           count(theirs) == count(all) - 1 && count(mask_of(0)) == 1;
  });
}

}  // namespace
}  // namespace hologram::internal
