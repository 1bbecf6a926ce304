// SPDX-License-Identifier: MIT
// Many different circuits one after another: what is kept of them stays within its bounds, and the
// last ones get code as the first ones did.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "hologram/buffer.h"
#include "hologram/cpu_info.h"
#include "hologram/recorder.h"
#include "hologram/runtime.h"
#include "src/circuit/plan_cache.h"
#include "src/cpu/jit/jit.h"
#include "src/cpu/jit/loop_graph.h"
#include "src/runtime/recording/circuit_worker.h"

namespace hologram {
namespace {

constexpr int64_t kElements = 64;
constexpr int kBits = 17;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

Device& host() {
  register_builtin_devices();
  return device(BackendType::kCpu);
}

BufferRef filled(float value) {
  BufferRef b = BufferRef::adopt(allocate_buffer(host(), kElements * sizeof(float)));
  std::fill_n(b->data_as<float>(), kElements, value);
  return b;
}

// x plus or minus y for each bit of the number: a circuit for each number.
void record_sum(int number, const BufferRef& x, const BufferRef& y, const BufferRef& out) {
  BufferRef last = x;
  for (int bit = 0; bit < kBits; ++bit) {
    BufferRef next = bit + 1 == kBits
                         ? out
                         : BufferRef::adopt(allocate_deferred(host(), kElements * sizeof(float)));
    RecordOperand operands[3];
    operands[0].buffer = next.get();
    operands[1].buffer = last.get();
    operands[2].buffer = y.get();
    const OpId op = (number >> bit & 1) != 0 ? OpId::add : OpId::sub;
    ASSERT_TRUE(record_flat(op, Dtype::kFloat32, operands, 2, kElements));
    last = std::move(next);
  }
}

// HOLOGRAM_SOAK_CIRCUITS: how many; then the bounds are those that programs have.
int soak_circuits() {
  const char* text = std::getenv("HOLOGRAM_SOAK_CIRCUITS");
  return text != nullptr ? std::atoi(text) : 0;
}

size_t resident_bytes() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

bool generates_loops() {
  cpu::jit::LoopGraph graph(current_isa());
  circuit::Instr neg;
  neg.code = static_cast<uint16_t>(OpId::neg);
  neg.arity = 1;
  const cpu::jit::Symbol x = graph.input(0, Dtype::kFloat32);
  graph.outputs = {graph.compute(neg, &x).id};
  return !(cpu::jit_compile(graph) == nullptr);
}

TEST(Soak, ManyCircuitsStayWithinTheirBounds) {
  if (!generates_loops()) GTEST_SKIP() << "this machine generates no loops";
  const int circuits = soak_circuits() > 0 ? soak_circuits() : 5000;
  const size_t code = soak_circuits() > 0 ? cpu::kMaxCodeBytes : size_t{4} << 20;
  cpu::testing::limit_code(code);
  internal::set_circuit_worker(false);
  set_deferring(true);
  const cpu::JitStats before = cpu::jit_stats();
  const uint64_t evicted_before = circuit::plan_cache().stats().evictions;
  const BufferRef x = filled(3), y = filled(0.5f), out = filled(0);
  size_t half = 0;
  for (int number = 0; number < circuits; ++number) {
    const int64_t loops = cpu::jit_stats().kernels;
    // Loops are generated at the second run.
    for (int run = 0; run < 2; ++run) {
      record_sum(number, x, y, out);
      flush(host());
      const int sum = 2 * __builtin_popcount(static_cast<unsigned>(number)) - kBits;
      ASSERT_EQ(out->data_as<float>()[kElements - 1], 3 + 0.5f * static_cast<float>(sum)) << number;
    }
    const cpu::JitStats now = cpu::jit_stats();
    ASSERT_EQ(now.kernels, loops + 1) << "circuit " << number << " runs as a loop of its own";
    ASSERT_LE(now.kept_bytes, static_cast<int64_t>(code));
    const circuit::PlanCache::Stats plans = circuit::plan_cache().stats();
    ASSERT_LE(plans.bytes, circuit::PlanCache::kMaxBytes);
    ASSERT_LE(plans.plans, circuit::PlanCache::kMaxPlans);
    if (number == circuits / 2) half = resident_bytes();
  }
  EXPECT_EQ(cpu::jit_stats().refused, before.refused);
  EXPECT_GT(cpu::jit_stats().evictions, before.evictions);
  EXPECT_GT(circuit::plan_cache().stats().evictions, evicted_before);
  // Everything had been as full for a while.
  if (!kSanitized) {
    EXPECT_LT(resident_bytes(), half + (size_t{8} << 20));
  }
  internal::set_circuit_worker(true);
  cpu::testing::limit_code(cpu::kMaxCodeBytes);
}

}  // namespace
}  // namespace hologram
