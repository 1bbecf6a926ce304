// SPDX-License-Identifier: MIT
// When the pools were used last, and who is told of the next use.
#include "src/runtime/memory/idle_trim.h"

#include <time.h>

#include <algorithm>
#include <cstdlib>

#include "hologram/memory.h"

namespace hologram::internal {
namespace {

constexpr double kSeconds = 10;

constinit std::atomic<int64_t> g_last_use{0};
constinit std::atomic<bool> g_is_used{false};  // since memory was last given back
constinit std::atomic<void (*)()> g_call{nullptr};

// Milliseconds are exact enough here, and cost a fifth of what nanoseconds do.
int64_t coarse_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The time that HOLOGRAM_TRIM_SECONDS gives, in nanoseconds. Text that is no number is ignored.
int64_t patience() {
  static const int64_t nanoseconds = [] {
    const char* text = std::getenv("HOLOGRAM_TRIM_SECONDS");
    char* end = nullptr;
    const double wish = text != nullptr ? std::strtod(text, &end) : kSeconds;
    const bool is_number = end != text && wish >= 0;
    return static_cast<int64_t>(std::min(is_number ? wish : kSeconds, 1e9) * 1e9);
  }();
  return nanoseconds;
}

// The answer of time_until_trim() at that time.
int64_t time_left(int64_t now) {
  if (patience() == 0 || !g_is_used.load(std::memory_order_acquire)) return 0;
  return std::max<int64_t>(g_last_use.load(std::memory_order_relaxed) + patience() - now, 1);
}

void trim_if_idle(int64_t now) {
  if (time_left(now) == 1 && g_is_used.exchange(false)) empty_cache();
}

}  // namespace

void note_pool_use() noexcept {
  const int64_t now = coarse_now();
  trim_if_idle(now);  // where no thread of the recorder's has seen to it
  g_last_use.store(now, std::memory_order_relaxed);
  if (g_is_used.load(std::memory_order_relaxed)) return;
  g_is_used.store(true, std::memory_order_seq_cst);
  if (g_call.load(std::memory_order_seq_cst) == nullptr) return;
  if (void (*const call)() = g_call.exchange(nullptr)) call();
}

// A tick longer than what is left: the coarse clock stands still for up to a tick, and a wait that
// ends while it does would be followed by many short ones.
int64_t time_until_trim() noexcept {
  constexpr int64_t kLongestTick = 10'000'000;
  const int64_t left = time_left(coarse_now());
  return left != 0 ? left + kLongestTick : 0;
}
void trim_if_idle() noexcept { trim_if_idle(coarse_now()); }

bool call_at_next_use(void (*call)()) noexcept {
  g_call.store(call, std::memory_order_seq_cst);
  if (call == nullptr || patience() == 0 || !g_is_used.load(std::memory_order_seq_cst)) return true;
  g_call.store(nullptr);
  return false;
}

}  // namespace hologram::internal
