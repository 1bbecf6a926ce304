// SPDX-License-Identifier: MIT
// Moves threads by the processors that they may use.
#include "src/runtime/placement.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hologram::internal {

int this_processor() { return sched_getcpu(); }

void ThreadPlace::enter() {
  avoided_.store(-1, std::memory_order_relaxed);
  thread_.store(static_cast<pid_t>(syscall(SYS_gettid)), std::memory_order_release);
}

void ThreadPlace::allow_all_but(int processor, pid_t pattern) {
  const pid_t thread = thread_.load(std::memory_order_acquire);
  cpu_set_t allowed;
  if (thread == 0 || processor < 0 || processor >= CPU_SETSIZE ||
      sched_getaffinity(pattern, sizeof allowed, &allowed) != 0) {
    return;
  }
  CPU_CLR(processor, &allowed);
  // A refusal costs no more than what this is to save.
  if (CPU_COUNT(&allowed) > 0 && sched_setaffinity(thread, sizeof allowed, &allowed) == 0) {
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
