// SPDX-License-Identifier: MIT
// Waits for a word of memory to change, and wakes the threads that wait.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

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

// Wakes all threads that wait for something to change. Where none waits, a ring costs one
// uncontended addition.
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

}  // namespace hologram::internal
