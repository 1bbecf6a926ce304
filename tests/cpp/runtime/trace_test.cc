// SPDX-License-Identifier: MIT
// Traces of circuits and the observer of launches: what is told, in which order, and to whom.
#include "hologram/trace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <thread>

#include "tests/cpp/runtime/recording_device.h"

namespace hologram {
namespace {

using Circuits = std::vector<std::shared_ptr<const CircuitTrace>>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class TraceTest : public RecorderTest {
 protected:
  void TearDown() override {
    set_launch_observer(nullptr);
    RecorderTest::TearDown();
  }
};

// out = (a + b) * 0.5 and other = -(a + b): two launches where their sizes differ.
void record_pair(const BufferRef& a, const BufferRef& b, const BufferRef& out,
                 const BufferRef& other) {
  const BufferRef t = deferred(8);
  ASSERT_TRUE(record(OpId::add, memory(t), memory(a), memory(b), 8));
  ASSERT_TRUE(record(OpId::mul, memory(out), memory(t), number(0.5f), 8));
  const RecordOperand negated[] = {memory(other), memory(b)};
  ASSERT_TRUE(record_flat(OpId::neg, Dtype::kFloat32, negated, 1, 4));
}

TEST_F(TraceTest, TellsWhatWasRecordedAndWhatRan) {
  const BufferRef a = filled(8, 2), b = filled(8, 4), out = deferred(8), other = deferred(4);
  const uint64_t number = start_tracing(scalar());
  record_pair(a, b, out, other);
  flush(scalar());
  const Circuits circuits = stop_tracing(number);
  ASSERT_EQ(circuits.size(), 1u);
  const CircuitTrace& c = *circuits[0];
  EXPECT_EQ(c.cause, "flush");
  EXPECT_FALSE(c.failed);
  EXPECT_EQ(c.buffers.size(), 5u);
  EXPECT_EQ(c.buffer_bytes, (std::vector<uint64_t>{32, 32, 32, 32, 16}));
  EXPECT_EQ(std::count(c.buffers.begin(), c.buffers.end(), reinterpret_cast<uintptr_t>(a.get())),
            1);
  ASSERT_EQ(c.numbers.size(), 1u);
  ASSERT_EQ(c.shape->number_dtypes, std::vector<Dtype>{Dtype::kFloat32});
  EXPECT_EQ(number_text(Dtype::kFloat32, c.numbers[0]), "0.5");

  const CircuitShape& shape = *c.shape;
  EXPECT_EQ(std::count(shape.slot_states.begin(), shape.slot_states.end(), uint8_t{2}), 1)
      << "the sum is fresh and has no holder";
  EXPECT_TRUE(contains(shape.ops_json, "{\"op\":\"add\",\"compute\":\"float32\",\"shape\":[8]"))
      << shape.ops_json;
  EXPECT_TRUE(contains(shape.plan_json, "\"name\":\"add_mul\"")) << shape.plan_json;
  EXPECT_TRUE(contains(shape.plan_json, "\"record\":1}")) << shape.plan_json;
  EXPECT_TRUE(contains(shape.ops_text, "= mul(")) << shape.ops_text;
  EXPECT_TRUE(contains(shape.plan_text, "3 ops, 0 dead, 2 kernels")) << shape.plan_text;
  ASSERT_EQ(shape.launches.size(), 2u);
  EXPECT_EQ(shape.launches[0].name, "add_mul");
  EXPECT_EQ(shape.launches[0].bytes, 3 * 32);
  EXPECT_EQ(shape.launches[1].name, "neg");
  EXPECT_EQ(shape.launches[1].kernels, 1);

  int64_t before = c.sealed_ns;
  EXPECT_GT(before, 0);
  EXPECT_LE(before, c.begin_ns);
  before = c.begin_ns;
  ASSERT_EQ(c.times.size(), 2u);
  for (const LaunchTime& time : c.times) {
    EXPECT_TRUE(time.first);
    EXPECT_LE(before, time.begin_ns);
    EXPECT_LE(time.begin_ns, time.end_ns);
    before = time.end_ns;
  }
  EXPECT_LE(before, c.end_ns);
  EXPECT_EQ(floats(out), std::vector<float>(8, 3));
  EXPECT_EQ(floats(other), std::vector<float>(4, -4));
}

TEST_F(TraceTest, EqualCircuitsShareAShape) {
  const uint64_t number = start_tracing(scalar());
  for (int i = 0; i < 3; ++i) {
    const BufferRef a = filled(8, 1), b = filled(8, 1), out = deferred(8), other = deferred(4);
    record_pair(a, b, out, other);
    EXPECT_EQ(floats(out), std::vector<float>(8, 1));
  }
  const Circuits circuits = stop_tracing(number);
  ASSERT_EQ(circuits.size(), 3u);
  for (const auto& c : circuits) EXPECT_EQ(c->shape, circuits[0]->shape);
  EXPECT_TRUE(circuits[1]->plan_hit);
  EXPECT_FALSE(circuits[2]->times[0].first);
  EXPECT_GE(circuits[1]->begin_ns, circuits[0]->end_ns);
}

TEST_F(TraceTest, EqualKernelsAreOneLaunch) {
  const BufferRef a = filled(8, 1), b = filled(8, 1), x = deferred(8), y = deferred(8);
  const uint64_t trace = start_tracing(scalar());
  ASSERT_TRUE(record(OpId::add, memory(x), memory(a), number(1), 8));
  ASSERT_TRUE(record(OpId::add, memory(y), memory(b), number(2), 8));
  flush(scalar());
  const Circuits circuits = stop_tracing(trace);
  ASSERT_EQ(circuits.size(), 1u);
  const auto& launches = circuits[0]->shape->launches;
  ASSERT_EQ(launches.size(), 1u) << circuits[0]->shape->plan_text;
  EXPECT_EQ(launches[0].kernels, 2);
  EXPECT_EQ(launches[0].bytes, 4 * 32);
  EXPECT_EQ(floats(y), std::vector<float>(8, 3));
}

TEST_F(TraceTest, CausesAreNamedByTheInnermost) {
  const BufferRef a = filled(4, 1), b = deferred(4);
  const auto run = [&] {
    ASSERT_TRUE(record(OpId::add, memory(b), memory(a), memory(a), 4));
    flush(scalar());
  };
  {
    const CircuitCause unheard("before the trace");
    const uint64_t trace = start_tracing(scalar());
    {
      const CircuitCause outer("fallback aten::sort");
      {
        const CircuitCause inner("aten::item");
        run();
      }
      run();
    }
    run();
    ASSERT_TRUE(record(OpId::add, memory(b), memory(a), memory(a), 4));
    scalar().query(scalar().default_stream());
    const Circuits circuits = stop_tracing(trace);
    ASSERT_EQ(circuits.size(), 4u);
    const char* const expected[] = {"aten::item", "fallback aten::sort", "flush", "stream"};
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(circuits[i]->cause, expected[i]);
  }
}

TEST_F(TraceTest, TracesAreIndependent) {
  const BufferRef a = filled(4, 1), b = deferred(4);
  const auto run = [&] {
    ASSERT_TRUE(record(OpId::add, memory(b), memory(a), memory(a), 4));
    flush(scalar());
  };
  const uint64_t outer = start_tracing(scalar());
  run();
  const uint64_t inner = start_tracing(scalar());
  run();
  EXPECT_EQ(stop_tracing(inner).size(), 1u);
  run();
  EXPECT_EQ(stop_tracing(outer).size(), 3u);
  EXPECT_EQ(internal::g_watchers.load(), 0u);
  EXPECT_ERROR(stop_tracing(outer), ErrorKind::kInvalidArgument,
               "there is no open trace " + std::to_string(outer));
  // Another device's circuits are not in it.
  const uint64_t elsewhere = start_tracing(cpu().runs_plans() ? cpu() : scalar());
  if (cpu().runs_plans()) run();
  EXPECT_TRUE(stop_tracing(elsewhere).empty());
}

TEST_F(TraceTest, AFailedLaunchEndsTheCircuit) {
  const BufferRef a = filled(8, 2), b = filled(8, 4), out = deferred(8), other = deferred(4);
  const uint64_t trace = start_tracing(scalar());
  record_pair(a, b, out, other);
  int runs = 0;
  scalar().on_run = [&] {
    if (++runs == 2) throw std::runtime_error("the device is on fire");
  };
  EXPECT_THROW(flush(scalar()), std::runtime_error);
  scalar().on_run = nullptr;
  const Circuits circuits = stop_tracing(trace);
  ASSERT_EQ(circuits.size(), 1u);
  EXPECT_TRUE(circuits[0]->failed);
  EXPECT_EQ(circuits[0]->times.size(), 1u);
}

// The observer's functions take no context.
std::vector<std::string> g_seen;
int g_open = 0;
bool g_wanted = true;
const LaunchObserver kObserver = {
    [] { return g_wanted; },
    [](const Launch& launch) -> void* {
      ++g_open;
      g_seen.push_back(launch.name + std::string(" ") + std::to_string(launch.bytes));
      return &g_open;
    },
    [](void* token) { --*static_cast<int*>(token); },
};

// One launch as its observer saw it.
struct Seen {
  std::string name, operands;
  int64_t elements;
  int kernels, device;
  uint64_t circuit;
  std::vector<uint64_t> marks;
};
std::vector<Seen> g_launches;
uint64_t g_mark = 0;
const LaunchObserver kMarking = {
    .wanted = [] { return true; },
    .begin = [](const Launch& l) -> void* {
      g_launches.push_back({l.name,
                            l.operands,
                            l.elements,
                            l.kernels,
                            l.device,
                            l.circuit,
                            {l.marks.begin(), l.marks.end()}});
      return nullptr;
    },
    .end = [](void*) {},
    .mark = [] { return g_mark != 0 ? g_mark++ : 0; },
};

TEST_F(TraceTest, LaunchesCarryTheMarksOfTheirOps) {
  g_launches.clear();
  g_mark = 7;
  set_launch_observer(&kMarking);
  const BufferRef a = filled(8, 2), b = filled(8, 4), out = deferred(8), other = deferred(4);
  record_pair(a, b, out, other);  // no marks: they were not asked for
  flush(scalar());
  ASSERT_EQ(g_launches.size(), 2u);
  EXPECT_TRUE(g_launches[0].marks.empty());
  EXPECT_EQ(g_mark, 7u);

  set_marking(true);
  record_pair(a, b, out, other);
  flush(scalar());
  g_mark = 0;  // an op without a mark
  record_pair(a, b, out, other);
  set_marking(false);
  g_mark = 50;
  flush(scalar());
  EXPECT_EQ(g_mark, 50u);
  set_launch_observer(nullptr);
  ASSERT_EQ(g_launches.size(), 6u);
  const Seen& pair = g_launches[2];
  EXPECT_EQ(pair.name, "add_mul");
  EXPECT_EQ(pair.marks, (std::vector<uint64_t>{7, 8}));
  EXPECT_EQ(g_launches[3].marks, std::vector<uint64_t>{9});
  EXPECT_TRUE(g_launches[4].marks.empty());
  EXPECT_EQ(pair.elements, 8);
  EXPECT_EQ(pair.kernels, 1);
  EXPECT_EQ(pair.device, scalar().index());
  EXPECT_EQ(pair.circuit, g_launches[3].circuit);
  EXPECT_LT(g_launches[0].circuit, pair.circuit);
  EXPECT_EQ(pair.operands,
            "{\"reads\":[[\"float32\",[8]],[\"float32\",[8]]],\"writes\":[[\"float32\",[8]]]}");
}

TEST_F(TraceTest, ObserversSeeEveryLaunchTheyWant) {
  g_seen.clear();
  set_launch_observer(&kObserver);
  const BufferRef a = filled(8, 2), b = filled(8, 4), out = deferred(8), other = deferred(4);
  record_pair(a, b, out, other);
  int open_while_running = 0;
  scalar().on_run = [&] { open_while_running += g_open; };
  flush(scalar());
  EXPECT_EQ(g_seen, (std::vector<std::string>{"add_mul 96", "neg 32"}));
  EXPECT_EQ(open_while_running, 2);
  EXPECT_EQ(g_open, 0);
  EXPECT_EQ(floats(out), std::vector<float>(8, 3));

  record_pair(a, b, out, other);
  scalar().on_run = [] { throw std::runtime_error("the device is on fire"); };
  EXPECT_THROW(flush(scalar()), std::runtime_error);
  EXPECT_EQ(g_open, 0);
  scalar().on_run = nullptr;

  g_seen.clear();
  g_wanted = false;
  record_pair(a, b, out, other);
  flush(scalar());
  g_wanted = true;
  set_launch_observer(nullptr);
  record_pair(a, b, out, other);
  flush(scalar());
  EXPECT_TRUE(g_seen.empty());
}

TEST_F(TraceTest, NumbersAreWrittenAsPythonWritesThem) {
  const auto f32 = [](float v) { return number_text(Dtype::kFloat32, std::bit_cast<uint32_t>(v)); };
  const auto f64 = [](double v) {
    return number_text(Dtype::kFloat64, std::bit_cast<uint64_t>(v));
  };
  EXPECT_EQ(f32(0.1f), "0.1");
  EXPECT_EQ(f32(3), "3.0");
  EXPECT_EQ(f32(-0.0f), "-0.0");
  EXPECT_EQ(f32(1e-8f), "1e-08");
  EXPECT_EQ(f64(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(f64(NAN), "nan");
  EXPECT_EQ(f64(-INFINITY), "-inf");
  EXPECT_EQ(number_text(Dtype::kInt32, static_cast<uint64_t>(-7)), "-7");
  EXPECT_EQ(number_text(Dtype::kBool, 1), "True");
}

TEST_F(TraceTest, TracesOpenAndCloseWhileOthersRun) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop.load()) {
        const BufferRef a = filled(4, 1), b = deferred(4);
        ASSERT_TRUE(record(OpId::add, memory(b), memory(a), memory(a), 4));
        EXPECT_EQ(floats(b), std::vector<float>(4, 2));
      }
    });
  }
  uint64_t seen = 0;
  for (int i = 0; i < 200 || seen == 0; ++i) {
    const uint64_t trace = start_tracing(scalar());
    const BufferRef a = filled(4, 1), b = deferred(4);
    ASSERT_TRUE(record(OpId::add, memory(b), memory(a), memory(a), 4));
    flush(scalar());
    for (const auto& c : stop_tracing(trace)) seen += c->times.size();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(seen, 0u);
}

}  // namespace
}  // namespace hologram
