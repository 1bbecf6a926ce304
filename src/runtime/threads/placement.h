// SPDX-License-Identifier: MIT
// Keeps threads that work together on different processors.
//
// Linux may wake a thread on its waker's processor though others are idle, and leave both there for
// milliseconds: in virtual machines, whose idle processors look taken away, and where processors
// share no cache.
#pragma once

#include <sys/types.h>

#include <atomic>

namespace hologram::internal {

// The processor that the calling thread runs on, or -1.
int this_processor();

// A thread that others wake.
class ThreadPlace {
 public:
  // By the thread itself, before others wake it. `number` threads of its group came before: where
  // there are no more processors, it stays wherever the system has it.
  void enter(int number);
  // By one that is about to wake it: has it run on the caller's processors but this one. Does
  // nothing where it is so already.
  void send_elsewhere();
  // By the thread itself: leaves a processor on which the one runs that it works for.
  void leave(int processor);

 private:
  // Lets this thread run where helpers of the thread `pattern` (0: the calling one) may, but not on
  // `processor`.
  void allow_all_but(int processor, pid_t pattern);

  std::atomic<pid_t> thread_{0};
  std::atomic<int> number_{0};
  std::atomic<int> avoided_{-1};
};

}  // namespace hologram::internal
