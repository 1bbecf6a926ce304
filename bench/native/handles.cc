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

enum Which { kRecord = 0, kAllocate = 1, kLength = 2, kRun = 3 };

// Every call has buffers of its own: of sums into one buffer all but the last would be dead.
struct Call {
  uint64_t buffers[3] = {};
  float sum = 0.0f;
};

}  // namespace

// The median nanoseconds of one call over `rounds` rounds: which 0 vector_add_f32, recorded (it is
// run outside the clock), 1 a buffer allocated and freed, 2 buffer_length, 3 vector_add_f32,
// recorded and run. -1 where a call fails, -2 for a wrong sum; all sums are looked at in the end.
extern "C" double hologram_bench_handles(int which, int rounds) {
  using Clock = std::chrono::steady_clock;
  uint64_t ex = 0;
  int failures = hologram_new_executor(&ex);
  std::vector<Call> calls(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    const float values[3] = {1.5f + static_cast<float>(i), 2.0f * static_cast<float>(i), 0.0f};
    calls[i].sum = values[0] + values[1];
    for (int k = 0; k < 3; ++k) {
      const std::vector<float> all(kElements, values[k]);
      uint64_t& buffer = calls[i].buffers[k];
      failures += hologram_executor_allocate_buffer(ex, kElements, HOLOGRAM_FLOAT32, &buffer);
      failures += hologram_buffer_copy_from_bytes(ex, buffer, all.data(), 4 * kElements);
    }
  }
  std::vector<double> times;
  int64_t n = 0;
  for (int round = 0; round < rounds; ++round) {
    const Clock::time_point start = Clock::now();
    for (const Call& call : calls) {
      if (which == kRecord || which == kRun) {
        failures += hologram_vector_add_f32(ex, call.buffers[0], call.buffers[1], call.buffers[2],
                                            kElements);
      } else if (which == kAllocate) {
        uint64_t made = 0;
        failures += hologram_executor_allocate_buffer(ex, kElements, HOLOGRAM_FLOAT32, &made);
        failures += hologram_buffer_cleanup(made);
      } else {
        failures += hologram_buffer_length(call.buffers[0], &n);
      }
    }
    if (which == kRun) failures += hologram_executor_synchronize(ex);
    const std::chrono::duration<double, std::nano> spent = Clock::now() - start;
    times.push_back(spent.count() / kCalls);
    failures += hologram_executor_synchronize(ex);
  }
  bool right = true;
  for (const Call& call : calls) {
    float sum[kElements] = {};
    failures += hologram_buffer_to_bytes(ex, call.buffers[2], sum, sizeof sum);
    for (const float value : sum) right = right && value == call.sum;
    for (const uint64_t buffer : call.buffers) failures += hologram_buffer_cleanup(buffer);
  }
  failures += hologram_executor_cleanup(ex);
  if (failures != 0) return -1;
  if ((which == kRecord || which == kRun) && !right) return -2;
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds / 2)];
}
