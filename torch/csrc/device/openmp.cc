// SPDX-License-Identifier: MIT
// Lends OpenMP's threads, and finds out whether they spin: by the processor time that one has used.
#include "device/openmp.h"

#include <pthread.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <vector>

namespace hologram_torch {
namespace {

constexpr clockid_t kUnknown = 0;  // clocks of threads are negative

// The clock of one thread of the calling thread's team: OpenMP has a team for each thread that
// starts regions.
thread_local clockid_t t_member_clock = kUnknown;

// PyTorch's number of threads where nobody has set one, and what a container's quota leaves of it.
int g_default_threads = 0, g_limit = 0;

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

// Where OpenMP binds its threads, it has bound the one that loaded it. Its places are all that it
// binds to.
void name_places() {
  if (omp_get_num_places == nullptr || omp_get_place_num_procs == nullptr ||
      omp_get_place_proc_ids == nullptr) {
    return;
  }
  std::vector<int> numbers;
  for (int place = 0; place < omp_get_num_places(); ++place) {
    numbers.resize(static_cast<size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, numbers.data());
    hologram::add_processors(numbers.data(), static_cast<int>(numbers.size()));
  }
}

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

int thread_count() {
  const int threads = at::get_num_threads();
  return threads == g_default_threads ? g_limit : threads;
}

void lend_openmp_threads() {
  name_places();
  const int threads = at::get_num_threads(), limit = hologram::usable_processors();
  const bool is_limited =
      threads > limit && !is_set("OMP_NUM_THREADS") && !is_set("MKL_NUM_THREADS");
  if (is_limited) g_default_threads = threads, g_limit = limit;
  hologram::set_thread_count_source(&thread_count);
  // A team that PyTorch uses with more threads than we do would end and start them each time.
  if (GOMP_parallel != nullptr && !is_limited) hologram::set_thread_team(&run_region, &is_awake);
}

void OpenMpRegion::note_long_region() {
  hologram::note_team_in_use();
  if (t_member_clock == kUnknown && GOMP_parallel != nullptr) t_member_clock = find_member_clock();
}

}  // namespace hologram_torch
