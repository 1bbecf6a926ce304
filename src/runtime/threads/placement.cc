// SPDX-License-Identifier: MIT
// Moves threads by the processors that they may use.
#include "src/runtime/threads/placement.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/runtime/threads/processors.h"

namespace hologram::internal {

int this_processor() { return sched_getcpu(); }

void ThreadPlace::enter(int number) {
  number_.store(number, std::memory_order_relaxed);
  avoided_.store(-1, std::memory_order_relaxed);
  // A bound thread hands its mask down to this one, which may run anywhere.
  cpu_set_t all;
  if (are_threads_bound() && mask_for_helpers(0, all)) sched_setaffinity(0, sizeof all, &all);
  thread_.store(static_cast<pid_t>(syscall(SYS_gettid)), std::memory_order_release);
}

void ThreadPlace::allow_all_but(int processor, pid_t pattern) {
  const pid_t thread = thread_.load(std::memory_order_acquire);
  cpu_set_t allowed;
  if (thread == 0 || processor < 0 || processor >= CPU_SETSIZE ||
      !mask_for_helpers(pattern, allowed) ||
      number_.load(std::memory_order_relaxed) >= CPU_COUNT(&allowed)) {
    return;
  }
  CPU_CLR(processor, &allowed);
  // Where this is refused nothing is lost but time.
  if (sched_setaffinity(thread, sizeof allowed, &allowed) == 0) {
    avoided_.store(processor, std::memory_order_relaxed);
  }
}

void ThreadPlace::send_elsewhere() {
  const int here = this_processor();
  if (avoided_.load(std::memory_order_relaxed) != here) allow_all_but(here, 0);
}

void ThreadPlace::leave(int processor) {
  if (processor >= 0 && this_processor() == processor) allow_all_but(processor, getpid());
}

}  // namespace hologram::internal
