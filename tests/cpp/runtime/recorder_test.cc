// SPDX-License-Identifier: MIT
// Deferred buffers and the recorder: what is recorded, when it runs, and what it leaves behind.
#include "hologram/recorder.h"

#include <numeric>
#include <random>

#include "hologram/executor.h"
#include "src/runtime/recording/recorder.h"
#include "tests/cpp/runtime/null_device.h"
#include "tests/cpp/runtime/recording_device.h"

namespace hologram {
namespace {

TEST_F(RecorderTest, DeferredBuffersCostNoMemoryUntilTheyAreNeeded) {
  const MemoryStats before = memory_stats();
  BufferRef b = deferred(1 << 18);
  EXPECT_EQ(b->data(), nullptr);
  EXPECT_EQ(b->nbytes(), size_t{1} << 20);
  EXPECT_EQ(b->capacity(), 0u);
  EXPECT_EQ(b->pool(), PoolKind::kDeferred);
  EXPECT_EQ(b->class_index(), -1);
  EXPECT_EQ(b->use_count(), 1u);
  EXPECT_TRUE(is_pending(*b));
  EXPECT_EQ(memory_stats().allocated_bytes.current, before.allocated_bytes.current);
  EXPECT_EQ(memory_stats().active_blocks.current, before.active_blocks.current);

  materialize(*b);
  EXPECT_FALSE(is_pending(*b));
  ASSERT_NE(b->data(), nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b->data()) % 64, 0u);
  EXPECT_GE(b->capacity(), b->nbytes());
  EXPECT_EQ(memory_stats().allocated_bytes.current,
            before.allocated_bytes.current + static_cast<int64_t>(b->capacity()));
  EXPECT_EQ(memory_stats().requested_bytes.current, before.requested_bytes.current + (1 << 20));
  EXPECT_EQ(memory_stats().active_blocks.current, before.active_blocks.current + 1);
  void* const data = b->data();
  materialize(*b);
  EXPECT_EQ(b->data(), data);
  b.reset();
  EXPECT_EQ(memory_stats().allocated_bytes.current, before.allocated_bytes.current);
  EXPECT_EQ(memory_stats().active_blocks.current, before.active_blocks.current);
  // The header that was just given back carries nothing over.
  b = deferred(4);
  EXPECT_EQ(b->data(), nullptr);
  EXPECT_EQ(b->capacity(), 0u);
  EXPECT_EQ(allocate(0)->data(), nullptr);
}

TEST_F(RecorderTest, DeferredBuffersOfNothingAndOfTooMuch) {
  const BufferRef empty = deferred(0);
  EXPECT_FALSE(is_pending(*empty));
  materialize(*empty);
  EXPECT_EQ(empty->data(), nullptr);
  EXPECT_ERROR(allocate_deferred(scalar(), SIZE_MAX), ErrorKind::kOutOfMemory,
               "out of memory: tried to allocate ");
  EXPECT_ERROR(allocate_deferred(scalar(), memory_limit() + 1), ErrorKind::kOutOfMemory,
               "out of memory: tried to allocate ");
}

// What the program was not told is unknown to it, done or not: what it records then depends on
// nothing but its calls.
TEST_F(RecorderTest, ABufferIsSettledOnceItsCircuitWasObserved) {
  const BufferRef a = filled(5, 2), b = deferred(5), c = deferred(5);
  EXPECT_TRUE(is_settled(*a));
  EXPECT_TRUE(is_writable_at_call(*a));
  EXPECT_FALSE(is_settled(*b)) << "no memory yet";
  EXPECT_TRUE(is_writable_at_call(*b)) << "which it can get";
  EXPECT_FALSE(is_readable_at_call(*b));
  ASSERT_TRUE(record(OpId::add, memory(b), memory(a), memory(a), 5));
  EXPECT_TRUE(is_readable_at_call(*a));
  EXPECT_FALSE(is_writable_at_call(*a)) << "recorded work reads it";
  EXPECT_FALSE(is_writable_at_call(*b));
  const uint64_t first = b->recorded_epoch();
  // Run by a thread that does not tell: as the worker does, or as bounds do.
  internal::Recorder::of(scalar()).flush(internal::Why::kPassing);
  EXPECT_EQ(scalar().done_epoch(), first);
  EXPECT_LT(scalar().observed_epoch(), first);
  EXPECT_FALSE(is_pending(*b));
  EXPECT_FALSE(is_settled(*b));
  EXPECT_FALSE(is_readable_at_call(*b));
  EXPECT_EQ(b->recorded_epoch(), first) << "kept when the circuit is done";
  ASSERT_TRUE(record(OpId::add, memory(c), memory(a), memory(a), 5));
  materialize(*b);
  EXPECT_EQ(scalar().observed_epoch(), first);
  EXPECT_TRUE(is_settled(*b));
  EXPECT_FALSE(is_settled(*c));
  EXPECT_FALSE(is_settled(*a));
  flush(scalar());
  EXPECT_EQ(scalar().observed_epoch(), scalar().done_epoch());
  for (const BufferRef& x : {a, b, c}) EXPECT_TRUE(is_writable_at_call(*x));
  EXPECT_EQ(b->use_count(), 1u) << "the recorder holds none that is done";
}

TEST_F(RecorderTest, WhatIsOnlyReadByRecordedWorkIsReadable) {
  const BufferRef a = filled(5, 2), b = deferred(5), c = deferred(5);
  EXPECT_TRUE(is_readable(*a));
  EXPECT_FALSE(is_readable(*b)) << "no memory yet";
  ASSERT_TRUE(record(OpId::add, memory(b), memory(a), memory(a), 5));
  EXPECT_TRUE(is_pending(*a));
  EXPECT_TRUE(is_readable(*a));
  EXPECT_FALSE(is_readable(*b));
  ASSERT_TRUE(record(OpId::mul, memory(a), memory(a), memory(b), 5));
  EXPECT_FALSE(is_readable(*a)) << "read first, then written";
  flush(scalar());
  // Written by a circuit that has run, read by one that has not.
  ASSERT_TRUE(record(OpId::mul, memory(c), memory(a), memory(b), 5));
  EXPECT_TRUE(is_pending(*a));
  for (const BufferRef& x : {a, b}) EXPECT_TRUE(is_readable(*x));
  EXPECT_FALSE(is_readable(*c));
  EXPECT_EQ(floats(c), std::vector<float>(5, 32));
  EXPECT_TRUE(is_readable(*c));
}

TEST_F(RecorderTest, OpsWaitUntilTheyAreRead) {
  const BufferRef a = filled(5, 2), b = filled(5, 3), c = deferred(5), d = deferred(5);
  ASSERT_TRUE(record(OpId::add, memory(c), memory(a), memory(b), 5));
  ASSERT_TRUE(record(OpId::mul, memory(d), memory(c), memory(a), 5));
  for (const BufferRef& x : {a, b, c, d}) {
    EXPECT_TRUE(is_pending(*x));
    EXPECT_EQ(x->use_count(), 3u);  // this test's two, and one of the circuit, however often named
  }
  EXPECT_EQ(recorder_stats(scalar()).circuits, 0u);
  EXPECT_EQ(floats(d), std::vector<float>(5, 10));
  for (const BufferRef& x : {a, b, c, d}) {
    EXPECT_FALSE(is_pending(*x));
    EXPECT_EQ(x->use_count(), 2u);
  }
  EXPECT_EQ(floats(c), std::vector<float>(5, 5));
  const RecorderStats stats = recorder_stats(scalar());
  EXPECT_EQ(stats.ops_recorded, 2u);
  EXPECT_EQ(stats.circuits, 1u);
  EXPECT_EQ(stats.kernels, 1u);
  EXPECT_EQ(stats.bytes_moved, 4u * 20);
  EXPECT_EQ(stats.bytes_unfused, 6u * 20);
}

TEST_F(RecorderTest, ValuesThatNoCodeCanSeeGetNoMemory) {
  const BufferRef a = filled(1000, 1), out = deferred(1000);
  const int64_t before = memory_stats().allocated_bytes.total;
  {
    const BufferRef t = deferred(1000), u = deferred(1000), unused = deferred(1000);
    ASSERT_TRUE(record(OpId::add, memory(t), memory(a), number(1), 1000));
    ASSERT_TRUE(record(OpId::mul, memory(u), memory(t), memory(t), 1000));
    ASSERT_TRUE(record(OpId::sub, memory(unused), memory(u), memory(a), 1000));
    ASSERT_TRUE(record(OpId::sub, memory(out), memory(u), number(0.5f), 1000));
  }
  flush(scalar());
  EXPECT_EQ(memory_stats().allocated_bytes.total - before,
            static_cast<int64_t>(allocation_size(4000)));
  EXPECT_EQ(floats(out), std::vector<float>(1000, 3.5f));
}

TEST_F(RecorderTest, WhatWasWrittenBeforeACircuitIsKept) {
  const BufferRef one = filled(8, 1), b = deferred(8), c = deferred(8);
  // The first half in one circuit, the second in another: the first must survive.
  ASSERT_TRUE(record(OpId::add, memory(b), memory(one), number(1), 4));
  flush(scalar());
  ASSERT_TRUE(record(OpId::add, memory(b, 4), memory(one), number(2), 4));
  ASSERT_TRUE(record(OpId::mul, memory(c), memory(b), number(10), 8));
  EXPECT_EQ(floats(c), (std::vector<float>{20, 20, 20, 20, 30, 30, 30, 30}));
  // The same for what was written by hand, before anything was recorded on the buffer.
  const BufferRef d = deferred(4), e = deferred(4);
  materialize(*d);
  std::fill_n(d->data_as<float>(), 4, 7.f);
  ASSERT_TRUE(record(OpId::add, memory(d, 1), memory(one), number(4), 2));
  ASSERT_TRUE(record(OpId::add, memory(e), memory(d), number(0), 4));
  EXPECT_EQ(floats(e), (std::vector<float>{7, 5, 5, 7}));
}

TEST_F(RecorderTest, LoopsAreBroughtIntoOneForm) {
  const BufferRef a = filled(12, 3);
  const RecordOperand fill[] = {memory(a), number(0)};
  const auto plans_made = [] { return recorder_stats(scalar()).plan_misses; };
  const auto run = [&](int ndim, std::vector<int64_t> shape, std::vector<int64_t> strides) {
    // Two ops, which no other test records together: their plan is not there yet.
    const BufferRef product = deferred(12), out = deferred(12);
    const int64_t* steps[] = {strides.data(), strides.data(), strides.data()};
    const RecordOperand first[] = {memory(product), memory(a), number(2)};
    const RecordOperand second[] = {memory(out), memory(product), number(1)};
    ASSERT_TRUE(record_strided(OpId::mul, Dtype::kFloat32, first, 2, ndim, shape.data(), steps));
    ASSERT_TRUE(record_strided(OpId::sub, Dtype::kFloat32, second, 2, ndim, shape.data(), steps));
    EXPECT_EQ(floats(out), std::vector<float>(12, 5));
  };
  run(1, {12}, {1});
  EXPECT_EQ(plans_made(), 1u);
  run(2, {3, 4}, {4, 1});
  run(2, {4, 3}, {1, 4});
  run(5, {1, 2, 1, 2, 3}, {99, 1, 0, 2, 4});
  run(12, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 12, 1}, std::vector<int64_t>(12, 1));
  EXPECT_EQ(plans_made(), 1u) << "all of these are twelve elements in a row";
  EXPECT_EQ(recorder_stats(scalar()).plan_hits, 4u);
  // The same numbers through record_flat, and a single element with no dimensions at all.
  const BufferRef product = deferred(12), out = deferred(12);
  ASSERT_TRUE(record(OpId::mul, memory(product), memory(a), number(2), 12));
  ASSERT_TRUE(record(OpId::sub, memory(out), memory(product), number(1), 12));
  flush(scalar());
  EXPECT_EQ(plans_made(), 1u);
  const int64_t* none[] = {nullptr, nullptr};
  EXPECT_TRUE(record_strided(OpId::neg, Dtype::kFloat32, fill, 1, 0, nullptr, none));
  EXPECT_EQ(floats(a)[0], 0);
}

TEST_F(RecorderTest, RandomStridedCallsComputeWhatPlainLoopsDo) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int ndim = static_cast<int>(random() % 5);
    std::vector<int64_t> shape, order(static_cast<size_t>(ndim));
    for (int d = 0; d < ndim; ++d) shape.push_back(1 + random() % 4);
    int64_t n = 1;
    for (const int64_t s : shape) n *= s;
    // Each operand lies in an order of its own; inputs repeat some dimensions, one goes backwards.
    std::vector<int64_t> strides[3];
    int64_t first[3] = {0, 0, 0}, extent[3] = {1, 1, 1};
    for (int k = 0; k < 3; ++k) {
      strides[k].assign(static_cast<size_t>(ndim), 0);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      for (const int64_t d : order) {
        if (k > 0 && random() % 4 == 0) continue;
        const auto dim = static_cast<size_t>(d);
        strides[k][dim] = extent[k];
        extent[k] *= shape[dim];
        if (k == 1 && random() % 3 == 0) {
          first[k] += strides[k][dim] * (shape[dim] - 1);
          strides[k][dim] = -strides[k][dim];
        }
      }
    }
    const BufferRef a = filled(extent[1], 0), b = filled(extent[2], 0), out = deferred(n);
    for (int64_t i = 0; i < extent[1]; ++i) a->data_as<float>()[i] = static_cast<float>(i + 1);
    for (int64_t i = 0; i < extent[2]; ++i) b->data_as<float>()[i] = static_cast<float>(100 * i);
    std::vector<float> expected(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      int64_t at[3] = {first[0], first[1], first[2]}, rest = i;
      for (int d = ndim - 1; d >= 0; --d) {
        const auto dim = static_cast<size_t>(d);
        for (int k = 0; k < 3; ++k) at[k] += rest % shape[dim] * strides[k][dim];
        rest /= shape[dim];
      }
      expected[static_cast<size_t>(at[0])] =
          a->data_as<float>()[at[1]] - b->data_as<float>()[at[2]];
    }
    const RecordOperand operands[] = {memory(out), memory(a, first[1]), memory(b, first[2])};
    const int64_t* steps[] = {strides[0].data(), strides[1].data(), strides[2].data()};
    ASSERT_TRUE(record_strided(OpId::sub, Dtype::kFloat32, operands, 2, ndim, shape.data(), steps));
    ASSERT_EQ(floats(out), expected) << "round " << round;
  }
}

TEST_F(RecorderTest, CopiesConvertAndFill) {
  const BufferRef out = deferred(6), from = filled(3, 4);
  const int64_t shape[] = {2, 3}, dense[] = {3, 1}, repeated[] = {0, 1};
  ASSERT_TRUE(record_copy(memory(out), number(1.5f), 2, shape, dense, dense));
  EXPECT_EQ(floats(out), std::vector<float>(6, 1.5f));
  from->data_as<float>()[1] = 5;
  ASSERT_TRUE(record_copy(memory(out), memory(from), 2, shape, dense, repeated));
  EXPECT_EQ(floats(out), (std::vector<float>{4, 5, 4, 4, 5, 4}));
}

TEST_F(RecorderTest, WhatCannotBeRecordedIsLeftToTheCaller) {
  const BufferRef a = filled(4, 1), out = deferred(4);
  const auto add = [&](const BufferRef& x) {
    return record(OpId::add, memory(out), memory(x), number(1), 4);
  };
  EXPECT_FALSE(record(OpId::add, number(1), memory(a), number(1), 4));
  const BufferRef elsewhere = filled(4, 1, cpu());
  EXPECT_FALSE(add(elsewhere));
  RecordOperand complex = memory(a);
  complex.dtype = Dtype::kComplex64;
  EXPECT_FALSE(record(OpId::add, memory(out), complex, number(1), 4));
  // Nine dimensions that cannot be merged, since each has a gap to the next.
  int64_t shape[9], strides[9], step = 1;
  for (int d = 8; d >= 0; --d) {
    shape[d] = 2;
    strides[d] = step;
    step *= 3;
  }
  const BufferRef wide = filled(step, 0);
  const RecordOperand operands[] = {memory(wide), memory(wide)};
  const int64_t* steps[] = {strides, strides};
  EXPECT_FALSE(record_strided(OpId::neg, Dtype::kFloat32, operands, 1, 9, shape, steps));
  EXPECT_TRUE(record_strided(OpId::neg, Dtype::kFloat32, operands, 1, 8, shape, steps));
  // Rows longer than the device says, and folds of nothing.
  constexpr int64_t kRow = ScalarDevice::kLimits.row_bytes / int64_t{sizeof(float)};
  EXPECT_FALSE(record_reduction(Reduction::sum, memory(out), memory(wide), 1, kRow + 1));
  EXPECT_FALSE(record_reduction(Reduction::sum, memory(out), memory(wide), 4, 0));
  EXPECT_TRUE(record_reduction(Reduction::sum, memory(out), memory(wide), 0, 100));
  flush(scalar());
  EXPECT_EQ(recorder_stats(scalar()).ops_recorded, 1u);
  EXPECT_TRUE(record(OpId::add, memory(out), memory(a), number(1), 0)) << "nothing to do";
  EXPECT_EQ(recorder_stats(scalar()).ops_recorded, 1u);

  mark_exported(*a);
  EXPECT_FALSE(add(a));
  EXPECT_FALSE(record(OpId::add, memory(a), memory(out), number(1), 4));
  EXPECT_EQ(recorder_stats(scalar()).ops_recorded, 1u);
  set_deferring(false);
  EXPECT_FALSE(is_deferring());
  EXPECT_FALSE(add(filled(4, 1)));
  set_deferring(true);
  EXPECT_TRUE(add(filled(4, 1)));
}

TEST_F(RecorderTest, ExportOutlivesCircuitsButNotTheBuffer) {
  Buffer* header;
  {
    const BufferRef a = deferred(4), out = deferred(4);
    ASSERT_TRUE(record(OpId::add, memory(a), number(1), number(2), 4));
    mark_exported(*a);
    EXPECT_TRUE(is_pending(*a)) << "what was recorded before still waits";
    EXPECT_EQ(floats(a), std::vector<float>(4, 3));
    EXPECT_FALSE(record(OpId::add, memory(out), memory(a), number(2), 4));
    header = a.get();
  }
  std::vector<BufferRef> headers;
  while (headers.size() < 2000 && (headers.empty() || headers.back().get() != header)) {
    headers.push_back(deferred(4));
  }
  ASSERT_EQ(headers.back().get(), header);
  EXPECT_TRUE(record(OpId::add, memory(headers.back()), number(1), number(2), 4));
}

TEST_F(RecorderTest, OpsAreRecordedAgainOnceEveryExportHasEnded) {
  const BufferRef a = filled(4, 1), out = deferred(4);
  const auto records = [&] { return record(OpId::add, memory(out), memory(a), number(2), 4); };
  ExportMark first(a);
  {
    ExportMark second(a);
    EXPECT_EQ(a->use_count(), 3u);
    ExportMark moved(std::move(second));
    first = std::move(moved);  // ends the mark that it was when `moved` goes
    EXPECT_FALSE(records());
  }
  EXPECT_EQ(a->use_count(), 2u);
  EXPECT_FALSE(records()) << "one of two has ended";
  first = ExportMark();
  EXPECT_EQ(a->use_count(), 1u);
  EXPECT_TRUE(records());

  // Without a mark to end, and with one that is never ended.
  unmark_exported(*a);
  EXPECT_TRUE(records());
  mark_exported(*a);
  { const ExportMark mark(a); }
  EXPECT_FALSE(records());
  { const ExportMark nothing{BufferRef()}; }
}

TEST_F(RecorderTest, MarksThatThreadsEndAreAllCounted) {
  const BufferRef a = filled(4, 1), out = deferred(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) const ExportMark one(a), two(a);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(record(OpId::add, memory(out), memory(a), number(2), 4));
  const ExportMark last(a);
  EXPECT_FALSE(record(OpId::add, memory(out), memory(a), number(2), 4));
}

TEST_F(RecorderTest, TurningDeferringOffRunsWhatIsRecorded) {
  const BufferRef a = deferred(4);
  ASSERT_TRUE(record(OpId::add, memory(a), number(1), number(2), 4));
  set_deferring(false);
  EXPECT_FALSE(is_pending(*a));
  EXPECT_EQ(a->data_as<float>()[3], 3);
}

TEST_F(RecorderTest, StreamsAndEventsSeeWhatWasCalledBefore) {
  Stream& stream = scalar().next_pool_stream();
  const auto pending = [] {
    BufferRef b = deferred(4);
    EXPECT_TRUE(record(OpId::add, memory(b), number(1), number(2), 4));
    EXPECT_TRUE(is_pending(*b));
    return b;
  };
  BufferRef b = pending();
  stream.submit([&] { EXPECT_EQ(b->data_as<float>()[0], 3); });
  b = pending();
  EXPECT_TRUE(stream.query());
  EXPECT_FALSE(is_pending(*b));
  b = pending();
  stream.synchronize();
  EXPECT_FALSE(is_pending(*b));
  b = pending();
  scalar().synchronize();
  EXPECT_FALSE(is_pending(*b));
  b = pending();
  Event event;
  event.record(stream);
  EXPECT_FALSE(is_pending(*b));
  EXPECT_TRUE(event.query());
  b = pending();
  EXPECT_TRUE(event.query()) << "the mark is before what was recorded since";
  EXPECT_TRUE(is_pending(*b));
  Executor::on_stream(stream)->synchronize();
  EXPECT_FALSE(is_pending(*b));
  EXPECT_EQ(stream.submitted(), stream.completed());
}

TEST_F(RecorderTest, PlansKeepToTheLimitsOfTheirDevice) {
  static constexpr circuit::PlanLimits kTwo{.max_instrs = 2};
  for (const circuit::PlanLimits* limits : {&NullDevice::kLimits, &kTwo}) {
    auto owned = std::make_unique<NullDevice>(*limits);
    NullDevice& null = *owned;
    register_device(std::move(owned));
    for (int run = 0; run < 2; ++run) {
      const BufferRef value = deferred(4, null);
      for (int i = 0; i < 6; ++i) {
        ASSERT_TRUE(record(OpId::add, memory(value), memory(value), number(2), 4));
      }
      flush(null);
    }
    EXPECT_EQ(null.plans_run(), 2u);
    EXPECT_EQ(null.kernels(), limits == &kTwo ? 6u : 2u);
  }
}

TEST_F(RecorderTest, DevicesKeepApart) {
  static NullDevice* null = [] {
    auto device = std::make_unique<NullDevice>();
    NullDevice* made = device.get();
    register_device(std::move(device));
    return made;
  }();
  const BufferRef here = deferred(4);
  BufferRef there = deferred(4, *null);
  ASSERT_TRUE(record(OpId::add, memory(here), number(1), number(2), 4));
  ASSERT_TRUE(record(OpId::add, memory(there), number(1), number(2), 4));
  for (int i = 0; i < 5; ++i) {  // many circuits there do not make the one here look done
    ASSERT_TRUE(record(OpId::add, memory(there), memory(there), number(2), 4));
    flush(*null);
  }
  EXPECT_FALSE(is_pending(*there));
  EXPECT_TRUE(is_pending(*here));
  EXPECT_EQ(null->plans_run(), 5u);
  EXPECT_EQ(null->kernels(), 5u);
  EXPECT_FALSE(record(OpId::add, memory(here), memory(there), number(2), 4));
  EXPECT_EQ(floats(here), std::vector<float>(4, 3));
  // A header that comes from there is not pending here, where fewer circuits have run.
  const Buffer* header = there.get();
  there.reset();
  there = deferred(4);
  ASSERT_EQ(there.get(), header);
  materialize(*there);
  EXPECT_FALSE(is_pending(*there));
}

TEST_F(RecorderTest, TheCpuRunsCircuits) {
  constexpr int64_t kRows = 40, kCols = 300, kCount = kRows * kCols;
  const BufferRef a = filled(kCount, 0, cpu()), out = deferred(kCount, cpu()),
                  sums = deferred(kRows, cpu());
  for (int64_t i = 0; i < kCount; ++i) a->data_as<float>()[i] = static_cast<float>(i % 1000);
  reset_recorder_stats(cpu());
  {
    const BufferRef t = deferred(kCount, cpu());
    ASSERT_TRUE(record(OpId::mul, memory(t), memory(a), number(2), kCount));
    ASSERT_TRUE(record(OpId::add, memory(out), memory(t), number(1), kCount));
    ASSERT_TRUE(record_reduction(Reduction::sum, memory(sums), memory(out), kRows, kCols));
  }
  EXPECT_EQ(recorder_stats(cpu()).circuits, 0u);
  cpu().synchronize();
  EXPECT_EQ(recorder_stats(cpu()).circuits, 1u);
  for (int64_t r = 0; r < kRows; ++r) {
    float sum = 0;  // exact: whole numbers below 2^24
    for (int64_t c = 0; c < kCols; ++c) {
      const int64_t i = r * kCols + c;
      ASSERT_EQ(out->data_as<float>()[i], static_cast<float>(2 * (i % 1000) + 1));
      sum += out->data_as<float>()[i];
    }
    ASSERT_EQ(sums->data_as<float>()[r], sum);
  }
}

TEST_F(RecorderTest, ADeviceThatGoesAwayDropsWhatItRecorded) {
  const int64_t before = memory_stats().active_blocks.current;
  {
    NullDevice device;
    const BufferRef out = deferred(100, device), in = filled(100, 1, device);
    ASSERT_TRUE(record(OpId::add, memory(out), memory(in), memory(in), 100));
  }
  EXPECT_EQ(memory_stats().active_blocks.current, before);
}

}  // namespace
}  // namespace hologram
