// SPDX-License-Identifier: MIT
// What one elementwise op costs a C++ program: the append alone, with a new result, and run.
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

enum Which { kAppend = 0, kWithResult = 1, kRun = 2 };

// Every op has operands of its own: of equal ops on equal operands one would be computed.
struct Op {
  hologram::BufferRef x;
  hologram::BufferRef y;
  hologram::BufferRef result;
  float sum = 0.0f;
};

hologram::BufferRef filled(hologram::Device& device, float value) {
  auto buffer = hologram::BufferRef::adopt(hologram::allocate_buffer(device, kBytes));
  std::fill_n(buffer->data_as<float>(), kElements, value);
  return buffer;
}

bool is_right(const Op& op) {
  const float* const found = op.result->data_as<float>();
  return std::all_of(found, found + kElements, [&](float value) { return value == op.sum; });
}

}  // namespace

// Records x + y for each of the ops. Returns the median nanoseconds of one op over `rounds` rounds,
// or -1 where the device does not record, -2 for a wrong sum; every element of every result is
// looked at in each round. With `which` 0 an op writes memory that is there, else it makes its
// result. Running and looking is within the clock with `which` 2, and outside with the others.
extern "C" double hologram_bench_record(int which, int rounds) {
  using Clock = std::chrono::steady_clock;
  hologram::Device& device = hologram::device(hologram::BackendType::kCpu);
  std::vector<Op> ops(kOps);
  for (int i = 0; i < kOps; ++i) {
    const float x = 1.5f + static_cast<float>(i);
    const float y = 2.0f * static_cast<float>(i);
    ops[i] = {filled(device, x), filled(device, y), filled(device, 0.0f), x + y};
  }
  hologram::flush(device);
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    for (Op& op : ops) {
      if (which != kAppend) {
        op.result.reset();
      } else {
        std::fill_n(op.result->data_as<float>(), kElements, 0.0f);
      }
    }
    bool right = true;
    const auto run_and_look = [&] {
      hologram::flush(device);
      for (const Op& op : ops) right = right && is_right(op);
    };
    const Clock::time_point start = Clock::now();
    for (Op& op : ops) {
      if (which != kAppend) {
        op.result = hologram::BufferRef::adopt(hologram::allocate_deferred(device, kBytes));
      }
      const hologram::RecordOperand operands[] = {{op.result.get()}, {op.x.get()}, {op.y.get()}};
      if (!hologram::record_flat(hologram::OpId::add, hologram::Dtype::kFloat32, operands, 2,
                                 kElements)) {
        return -1;
      }
    }
    if (which == kRun) run_and_look();
    const std::chrono::duration<double, std::nano> spent = Clock::now() - start;
    times.push_back(spent.count() / kOps);
    if (which != kRun) run_and_look();
    if (!right) return -2;
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[rounds / 2];
}
