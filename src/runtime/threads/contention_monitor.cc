// SPDX-License-Identifier: MIT
// Measures how late workers answer, and for how long to leave them alone after that.
#include "src/runtime/threads/contention_monitor.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace hologram::internal {
namespace {

constexpr int64_t kMicrosecond = 1000;
constexpr int64_t kMillisecond = 1000 * kMicrosecond;

constexpr int64_t kShortestRest = 20 * kMillisecond;
constexpr int64_t kLongestRest = 500 * kMillisecond;
constexpr int64_t kLossShare = 10;  // the rest lasts this many times the lost time
constexpr int64_t kLateWait = 150 * kMicrosecond;
constexpr double kLateWake = 500.0 * kMicrosecond;
constexpr int64_t kOwnLookEvery = 10 * kMillisecond;
// A look that comes later than this says little: for most of the time before, another runtime's
// threads may have run here.
constexpr int64_t kLateLook = kOwnLookEvery / 2;
constexpr int64_t kTestEvery = 50 * kMillisecond;

// What the kernel counted for this thread: time on a processor, and time ready but waiting for one.
struct Waiting {
  int64_t look_at = 0;
  long long ran = 0;
  long long waited = 0;
};
constinit thread_local Waiting t_waiting;

bool read_schedstat(long long& ran, long long& waited) {
  const int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char text[96];
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return false;
  text[length] = '\0';
  return std::sscanf(text, "%lld %lld", &ran, &waited) == 2;
}

}  // namespace

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void ContentionMonitor::rest(int64_t now, int64_t at_least) {
  const int64_t before = rest_length_.load(std::memory_order_relaxed);
  const int64_t length = std::clamp(std::max(2 * before, at_least), kShortestRest, kLongestRest);
  rest_length_.store(length, std::memory_order_relaxed);
  rest_until_.store(now + length, std::memory_order_relaxed);
}

void ContentionMonitor::look_at_own_waiting(int64_t now) {
  Waiting& w = t_waiting;
  if (now < w.look_at) return;
  const bool is_first = w.look_at == 0 || now - w.look_at > kLateLook;
  w.look_at = now + kOwnLookEvery;
  long long ran = 0;
  long long waited = 0;
  if (!read_schedstat(ran, waited)) {
    w.look_at = INT64_MAX;  // no such file on this kernel
    return;
  }
  const long long ran_since = ran - w.ran;
  const long long waited_since = waited - w.waited;
  w.ran = ran;
  w.waited = waited;
  // A tenth of the time in the queue: other processes use this processor, so probably all of them.
  if (!is_first && waited_since > kMillisecond && waited_since * 9 > ran_since) {
    rest_until_.store(
        std::max(rest_until_.load(std::memory_order_relaxed), now + 5 * kOwnLookEvery),
        std::memory_order_relaxed);
  }
}

bool ContentionMonitor::workers_help(int64_t now) {
  look_at_own_waiting(now);
  return now >= rest_until_.load(std::memory_order_relaxed);
}

bool ContentionMonitor::job_ended(int64_t now, int64_t wait, int64_t fair) {
  last_news_.store(now, std::memory_order_relaxed);
  if (wait > fair + kLateWait) {
    rest(now, kLossShare * wait);
    return true;
  }
  const int64_t length = rest_length_.load(std::memory_order_relaxed);
  if (length != 0) rest_length_.store(length - length / 8 - 1, std::memory_order_relaxed);
  return false;
}

void ContentionMonitor::worker_woke(int64_t now, int64_t latency) {
  last_news_.store(now, std::memory_order_relaxed);
  const double before = wake_latency_.load(std::memory_order_relaxed);
  // One very late wake-up counts, but not for ever.
  const double sample = std::min(static_cast<double>(latency), 4 * kLateWake);
  const double average = before + 0.2 * (sample - before);
  wake_latency_.store(average, std::memory_order_relaxed);
  if (average > kLateWake) {
    rest(now, kShortestRest);
    wake_latency_.store(kLateWake * 0.8, std::memory_order_relaxed);
  }
}

bool ContentionMonitor::claim_test_call(int64_t now) {
  int64_t last = last_news_.load(std::memory_order_relaxed);
  return now - last > kTestEvery && last_news_.compare_exchange_strong(last, now);
}

}  // namespace hologram::internal
