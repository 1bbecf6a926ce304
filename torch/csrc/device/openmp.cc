// SPDX-License-Identifier: MIT
// Lends OpenMP's threads, and finds out whether they spin: by the processor time that one has used.
#include "device/openmp.h"

#include <pthread.h>
#include <time.h>

#include <atomic>

namespace hologram_torch {
namespace {

constexpr clockid_t kUnknown = 0;  // clocks of threads are negative

// The clock of one thread of the calling thread's team: OpenMP has a team for each thread that
// starts regions.
thread_local clockid_t t_member_clock = kUnknown;

void run_region(int threads, void (*member)(void*), void* context) {
  GOMP_parallel(member, context, static_cast<unsigned>(threads), 0);
}

// A region of nothing, which starts the team if the thread has none yet.
clockid_t find_member_clock() {
  struct Region {
    const void* caller;
    std::atomic<clockid_t> clock{kUnknown};
  } region{&t_member_clock};
  const auto member = [](void* context) {
    auto& r = *static_cast<Region*>(context);
    clockid_t clock = kUnknown;
    if (r.caller != &t_member_clock && pthread_getcpuclockid(pthread_self(), &clock) == 0) {
      r.clock.store(clock);
    }
  };
  run_region(at::get_num_threads(), member, &region);
  return region.clock.load();
}

// Whether that thread runs: whether it uses processor time in the next microsecond. About as long
// as that is what the question costs.
bool is_awake() {
  // Only the thread that asks first gets a team for the asking.
  static std::atomic<bool> asked{false};
  if (t_member_clock == kUnknown && !asked.exchange(true)) t_member_clock = find_member_clock();
  if (t_member_clock == kUnknown) return false;
  timespec before{}, after{};
  if (clock_gettime(t_member_clock, &before) != 0) {
    t_member_clock = kUnknown;  // the thread has ended
    return false;
  }
  for (int i = 0; i < 16; ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  clock_gettime(t_member_clock, &after);
  return before.tv_sec != after.tv_sec || before.tv_nsec != after.tv_nsec;
}

}  // namespace

void lend_openmp_threads() {
  hologram::set_thread_count_source(&at::get_num_threads);
  if (GOMP_parallel != nullptr) hologram::set_thread_team(&run_region, &is_awake);
}

void OpenMpRegion::note_long_region() {
  hologram::note_team_in_use();
  if (t_member_clock == kUnknown && GOMP_parallel != nullptr) t_member_clock = find_member_clock();
}

}  // namespace hologram_torch
