// SPDX-License-Identifier: MIT
// Calls among recorded ops: their order, what is refused, and what happens when they cannot run.
#include "hologram/call.h"

#include <stdexcept>
#include <string>

#include "hologram/call_ops.h"
#include "hologram/trace.h"
#include "src/circuit/call_kinds.h"
#include "src/runtime/recording/circuit_check.h"
#include "tests/cpp/runtime/null_device.h"
#include "tests/cpp/runtime/recording_device.h"

namespace hologram {
namespace {

int g_runs = 0;

const float* floats_of(const CallArguments& c, int k) {
  return reinterpret_cast<const float*>(c.operands[k]);
}

// out[i] = in[n - 1 - i] + number
const uint16_t kReverse = register_call({"reverse", [](const CallArguments& c) {
                                           ++g_runs;
                                           float more;
                                           std::memcpy(&more, c.numbers, sizeof more);
                                           const uint64_t n = c.attributes[0];
                                           auto* out = reinterpret_cast<float*>(c.operands[1]);
                                           for (uint64_t i = 0; i < n; ++i) {
                                             out[i] = floats_of(c, 0)[n - 1 - i] + more;
                                           }
                                         }});
// x *= y, with y of one element and optional.
const uint16_t kScale = register_call({"scale", [](const CallArguments& c) {
                                         ++g_runs;
                                         auto* x = reinterpret_cast<float*>(c.operands[0]);
                                         const float by =
                                             c.operands[1] == nullptr ? 100 : floats_of(c, 1)[0];
                                         for (uint64_t i = 0; i < c.attributes[0]; ++i) x[i] *= by;
                                       }});
const uint16_t kThrow = register_call({"broken", [](const CallArguments&) {
                                         ++g_runs;
                                         throw std::runtime_error("the call broke");
                                       }});
// Adds every operand to the first.
const uint16_t kSum = register_call({"sum_all", [](const CallArguments& c) {
                                       auto* out = reinterpret_cast<float*>(c.operands[0]);
                                       for (uint64_t k = 1; k < c.attributes[0]; ++k) {
                                         *out += *floats_of(c, static_cast<int>(k));
                                       }
                                     }});

CallOperand operand(const BufferRef& buffer, int64_t n, bool reads, bool writes, bool covers,
                    int64_t first = 0) {
  return {buffer.get(), 4 * first, 4 * n, reads, writes, covers};
}

bool reverse(const BufferRef& in, const BufferRef& out, int64_t n, float more = 0,
             int64_t first = 0) {
  const CallOperand operands[] = {operand(in, n, true, false, false, first),
                                  operand(out, n, false, true, true)};
  const auto count = static_cast<uint64_t>(n);
  uint64_t number = 0;
  std::memcpy(&number, &more, sizeof more);
  return record_call(kReverse, operands, {&count, 1}, {&number, 1}, 100);
}

bool scale(const BufferRef& x, int64_t n, const BufferRef& by) {
  const CallOperand operands[] = {operand(x, n, true, true, true),
                                  operand(by, 1, true, false, false)};
  const auto count = static_cast<uint64_t>(n);
  return record_call(kScale, operands, {&count, 1}, {}, 100);
}

BufferRef counted(int64_t n) {
  BufferRef b = filled(n, 0);
  for (int64_t i = 0; i < n; ++i) b->data_as<float>()[i] = static_cast<float>(i);
  return b;
}

class CallTest : public RecorderTest {
 protected:
  void SetUp() override {
    RecorderTest::SetUp();
    g_runs = 0;
  }
};

TEST_F(CallTest, TheyWaitAndKeepTheirPlaceAmongOps) {
  const BufferRef a = counted(4), t = deferred(4), u = deferred(4), out = deferred(4);
  ASSERT_TRUE(record(OpId::add, memory(t), memory(a), number(1), 4));
  ASSERT_TRUE(reverse(t, u, 4, 0.5f));
  ASSERT_TRUE(record(OpId::mul, memory(out), memory(u), number(2), 4));
  EXPECT_EQ(g_runs, 0);
  for (const BufferRef& b : {a, t, u, out}) EXPECT_TRUE(is_pending(*b));
  EXPECT_EQ(floats(out), (std::vector<float>{9, 7, 5, 3}));
  EXPECT_EQ(g_runs, 1);
  const RecorderStats stats = recorder_stats(scalar());
  EXPECT_EQ(stats.ops_recorded, 3u);
  EXPECT_EQ(stats.circuits, 1u);
  EXPECT_EQ(stats.kernels, 3u);
  EXPECT_EQ(stats.bytes_unfused, 3u * 2 * 16);
}

TEST_F(CallTest, WhatTheyReadMayBeWrittenOverAfterwards) {
  const BufferRef a = counted(6), out = deferred(4), all = deferred(6);
  // Reads a[2..6), of which a later op writes two and a later call all.
  ASSERT_TRUE(reverse(a, out, 4, 0, 2));
  ASSERT_TRUE(record(OpId::add, memory(a, 1), number(50), number(0), 2));
  ASSERT_TRUE(reverse(a, all, 6));
  ASSERT_TRUE(scale(a, 6, counted(1)));
  EXPECT_EQ(floats(out), (std::vector<float>{5, 4, 3, 2}));
  EXPECT_EQ(floats(all), (std::vector<float>{5, 4, 3, 50, 50, 0}));
  EXPECT_EQ(floats(a), std::vector<float>(6, 0));
  EXPECT_EQ(recorder_stats(scalar()).circuits, 1u);
}

TEST_F(CallTest, InPlaceCallsSeeEachOther) {
  const BufferRef x = filled(3, 1), two = filled(1, 2);
  ASSERT_TRUE(scale(x, 3, two));
  ASSERT_TRUE(record(OpId::add, memory(x), memory(x), number(1), 3));
  ASSERT_TRUE(scale(x, 2, two));
  ASSERT_TRUE(scale(x, 1, {})) << "without a second operand";
  EXPECT_EQ(floats(x), (std::vector<float>{600, 6, 3}));
  EXPECT_EQ(g_runs, 3);
}

TEST_F(CallTest, ThoseThatAreNotReadDoNotRun) {
  const BufferRef a = counted(4), kept = deferred(4);
  {
    const BufferRef unused = deferred(4), between = deferred(4);
    ASSERT_TRUE(reverse(a, unused, 4));
    ASSERT_TRUE(reverse(a, between, 4));
    ASSERT_TRUE(reverse(between, kept, 4));
  }
  flush(scalar());
  EXPECT_EQ(g_runs, 2);
  EXPECT_EQ(floats(kept), floats(a));
}

TEST_F(CallTest, NumbersAreNoPartOfThePlanAndAttributesAre) {
  const BufferRef a = counted(4);
  for (const float more : {1.f, 2.f, 3.f}) {
    const BufferRef out = deferred(4);
    ASSERT_TRUE(reverse(a, out, 4, more));
    EXPECT_EQ(floats(out)[3], more);
  }
  EXPECT_EQ(recorder_stats(scalar()).plan_misses, 1u);
  EXPECT_EQ(recorder_stats(scalar()).plan_hits, 2u);
  const BufferRef out = filled(4, 9);
  const CallOperand operands[] = {operand(a, 4, true, false, false),
                                  operand(out, 4, false, true, true)};
  const uint64_t three = 3, none = 0;
  ASSERT_TRUE(record_call(kReverse, operands, {&three, 1}, {&none, 1}, 100));
  EXPECT_EQ(floats(out), (std::vector<float>{2, 1, 0, 9}));
  EXPECT_EQ(recorder_stats(scalar()).plan_misses, 2u);
}

TEST_F(CallTest, AnyNumberOfOperands) {
  std::vector<BufferRef> buffers;
  std::vector<CallOperand> operands;
  for (int i = 0; i < 500; ++i) {
    buffers.push_back(filled(1, static_cast<float>(i), cpu()));
    operands.push_back(operand(buffers.back(), 1, true, i == 0, i == 0));
  }
  const uint64_t count = operands.size();
  ASSERT_TRUE(record_call(kSum, operands, {&count, 1}, {}, 100));
  EXPECT_EQ(floats(buffers[0])[0], 499 * 500 / 2);
}

TEST_F(CallTest, WhatCannotBeRecordedIsLeftToTheCaller) {
  const BufferRef a = counted(4), out = deferred(4), elsewhere = filled(4, 1, cpu());
  EXPECT_FALSE(reverse(elsewhere, out, 4));
  EXPECT_FALSE(reverse({}, {}, 4));
  EXPECT_FALSE(reverse(a, out, 0)) << "no bytes";
  mark_exported(*a);
  EXPECT_FALSE(reverse(a, out, 4));
  EXPECT_FALSE(scale(a, 4, {}));
  set_deferring(false);
  EXPECT_FALSE(reverse(counted(4), out, 4));
  set_deferring(true);
  EXPECT_EQ(recorder_stats(scalar()).ops_recorded, 0u);
  flush(scalar());
  EXPECT_EQ(g_runs, 0);

  EXPECT_ERROR(reverse(counted(4), out, 5), ErrorKind::kInvalidArgument,
               "record_call: operand 0 of reverse is bytes 0 to 20 of a buffer of 16");
  EXPECT_ERROR(reverse(counted(8), out, 4, 0, -1), ErrorKind::kInvalidArgument, "bytes -4 to 12");
  EXPECT_ERROR(record_call(4095, {}, {}, {}, 0), ErrorKind::kInvalidArgument,
               "there is no kind of call 4095; give a number that register_call returned");
}

TEST_F(CallTest, WithoutMemoryTheyStayRecorded) {
  empty_cache();
  const BufferRef a = counted(4), small = deferred(4), big = deferred(1 << 22);
  const CallOperand operands[] = {operand(a, 4, true, false, false),
                                  operand(big, 1 << 22, false, true, false)};
  const uint64_t four = 4, none = 0;
  ASSERT_TRUE(reverse(a, small, 4));
  ASSERT_TRUE(record_call(kReverse, operands, {&four, 1}, {&none, 1}, 100));
  testing::fail_os_allocations(1);
  EXPECT_ERROR(flush(scalar()), ErrorKind::kOutOfMemory, "16.00 MiB");
  EXPECT_ERROR(materialize(*small), ErrorKind::kOutOfMemory, "16.00 MiB");
  EXPECT_EQ(g_runs, 0) << "all memory is there before anything runs";
  testing::fail_os_allocations(0);
  EXPECT_EQ(floats(small), (std::vector<float>{3, 2, 1, 0}));
  EXPECT_EQ(floats(big)[0], 3);
  EXPECT_EQ(g_runs, 2);
}

TEST_F(CallTest, WhatTheyThrowReachesWhoAskedOnce) {
  const BufferRef a = counted(4), later = deferred(4);
  const CallOperand operands[] = {operand(a, 4, true, true, true)};
  ASSERT_TRUE(record_call(kThrow, operands, {}, {}, 100));
  ASSERT_TRUE(reverse(a, later, 4));
  EXPECT_THROW(flush(scalar()), std::runtime_error);
  EXPECT_FALSE(is_pending(*later)) << "done, though not as it should be";
  EXPECT_EQ(g_runs, 1);
  flush(scalar());
  scalar().synchronize();
  ASSERT_TRUE(reverse(a, later, 4));
  EXPECT_EQ(floats(later), (std::vector<float>{3, 2, 1, 0}));
}

TEST_F(CallTest, TheCpuRunsThem) {
  const BufferRef a = filled(1000, 2, cpu()), t = deferred(1000, cpu()),
                  out = deferred(1000, cpu());
  a->data_as<float>()[0] = 7;
  ASSERT_TRUE(record(OpId::add, memory(t), memory(a), number(1), 1000));
  ASSERT_TRUE(reverse(t, out, 1000));
  ASSERT_TRUE(scale(out, 1000, filled(1, 10, cpu())));
  std::vector<float> expected(1000, 30);
  expected[999] = 80;
  EXPECT_EQ(floats(out), expected);
}

TEST_F(CallTest, TheNullDeviceCountsThem) {
  NullDevice device;
  const BufferRef a = filled(4, 1, device), t = deferred(4, device), u = deferred(4, device),
                  out = deferred(4, device);
  ASSERT_TRUE(reverse(a, t, 4));
  ASSERT_TRUE(reverse(a, u, 4));
  ASSERT_TRUE(record(OpId::add, memory(out), memory(t), memory(u), 4));
  ASSERT_TRUE(record(OpId::mul, memory(out), memory(out), number(3), 4));
  flush(device);
  EXPECT_EQ(device.plans_run(), 1u);
  EXPECT_EQ(device.kernels(), 3u);
  EXPECT_EQ(device.instructions(), 4u);
  EXPECT_EQ(g_runs, 0);
}

TEST_F(CallTest, TheCheckRunsThemOnCopies) {
  const BufferRef x = counted(4), two = filled(1, 2), out = deferred(4);
  int spoil = 0;
  scalar().on_run = [&] {
    if (--spoil == 0) two->data_as<float>()[0] = 100;
  };
  const auto circuit = [&] {
    ASSERT_TRUE(scale(x, 4, two));
    ASSERT_TRUE(reverse(x, out, 4));
    flush(scalar());
  };
  internal::set_checks_circuits(true);
  circuit();
  EXPECT_EQ(g_runs, 4) << "twice on copies, twice in place";
  EXPECT_EQ(floats(out), (std::vector<float>{6, 4, 2, 0}));
  spoil = 2;
  EXPECT_ERROR(circuit(), ErrorKind::kInternal, "= scale(b0[0:16], b1[0:4])  {4}");
  internal::set_checks_circuits(false);
}

TEST_F(CallTest, PlannedCircuitsHaveAKindOfTheirOwn) {
  EXPECT_STREQ(circuit::call_name(circuit::kPlannedCall), "planned_circuit");
  for (int backend = 0; backend < kBackendCount; ++backend) {
    EXPECT_EQ(circuit::find_kernel(circuit::kPlannedCall, static_cast<BackendType>(backend)),
              nullptr);
  }
  for (const CallOp& op : call_ops()) EXPECT_NE(op.number, circuit::kPlannedCall) << op.name;
  for (const uint16_t kind : {kReverse, kScale, kThrow, kSum}) {
    EXPECT_NE(kind, circuit::kPlannedCall);
  }
  try {
    run_call(circuit::kPlannedCall, {});
    FAIL() << "no backend has a kernel for it";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotSupported);
    EXPECT_NE(std::string(error.what()).find("planned_circuit: this backend has no kernel"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(CallTest, TracesNameThem) {
  const BufferRef a = counted(4), t = deferred(4), out = deferred(4);
  const uint64_t trace = start_tracing(scalar());
  ASSERT_TRUE(reverse(a, t, 4, 1));
  ASSERT_TRUE(record(OpId::add, memory(out), memory(t), number(2), 4));
  flush(scalar());
  const auto circuits = stop_tracing(trace);
  ASSERT_EQ(circuits.size(), 1u);
  const CircuitShape& shape = *circuits[0]->shape;
  ASSERT_EQ(shape.launches.size(), 2u);
  EXPECT_EQ(shape.launches[0].name, "reverse");
  EXPECT_EQ(shape.launches[0].bytes, 32);
  EXPECT_EQ(shape.launches[1].name, "add");
  EXPECT_EQ(shape.number_dtypes, (std::vector<Dtype>{Dtype::kInt64, Dtype::kFloat32}));
  EXPECT_EQ(circuits[0]->numbers.size(), 2u);
  EXPECT_EQ(number_text(Dtype::kFloat32, circuits[0]->numbers[1]), "2.0");
  EXPECT_NE(shape.ops_text.find("%0: b1[0:16] = reverse(b0[0:16])  {4}\n%1: "), std::string::npos)
      << shape.ops_text;
  EXPECT_EQ(floats(out), (std::vector<float>{6, 5, 4, 3}));
}

}  // namespace
}  // namespace hologram
