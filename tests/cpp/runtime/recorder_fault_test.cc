// SPDX-License-Identifier: MIT
// The recorder when memory is short, when running fails, and when it is called from where it runs.
#include <stdexcept>
#include <vector>

#include "src/runtime/recording/circuit_check.h"
#include "src/runtime/recording/recorder.h"
#include "tests/cpp/runtime/null_device.h"
#include "tests/cpp/runtime/recording_device.h"

namespace hologram {
namespace {

using RecorderFault = RecorderTest;

NullDevice& null() {
  static NullDevice* instance = [] {
    auto device = std::make_unique<NullDevice>();
    NullDevice* made = device.get();
    register_device(std::move(device));
    return made;
  }();
  return *instance;
}

constexpr int64_t kMiB = 1 << 20;
constexpr int kMostOps = internal::CircuitBounds::kMaxSmallOps;

TEST_F(RecorderFault, ACircuitOfTooManyOpsIsRunByItself) {
  const BufferRef b = filled(4, 0);
  for (int i = 0; i < kMostOps; ++i) {
    ASSERT_TRUE(record(OpId::add, memory(b), memory(b), number(1), 4));
  }
  EXPECT_EQ(recorder_stats(scalar()).circuits, 0u);
  ASSERT_TRUE(record(OpId::add, memory(b), memory(b), number(1), 4));
  EXPECT_EQ(recorder_stats(scalar()).circuits, 1u);
  EXPECT_TRUE(is_pending(*b));
  EXPECT_EQ(b->data_as<float>()[0], kMostOps);
  EXPECT_EQ(floats(b), std::vector<float>(4, kMostOps + 1));
}

TEST_F(RecorderFault, ACircuitTakesMoreOpsWhereTheyComputeMore) {
  // Elements of each op, and the number of ops after which the circuit is full.
  const std::pair<int64_t, int> kCases[] = {{1, 256}, {4095, 256}, {4096, 512}, {16384, 1024}};
  for (const auto& [elements, most] : kCases) {
    const BufferRef b = filled(elements, 0);
    reset_recorder_stats(scalar());
    for (int i = 0; i < most; ++i) {
      ASSERT_TRUE(record(OpId::add, memory(b), memory(b), number(1), elements));
    }
    EXPECT_EQ(recorder_stats(scalar()).circuits, 0u) << elements;
    ASSERT_TRUE(record(OpId::add, memory(b), memory(b), number(1), elements));
    EXPECT_EQ(recorder_stats(scalar()).circuits, 1u) << elements;
    EXPECT_EQ(floats(b).back(), static_cast<float>(most) + 1) << elements;
    flush(scalar());
  }
}

// Adds one to each member of a list, as one op.
void add_one_to_each(const std::vector<BufferRef>& list) {
  expect_list(scalar(), list.size());
  for (const BufferRef& b : list) {
    ASSERT_TRUE(record(OpId::add, memory(b), memory(b), number(1), 4));
  }
}

TEST_F(RecorderFault, AnOpOnAListCountsAsOne) {
  std::vector<BufferRef> list(300);
  for (BufferRef& b : list) b = filled(4, 0);
  // The second circuit is recorded where the first one was: nothing is left of its lists.
  for (int round = 1; round <= 2; ++round) {
    reset_recorder_stats(scalar());
    for (int i = 0; i < 10; ++i) add_one_to_each(list);
    EXPECT_EQ(recorder_stats(scalar()).circuits, 0u);
    EXPECT_EQ(recorder_stats(scalar()).ops_recorded, 3000u);
    for (const BufferRef& b : list)
      ASSERT_EQ(floats(b), std::vector<float>(4, static_cast<float>(round * 10)));
    EXPECT_EQ(recorder_stats(scalar()).circuits, 1u);
    const BufferRef b = filled(4, 0);
    for (int i = 0; i <= kMostOps; ++i) {
      ASSERT_TRUE(record(OpId::add, memory(b), memory(b), number(1), 4));
    }
    EXPECT_EQ(recorder_stats(scalar()).circuits, 2u);
    flush(scalar());
  }
}

TEST_F(RecorderFault, AListAfterAFullCircuitIsOfTheNext) {
  const BufferRef b = filled(4, 0);
  for (int i = 0; i < kMostOps; ++i) {
    ASSERT_TRUE(record(OpId::add, memory(b), memory(b), number(1), 4));
  }
  std::vector<BufferRef> list(600);
  for (BufferRef& member : list) member = filled(4, 0);
  for (int i = 0; i < 3; ++i) add_one_to_each(list);
  EXPECT_EQ(recorder_stats(scalar()).circuits, 1u);
  flush(scalar());
  EXPECT_EQ(recorder_stats(scalar()).circuits, 2u);
  EXPECT_EQ(floats(list[599]), std::vector<float>(4, 3));
}

TEST_F(RecorderFault, ListsAreBoundedToo) {
  std::vector<BufferRef> list(300);
  for (BufferRef& b : list) b = filled(4, 0);
  constexpr int kRounds = internal::CircuitBounds::kMaxOpsOfLists / 300;
  for (int i = 0; i < kRounds; ++i) add_one_to_each(list);
  EXPECT_EQ(recorder_stats(scalar()).circuits, 0u);
  for (int i = 0; i < 2; ++i) add_one_to_each(list);
  EXPECT_EQ(recorder_stats(scalar()).circuits, 1u);
  EXPECT_EQ(floats(list[0]), std::vector<float>(4, kRounds + 2));
}

TEST_F(RecorderFault, GivenUpMemoryIsNotKeptForLong) {
  const BufferRef sum = filled(4, 0, null());
  reset_recorder_stats(null());
  const int64_t before = memory_stats().allocated_bytes.current;
  int64_t most = 0;
  for (int i = 0; i < 400; ++i) {
    const BufferRef given_up = BufferRef::adopt(allocate_buffer(null(), 4 * kMiB));
    ASSERT_TRUE(record(OpId::add, memory(sum), memory(sum), memory(given_up), 4));
    most = std::max(most, memory_stats().allocated_bytes.current - before);
  }
  const int64_t limit = std::max(64 * kMiB, static_cast<int64_t>(memory_limit() / 64));
  EXPECT_LE(most, limit + 33 * 4 * kMiB);
  EXPECT_GE(most, limit) << "waiting is what makes fusing possible";
  EXPECT_GE(recorder_stats(null()).circuits, 1u);
  flush(null());
  EXPECT_EQ(memory_stats().allocated_bytes.current, before);
}

TEST_F(RecorderFault, ResultsThatMayWantMemoryAreBounded) {
  flush(null());
  set_memory_limit(static_cast<size_t>(memory_stats().reserved_bytes.current + 400 * kMiB));
  const int64_t share = static_cast<int64_t>(memory_limit() / 4);
  reset_recorder_stats(null());
  std::vector<BufferRef> kept;
  // Those that were given up want none here, and may be many.
  for (int64_t recorded = 0; recorded <= 3 * share; recorded += 8 * kMiB) {
    const BufferRef out = deferred(2 * kMiB, null());
    ASSERT_TRUE(record(OpId::add, memory(out), number(1), number(2), 2 * kMiB));
  }
  for (int64_t recorded = 0; recorded <= share; recorded += 8 * kMiB) {
    EXPECT_EQ(recorder_stats(null()).circuits, 0u);
    kept.push_back(deferred(2 * kMiB, null()));
    ASSERT_TRUE(record(OpId::add, memory(kept.back()), number(1), number(2), 2 * kMiB));
  }
  // They are counted each time that they may have grown by a sixteenth of the bound.
  for (int64_t recorded = 0; recorded <= share / 16 + 8 * kMiB; recorded += 8 * kMiB) {
    kept.push_back(deferred(2 * kMiB, null()));
    ASSERT_TRUE(record(OpId::add, memory(kept.back()), number(1), number(2), 2 * kMiB));
  }
  EXPECT_EQ(recorder_stats(null()).circuits, 1u);
  flush(null());
}

// What is given up but cannot be left out of memory: of many chunks one at a time.
TEST_F(RecorderFault, GivenUpResultsTakeTheMemoryOfAFewWhereTheyAreLarge) {
  constexpr int64_t kN = kMiB / 2;
  constexpr int kChunks = 20;
  const BufferRef x = filled(kN, 2), sum = filled(kN, 0);
  empty_cache();
  set_memory_limit(static_cast<size_t>(memory_stats().reserved_bytes.current + 24 * kMiB));
  for (int i = 0; i < kChunks; ++i) {
    const BufferRef a = deferred(kN), b = deferred(kN - 1), c = deferred(kN - 2);
    ASSERT_TRUE(record(OpId::mul, memory(a), memory(x), number(static_cast<float>(i)), kN));
    // Neighbours: a kernel that reads both must find them in memory.
    ASSERT_TRUE(record(OpId::add, memory(b), memory(a), memory(a, 1), kN - 1));
    ASSERT_TRUE(record(OpId::add, memory(c), memory(b), memory(b, 1), kN - 2));
    ASSERT_TRUE(record(OpId::add, memory(sum), memory(sum), memory(c), kN - 2));
  }
  EXPECT_EQ(recorder_stats(scalar()).circuits, 0u);
  const std::vector<float> values = floats(sum);
  EXPECT_EQ(recorder_stats(scalar()).circuits, 1u);
  EXPECT_EQ(values[0], 8.0f * kChunks * (kChunks - 1) / 2);
  EXPECT_EQ(values[kN - 3], values[0]);
  EXPECT_EQ(values[kN - 1], 0);
}

TEST_F(RecorderFault, ACircuitWithoutMemoryStaysRecorded) {
  empty_cache();
  const BufferRef a = filled(4, 1);
  BufferRef big = deferred(4 * kMiB), small = deferred(4);
  ASSERT_TRUE(record(OpId::add, memory(small), memory(a), number(1), 4));
  ASSERT_TRUE(record(OpId::add, memory(big), number(1), number(2), 4 * kMiB));
  testing::fail_os_allocations(1);
  EXPECT_ERROR(flush(scalar()), ErrorKind::kOutOfMemory,
               "out of memory: tried to allocate 16.00 MiB (16777216 bytes) on scalar:");
  EXPECT_TRUE(is_pending(*big));
  EXPECT_TRUE(is_pending(*small));
  EXPECT_ERROR(materialize(*small), ErrorKind::kOutOfMemory, "16.00 MiB");
  EXPECT_ERROR(scalar().synchronize(), ErrorKind::kOutOfMemory, "16.00 MiB");
  EXPECT_FALSE(scalar().default_stream().query());
  EXPECT_EQ(recorder_stats(scalar()).circuits, 0u);
  // What is recorded meanwhile waits behind it.
  const BufferRef later = deferred(4);
  ASSERT_TRUE(record(OpId::mul, memory(later), memory(small), number(5), 4));
  EXPECT_ERROR(flush(scalar()), ErrorKind::kOutOfMemory, "16.00 MiB");
  testing::fail_os_allocations(0);
  EXPECT_EQ(floats(later), std::vector<float>(4, 10));
  EXPECT_EQ(floats(small), std::vector<float>(4, 2));
  EXPECT_EQ(floats(big)[4 * kMiB - 1], 3);
  EXPECT_EQ(recorder_stats(scalar()).circuits, 2u);
  EXPECT_TRUE(scalar().default_stream().query());
}

TEST_F(RecorderFault, GivingUpTheLargeResultIsAWayOut) {
  empty_cache();
  BufferRef big = deferred(4 * kMiB), small = deferred(4);
  ASSERT_TRUE(record(OpId::add, memory(big), number(1), number(2), 4 * kMiB));
  ASSERT_TRUE(record(OpId::add, memory(small), number(1), number(1), 4));
  testing::fail_os_allocations(1);
  EXPECT_ERROR(flush(scalar()), ErrorKind::kOutOfMemory, "16.00 MiB");
  big.reset();
  EXPECT_EQ(floats(small), std::vector<float>(4, 2)) << "no code can see the large one now";
}

TEST_F(RecorderFault, AnOpThatFindsNoRoomIsNotRecorded) {
  empty_cache();
  const BufferRef big = deferred(4 * kMiB);
  for (int i = 0; i < kMostOps; ++i) {
    ASSERT_TRUE(record(OpId::add, memory(big), number(1), number(i), 4));
  }
  testing::fail_os_allocations(1);
  EXPECT_ERROR(record(OpId::add, memory(big), number(1), number(7), 4), ErrorKind::kOutOfMemory,
               "16.00 MiB");
  EXPECT_EQ(recorder_stats(scalar()).ops_recorded, uint64_t{kMostOps});
  testing::fail_os_allocations(0);
  materialize(*big);
  EXPECT_EQ(big->data_as<float>()[0], kMostOps);
}

TEST_F(RecorderFault, AllocationRunsWhatIsRecordedBeforeItFails) {
  empty_cache();
  const BufferRef sum = filled(4, 1);
  set_memory_limit(static_cast<size_t>(memory_stats().reserved_bytes.current + 80 * kMiB));
  {
    const BufferRef given_up =
        BufferRef::adopt(allocate_buffer(scalar(), static_cast<size_t>(48 * kMiB)));
    std::fill_n(given_up->data_as<float>(), 4, 2.f);
    ASSERT_TRUE(record(OpId::add, memory(sum), memory(sum), memory(given_up), 4));
  }
  const BufferRef wanted =
      BufferRef::adopt(allocate_buffer(scalar(), static_cast<size_t>(64 * kMiB)));
  EXPECT_EQ(wanted->nbytes(), static_cast<size_t>(64 * kMiB));
  EXPECT_EQ(recorder_stats(scalar()).circuits, 1u);
  EXPECT_EQ(floats(sum), std::vector<float>(4, 3));
}

TEST_F(RecorderFault, ErrorsOfRunningReachWhoAsked) {
  const BufferRef a = deferred(4), b = deferred(4);
  scalar().on_run = [] { throw std::runtime_error("the kernel broke"); };
  ASSERT_TRUE(record(OpId::add, memory(a), number(1), number(2), 4));
  EXPECT_THROW(flush(scalar()), std::runtime_error);
  EXPECT_FALSE(is_pending(*a)) << "done, though not as it should be";
  scalar().on_run = nullptr;
  scalar().synchronize();  // told once
  ASSERT_TRUE(record(OpId::add, memory(b), number(1), number(2), 4));
  EXPECT_EQ(floats(b), std::vector<float>(4, 3));
}

TEST_F(RecorderFault, ErrorsThatNoThreadWaitsForAreKept) {
  const BufferRef a = deferred(4);
  scalar().on_run = [] { throw std::runtime_error("the kernel broke"); };
  ASSERT_TRUE(record(OpId::add, memory(a), number(1), number(2), 4));
  EXPECT_TRUE(scalar().default_stream().query());
  EXPECT_TRUE(scalar().default_stream().has_error());
  EXPECT_THROW(scalar().synchronize(), std::runtime_error);
  scalar().synchronize();
}

// A circuit that was run because it was full, or complete: what it computes is no result.
TEST_F(RecorderFault, ReadsGetTheErrorOfACircuitThatNoThreadWaitedFor) {
  const BufferRef a = deferred(4), b = deferred(4), c = deferred(4);
  scalar().on_run = [] { throw std::runtime_error("the kernel broke"); };
  for (int i = 0; i <= kMostOps; ++i) {
    ASSERT_TRUE(record(OpId::add, memory(a), number(1), number(2), 4));
  }
  EXPECT_EQ(recorder_stats(scalar()).ops_recorded, uint64_t{kMostOps} + 1);
  scalar().on_run = nullptr;
  EXPECT_TRUE(is_pending(*a));
  EXPECT_THROW(floats(a), std::runtime_error);
  EXPECT_EQ(floats(a), std::vector<float>(4, 3)) << "by the op that came after the circuit";
  scalar().synchronize();  // told once

  const auto fail_and_go_on = [&] {
    scalar().on_run = [] { throw std::runtime_error("the kernel broke"); };
    ASSERT_TRUE(record(OpId::add, memory(b), number(1), number(2), 4));
    internal::Recorder::of(scalar()).hand_over();
    scalar().on_run = nullptr;
    ASSERT_TRUE(record(OpId::mul, memory(c), memory(b), number(2), 4));
    internal::Recorder::of(scalar()).hand_over();
    EXPECT_TRUE(is_pending(*b));
  };
  fail_and_go_on();
  EXPECT_THROW(materialize(*c), std::runtime_error) << "what it is made of failed";
  EXPECT_FALSE(is_pending(*c));
  fail_and_go_on();
  EXPECT_THROW(materialize(*b), std::runtime_error);
  materialize(*c);
  fail_and_go_on();
  EXPECT_THROW(scalar().synchronize(), std::runtime_error);
  scalar().synchronize();
  // A program that never looks goes on, and is told when it does.
  scalar().on_run = [] { throw std::runtime_error("the kernel broke"); };
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(record(OpId::add, memory(b), number(1), number(2), 4));
    internal::Recorder::of(scalar()).hand_over();
  }
  scalar().on_run = nullptr;
  EXPECT_THROW(scalar().synchronize(), std::runtime_error);
}

TEST_F(RecorderFault, RunningWorkMayRecordButNotWait) {
  const BufferRef a = deferred(4), b = deferred(4), kept = filled(4, 9);
  int runs = 0;
  scalar().on_run = [&] {
    if (++runs > 1) return;
    flush(scalar());
    scalar().synchronize();
    EXPECT_EQ(floats(kept), std::vector<float>(4, 9));
    EXPECT_ERROR(materialize(*a), ErrorKind::kState,
                 "materialize: called by work that the device is running, on a buffer of 16 bytes");
    EXPECT_TRUE(record(OpId::mul, memory(b), memory(a), number(2), 4));
    EXPECT_ERROR(materialize(*b), ErrorKind::kState, "called by work that the device is running");
  };
  ASSERT_TRUE(record(OpId::add, memory(a), number(1), number(2), 4));
  flush(scalar());
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(is_pending(*b)) << "a flush runs what was recorded when it began";
  EXPECT_EQ(floats(b), std::vector<float>(4, 6));
}

TEST_F(RecorderFault, TheCheckComparesWithTheOpsOneByOne) {
  const BufferRef a = filled(4, 1), b = filled(4, 2), out = deferred(4);
  int runs = 0, spoil = 0;
  scalar().on_run = [&] {
    if (++runs == spoil) a->data_as<float>()[2] = 100;
  };
  const auto circuit = [&] {
    BufferRef t = deferred(4);
    ASSERT_TRUE(record(OpId::add, memory(t), memory(a), number(1), 4));
    ASSERT_TRUE(record(OpId::mul, memory(out), memory(t), memory(b), 4));
    t.reset();
    ASSERT_TRUE(record(OpId::add, memory(b), memory(out), number(1), 4));
    flush(scalar());
  };
  internal::set_checks_circuits(true);
  circuit();
  EXPECT_EQ(runs, 3 + 1) << "each record on copies, then all in place";
  EXPECT_EQ(floats(out), std::vector<float>(4, 4));
  EXPECT_EQ(floats(b), std::vector<float>(4, 5));
  spoil = 8;
  EXPECT_ERROR(circuit(), ErrorKind::kInternal,
               "recorder check: the circuit and its records one by one differ in slot 1 from byte "
               "10 of 16 on; "
               "the tape:\n%0: b0:float32 = add(b1:float32, #0=1)");
  internal::set_checks_circuits(false);
  circuit();
  EXPECT_EQ(runs, 9);
}

// The check runs what the planner leaves out as well, each record by itself and in order.
TEST_F(RecorderFault, TheCheckAsksThePlannerForNothing) {
  class Watching final : public Device {
   public:
    Watching() : Device(BackendType::kCpu, /*host_memory=*/true, &ScalarDevice::kLimits) {}
    std::string name() const override { return "watching"; }
    DeviceProperties properties() const override { return {}; }
    void* allocate_raw(size_t) override { return nullptr; }
    void free_raw(void*, size_t) noexcept override {}
    SystemMemory memory_info() const override { return {}; }
    void copy_from_host(Stream&, void*, const void*, size_t) override {}
    void copy_to_host(Stream&, void*, const void*, size_t) override {}
    void copy_within(Stream&, void*, const void*, size_t) override {}
    void run_plan(circuit::Plan& plan, const circuit::Bindings& bindings, int) override {
      ASSERT_EQ(plan.kernels.size(), 1u);
      ASSERT_FALSE(plan.kernels[0].instrs.empty());
      records.push_back(plan.kernels[0].instrs.back().record);
      scalar().run_plan(plan, bindings, 1);
    }
    std::vector<int> records;
  } device;
  circuit::Tape tape;
  const auto add = [&](uint32_t out, uint32_t a, uint32_t b) {
    circuit::TapeOperand operands[3];
    operands[0].slot = out, operands[1].slot = a, operands[2].slot = b;
    tape.append_flat(static_cast<uint16_t>(OpId::add), Dtype::kFloat32, 2, operands, nullptr, 4);
  };
  add(1, 0, 0);  // written over: not needed
  add(1, 0, 0);
  add(2, 1, 0);  // dead
  add(3, 0, 0);  // equal to what is there, and written over
  add(3, 3, 1);
  const std::vector<uint8_t> states = {circuit::kSlotLive, circuit::kSlotLive, 0,
                                       circuit::kSlotLive};
  std::vector<std::vector<float>> memory(4, std::vector<float>{1, 2, 3, 4});
  std::vector<char*> bound;
  for (auto& values : memory) bound.push_back(reinterpret_cast<char*>(values.data()));
  const internal::CircuitCheck check(device, tape.words(), states, {16, 16, 16, 16}, bound,
                                     tape.immediates().data());
  EXPECT_EQ(device.records, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(memory[3], (std::vector<float>{1, 2, 3, 4})) << "it works on copies";
  const auto plan = circuit::make_plan(tape.words(), states);
  EXPECT_EQ(plan->stats.dead, 3);
  memory[1] = {2, 4, 6, 8};
  memory[3] = {4, 8, 12, 16};
  memory[2] = {-1, -1, -1, -1};  // not read
  check.compare(*plan, bound);
  memory[3][3] = 17;
  EXPECT_ERROR(check.compare(*plan, bound), ErrorKind::kInternal, "differ in slot 3 from byte 14");
}

TEST_F(RecorderFault, TheCheckTakesOneNaNForAnother) {
  const uint32_t nans[] = {0x7fc00000, 0xffc00001, 0x7f812345, 0xff800001};
  const auto check = [&](uint32_t alone, uint32_t fused) {
    const BufferRef a = filled(4, 1), out = deferred(4);
    int runs = 0;
    scalar().on_run = [&] {
      const uint32_t bits = ++runs == 1 ? alone : fused;
      std::memcpy(a->data_as<float>() + 2, &bits, sizeof bits);
    };
    // Negation moves the bits of a NaN.
    const RecordOperand operands[] = {memory(out), memory(a)};
    EXPECT_TRUE(record_flat(OpId::neg, Dtype::kFloat32, operands, 1, 4));
    std::memcpy(a->data_as<float>() + 2, &alone, sizeof alone);
    flush(scalar());
    EXPECT_EQ(runs, 2);
  };
  internal::set_checks_circuits(true);
  for (const uint32_t alone : nans) {
    for (const uint32_t fused : nans) check(alone, fused);
    // An infinity, a number, and a NaN of bfloat16 are no NaNs of float32.
    for (const uint32_t other : {0x7f800000u, 0x3f800000u, 0x00007fc0u}) {
      EXPECT_ERROR(check(alone, other), ErrorKind::kInternal, "differ in slot 0 from byte");
      EXPECT_ERROR(check(other, alone), ErrorKind::kInternal, "differ in slot 0 from byte");
    }
  }
  internal::set_checks_circuits(false);
  scalar().on_run = nullptr;
}

TEST_F(RecorderFault, DeletersOfForeignMemoryMayDoAsTheyLike) {
  struct Context {
    float data[4] = {-5, -5, -5, -5};
    BufferRef other = filled(4, 0);
    BufferRef out = deferred(4);
    bool called = false;
  } context;
  {
    const BufferRef foreign = BufferRef::adopt(wrap_buffer(
        scalar(), context.data, sizeof context.data,
        [](void* pointer) {
          auto& c = *static_cast<Context*>(pointer);
          c.called = true;
          EXPECT_TRUE(record(OpId::add, memory(c.out), memory(c.other), number(1), 4));
          flush(scalar());
          EXPECT_EQ(floats(c.out), std::vector<float>(4, 6));
        },
        &context));
    const RecordOperand operands[] = {memory(context.other), memory(foreign)};
    ASSERT_TRUE(record_flat(OpId::neg, Dtype::kFloat32, operands, 1, 4));
  }
  EXPECT_FALSE(context.called) << "the circuit still reads it";
  flush(scalar());
  EXPECT_TRUE(context.called);
}

TEST_F(RecorderFault, DevicesThatRunNoPlansSaySo) {
  class Plain final : public Device {
   public:
    Plain() : Device(BackendType::kMetal, /*host_memory=*/true) {}
    std::string name() const override { return "plain"; }
    DeviceProperties properties() const override { return {}; }
    void* allocate_raw(size_t) override { return nullptr; }
    void free_raw(void*, size_t) noexcept override {}
    SystemMemory memory_info() const override { return {}; }
    void copy_from_host(Stream&, void*, const void*, size_t) override {}
    void copy_to_host(Stream&, void*, const void*, size_t) override {}
    void copy_within(Stream&, void*, const void*, size_t) override {}
  } device;
  circuit::Plan plan;
  EXPECT_ERROR(device.run_plan(plan, {}, 0), ErrorKind::kNotSupported,
               "run_plan: device plain:-1 runs no plans");
  const BufferRef b = deferred(4, device);
  EXPECT_FALSE(record(OpId::add, memory(b), number(1), number(2), 4));
  materialize(*b);
  EXPECT_NE(b->data(), nullptr);
}

}  // namespace
}  // namespace hologram
