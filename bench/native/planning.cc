// SPDX-License-Identifier: MIT
// The planning time per op, for circuits whose ops depend on each other in many ways.
//
// bench/areas/planning.py compiles it against the headers of the installed package.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "hologram/buffer.h"
#include "hologram/circuit.h"
#include "hologram/device.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"

namespace {

using hologram::BufferRef;
using hologram::RecordOperand;

constexpr int64_t kElements = 16;

// Records ops into a circuit, and counts those that were taken.
class Drawing {
 public:
  explicit Drawing(hologram::Device& device) : device_(device) {}

  // Memory from outside: whatever is written there is seen.
  hologram::Buffer* memory(int64_t elements) {
    return keep(BufferRef::adopt(
        hologram::allocate_buffer(device_, static_cast<size_t>(elements) * sizeof(float))));
  }
  // A value of the circuit.
  hologram::Buffer* value(int64_t elements) {
    return keep(BufferRef::adopt(
        hologram::allocate_deferred(device_, static_cast<size_t>(elements) * sizeof(float))));
  }
  void add(hologram::Buffer* out, int64_t at, hologram::Buffer* a, hologram::Buffer* b, int64_t n) {
    const RecordOperand operands[] = {{out, 4 * at}, {a}, {b}};
    taken_ += hologram::record_flat(hologram::OpId::add, hologram::Dtype::kFloat32, operands, 2, n);
  }
  void fill(hologram::Buffer* out, int64_t at, int64_t rows, int64_t step) {
    RecordOperand number;
    number.bits = 0x40a00000;  // 5
    const int64_t shape[] = {rows}, steps[] = {step}, none[] = {0};
    taken_ += hologram::record_copy({out, 4 * at}, number, 1, shape, steps, none);
  }
  int taken() const { return taken_; }

 private:
  hologram::Buffer* keep(BufferRef buffer) {
    kept_.push_back(std::move(buffer));
    return kept_.back().get();
  }

  hologram::Device& device_;
  std::vector<BufferRef> kept_;
  int taken_ = 0;
};

void draw(Drawing& d, int shape, int ops) {
  hologram::Buffer* const x = d.memory(int64_t{4} * ops + kElements);
  hologram::Buffer* const y = d.memory(kElements);
  switch (shape) {
    case 0: {  // a chain
      hologram::Buffer* last = y;
      for (int i = 0; i + 1 < ops; ++i) {
        hologram::Buffer* const next = d.value(kElements);
        d.add(next, 0, last, y, kElements);
        last = next;
      }
      return d.add(x, 0, last, y, kElements);
    }
    case 1:  // the columns of a matrix, one after another: their extents overlap
      for (int i = 0; i < ops; ++i) d.fill(x, i, 4, ops);
      return;
    case 2:  // every op writes all of it, and a piece is read into a dead result
      for (int i = 0; i + 1 < ops; i += 2) {
        d.fill(x, 0, 2 * kElements, 1);
        d.add(d.value(kElements), 0, x, y, kElements);
      }
      return;
    default:  // one value that all read
      for (int i = 0; i < ops; ++i) d.add(x, int64_t{4} * i, y, y, 4);
  }
}

}  // namespace

// Plans circuits of `which / 4` ops (a chain, overlapping writes, dead writes, a wide fan: which %
// 4). Returns the median nanoseconds an op over `rounds` rounds, -1 where an op is not recorded.
extern "C" double hologram_bench_planning(int which, int rounds) {
  using Clock = std::chrono::steady_clock;
  hologram::Device& device = hologram::device(hologram::BackendType::kCpu);
  const int ops = which / 4;
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    Drawing drawing(device);
    hologram::Circuit circuit(device);
    circuit.record([&] { draw(drawing, which % 4, ops); });
    if (drawing.taken() < ops - 1) return -1;
    const Clock::time_point start = Clock::now();
    circuit.canonicalize();
    const std::chrono::duration<double, std::nano> spent = Clock::now() - start;
    times.push_back(spent.count() / drawing.taken());
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds / 2)];
}
