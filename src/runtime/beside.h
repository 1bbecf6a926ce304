// SPDX-License-Identifier: MIT
// Threads that run circuits beside the program, and how whoever waits for them helps.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>

#include "src/runtime/contention_monitor.h"

namespace hologram::internal {

// Returns when woken, when the word has another value, after `timeout_ns` (0: never), or for
// nothing.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_ns = 0) {
  const timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000),
                         static_cast<long>(timeout_ns % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, timeout_ns != 0 ? &timeout : nullptr,
          nullptr, 0);
}
inline void futex_wake(std::atomic<uint32_t>& word, int threads) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}
inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How long a thread that is called for work spins before it sleeps. Spinning saves the caller a
// system call where calls follow one another; whether they do is learnt from the pauses.
class IdleSpin {
 public:
  // Spins until is_called() or for as long as that pays; whether it was called.
  template <class F>
  bool spin(F&& is_called) {
    since_ = now_ns();
    while (now_ns() - since_ < length_) {
      for (int i = 0; i < 32; ++i) {
        pause();
        if (is_called()) return true;
      }
    }
    return false;
  }
  // The pause is over: called at that time, or, if that is 0, now. What waking took is no part of
  // it, since it is longer than the pauses that are worth spinning through.
  void learn(int64_t called_at) {
    const int64_t idle = (called_at != 0 ? called_at : now_ns()) - since_;
    length_ = idle < kLongest ? std::min(kLongest, std::max(length_, 2 * idle))
                              : std::max(kShortest, length_ / 2);
  }

 private:
  static constexpr int64_t kShortest = 2'000;
  // About what waking costs both threads together.
  static constexpr int64_t kLongest = 150'000;

  int64_t length_ = kShortest;
  int64_t since_ = 0;
};

// Wakes all who wait for something to change; costs whoever changes it one uncontended addition
// where nobody waits.
class Bell {
 public:
  void ring() {
    if (sleepers_.fetch_add(0, std::memory_order_seq_cst) == 0) return;
    rings_.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(rings_, INT_MAX);
  }
  // Sleeps until a ring that comes after is_over() was asked; not at all if that is true.
  template <class F>
  void sleep_unless(F&& is_over) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = rings_.load(std::memory_order_seq_cst);
    if (!is_over()) futex_wait(rings_, seen);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
  // In a forked child, which has none of them.
  void forget_sleepers() { sleepers_.store(0); }

 private:
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> rings_{0};
};

// Rung when a thread beside the program publishes tiles, and when a run lock is given up.
Bell& beside_bell();

// While it lives the calling thread runs a circuit beside the program: parallel_for uses at most
// `threads` threads and never a lent team, and leaves one of their places to a guest.
class BesideScope {
 public:
  explicit BesideScope(int threads);
  ~BesideScope();
  BesideScope(const BesideScope&) = delete;
  BesideScope& operator=(const BesideScope&) = delete;

 private:
  const int outer_;
};

// Whether threads that another runtime lent spin for somebody, see note_team_in_use().
bool does_team_spin(int64_t now);

// As testing::always_ask_workers said.
bool asks_workers_always();

// Whether a guest would find tiles now.
bool is_beside_claimable();
// Runs tiles of threads beside the program, as their guest, until none is left; whether there were
// any.
bool help_beside();

}  // namespace hologram::internal
