// SPDX-License-Identifier: MIT
// Reads the masks of all threads, and the quota.
#include "src/runtime/threads/processors.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>

#include "hologram/parallel.h"
#include "src/base/cgroups.h"

namespace hologram {
namespace internal {
namespace {

// The facts about the process's processors. They are published once, never change, and leak:
// workers ask until the process is gone.
struct Known {
  bool has_mask = false;  // false on machines with more processors than a mask holds
  bool is_bound = false;
  cpu_set_t mask{};
  int count = 1;
};
constinit std::atomic<const Known*> g_known{nullptr};
constinit std::atomic<const cpu_set_t*> g_added{nullptr};

// How many numbers a list such as "0-3,8" names. Some versions of sysconf() count the mask of the
// calling thread instead, so it is asked only where there is no list.
int online() {
  static const int count = [] {
    std::ifstream file(system_root() + "/sys/devices/system/cpu/online");
    long sum = 0;
    for (long first = 0, last = 0; file >> first; file.ignore(1, ',')) {
      last = first;
      if (file.peek() == '-') file.ignore(1) >> last;
      sum += last - first + 1;
    }
    if (sum <= 0) sum = sysconf(_SC_NPROCESSORS_ONLN);
    return static_cast<int>(std::clamp<long>(sum, 1, CPU_SETSIZE * 16));
  }();
  return count;
}

int quota() {
  static const int processors = cgroup_processors(system_root());
  return processors;
}

// Adds the masks of all threads of the process.
void add_masks_of_threads(cpu_set_t& mask) {
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return;
  while (const dirent* task = readdir(tasks)) {
    const pid_t id = static_cast<pid_t>(std::strtol(task->d_name, nullptr, 10));
    cpu_set_t theirs;
    // A thread may have ended meanwhile.
    if (id > 0 && sched_getaffinity(id, sizeof theirs, &theirs) == 0) CPU_OR(&mask, &mask, &theirs);
  }
  closedir(tasks);
}

const Known& known() {
  if (const Known* k = g_known.load(std::memory_order_acquire); k != nullptr) return *k;
  auto* k = new Known;
  cpu_set_t own;
  k->has_mask = sched_getaffinity(0, sizeof own, &own) == 0;
  if (k->has_mask) {
    k->mask = own;
    if (const cpu_set_t* added = g_added.load(std::memory_order_acquire)) {
      CPU_OR(&k->mask, &k->mask, added);
    }
    add_masks_of_threads(k->mask);
    k->is_bound = !CPU_EQUAL(&k->mask, &own);
  }
  k->count = k->has_mask ? CPU_COUNT(&k->mask) : online();
  if (quota() != 0) k->count = std::min(k->count, quota());
  k->count = std::max(k->count, 1);
  const Known* none = nullptr;
  if (g_known.compare_exchange_strong(none, k, std::memory_order_acq_rel)) return *k;
  delete k;  // another thread was faster
  return *none;
}

}  // namespace

int processors() { return known().count; }

int machine_processors() {
  static const int count = quota() != 0 ? std::min(online(), quota()) : online();
  return count;
}

bool mask_for_helpers(pid_t thread, cpu_set_t& mask) {
  if (const Known& k = known(); k.has_mask && k.is_bound) {
    mask = k.mask;
    return true;
  }
  return sched_getaffinity(thread, sizeof mask, &mask) == 0;
}

bool are_threads_bound() { return known().is_bound; }

}  // namespace internal

int usable_processors() { return internal::processors(); }

void add_processors(const int* numbers, int count) {
  auto* all = new cpu_set_t;
  CPU_ZERO(all);
  if (const cpu_set_t* before = internal::g_added.load()) *all = *before;
  for (int i = 0; i < count; ++i) {
    if (numbers[i] >= 0 && numbers[i] < CPU_SETSIZE) CPU_SET(numbers[i], all);
  }
  internal::g_added.store(all, std::memory_order_release);
  internal::g_known.store(nullptr, std::memory_order_release);
}

}  // namespace hologram
