// SPDX-License-Identifier: MIT
// What recording one elementwise op costs a C++ program: the append alone, or with a new result.
//
// bench/areas/sdk.py compiles it against the headers of the installed package.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "hologram/buffer.h"
#include "hologram/device.h"
#include "hologram/dtype.h"
#include "hologram/memory.h"
#include "hologram/op_ids.h"
#include "hologram/recorder.h"

namespace {

constexpr int64_t kElements = 16;
constexpr size_t kBytes = kElements * sizeof(float);
constexpr int kOps = 64;

hologram::BufferRef filled(hologram::Device& device, float value) {
  auto buffer = hologram::BufferRef::adopt(hologram::allocate_buffer(device, kBytes));
  std::fill_n(buffer->data_as<float>(), kElements, value);
  return buffer;
}

}  // namespace

// Records x + y again and again, and runs what was recorded outside the clock. Returns the median
// nanoseconds of one op over `rounds` rounds, or -1 where the device does not record, -2 for a
// wrong sum. With `fresh` each op makes its result; without, it writes one of a few that are there.
extern "C" double hologram_bench_record(int fresh, int rounds) {
  using Clock = std::chrono::steady_clock;
  hologram::Device& device = hologram::device(hologram::BackendType::kCpu);
  const hologram::BufferRef x = filled(device, 1.5f);
  const hologram::BufferRef y = filled(device, 2.0f);
  std::vector<hologram::BufferRef> results(kOps);
  for (hologram::BufferRef& result : results) result = filled(device, 0.0f);
  hologram::flush(device);
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    if (fresh != 0) {
      for (hologram::BufferRef& result : results) result.reset();
    }
    const Clock::time_point start = Clock::now();
    for (hologram::BufferRef& result : results) {
      if (fresh != 0) {
        result = hologram::BufferRef::adopt(hologram::allocate_deferred(device, kBytes));
      }
      const hologram::RecordOperand operands[] = {{result.get()}, {x.get()}, {y.get()}};
      if (!hologram::record_flat(hologram::OpId::add, hologram::Dtype::kFloat32, operands, 2,
                                 kElements)) {
        return -1;
      }
    }
    const std::chrono::duration<double, std::nano> spent = Clock::now() - start;
    times.push_back(spent.count() / kOps);
    hologram::flush(device);
    for (const hologram::BufferRef& result : results) {
      if (result->data_as<float>()[kElements - 1] != 3.5f) return -2;
    }
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[rounds / 2];
}
