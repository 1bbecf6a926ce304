// SPDX-License-Identifier: MIT
// What the handle interface costs a program: an op on 16 elements, a buffer made and freed, a look.
//
// bench/areas/borders.py compiles it against the headers of the installed package.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "hologram/hologram.h"

namespace {

constexpr int64_t kElements = 16;
constexpr int kCalls = 64;

}  // namespace

// The median nanoseconds of one call over `rounds` rounds: which 0 vector_add_f32 (recorded; it is
// run outside the clock), 1 a buffer allocated and freed, 2 buffer_length. -1 where a call fails,
// -2 for a wrong sum.
extern "C" double hologram_bench_handles(int which, int rounds) {
  using Clock = std::chrono::steady_clock;
  uint64_t ex = 0;
  uint64_t buffers[3] = {};
  int failures = hologram_new_executor(&ex);
  const std::vector<float> ones(kElements, 1.5f);
  for (uint64_t& buffer : buffers) {
    failures += hologram_executor_allocate_buffer(ex, kElements, HOLOGRAM_FLOAT32, &buffer);
    failures += hologram_buffer_copy_from_bytes(ex, buffer, ones.data(), 4 * kElements);
  }
  std::vector<double> times;
  int64_t n = 0;
  for (int round = 0; round < rounds; ++round) {
    const Clock::time_point start = Clock::now();
    for (int call = 0; call < kCalls; ++call) {
      if (which == 0) {
        failures += hologram_vector_add_f32(ex, buffers[0], buffers[1], buffers[2], kElements);
      } else if (which == 1) {
        uint64_t made = 0;
        failures += hologram_executor_allocate_buffer(ex, kElements, HOLOGRAM_FLOAT32, &made);
        failures += hologram_buffer_cleanup(made);
      } else {
        failures += hologram_buffer_length(buffers[0], &n);
      }
    }
    const std::chrono::duration<double, std::nano> spent = Clock::now() - start;
    times.push_back(spent.count() / kCalls);
    failures += hologram_executor_synchronize(ex);
  }
  float sum[kElements] = {};
  failures += hologram_buffer_to_bytes(ex, buffers[2], sum, sizeof sum);
  for (const uint64_t buffer : buffers) failures += hologram_buffer_cleanup(buffer);
  failures += hologram_executor_cleanup(ex);
  if (failures != 0) return -1;
  if (which == 0 && sum[kElements - 1] != 3.0f) return -2;
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds / 2)];
}
