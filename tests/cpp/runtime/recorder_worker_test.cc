// SPDX-License-Identifier: MIT
// Circuits that run on the worker thread: their order, their errors, their memory, and their end.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>

#include "hologram/call.h"
#include "hologram/trace.h"
#include "src/runtime/recording/recorder.h"
#include "tests/cpp/runtime/recording_device.h"

namespace hologram {
namespace {

using internal::CircuitBounds;
using internal::Recorder;

void hand_over(Device& device = scalar()) { Recorder::of(device).hand_over(); }

template <class F>
bool comes_true(F&& condition) {
  for (int i = 0; i < 20000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  return false;
}

// Lets circuits of the scalar device begin, then holds them until told.
class Gate {
 public:
  Gate() {
    scalar().on_run = [state = state_] {
      state->entered.fetch_add(1);
      while (!state->open.load()) std::this_thread::yield();
    };
  }
  ~Gate() { open(); }
  bool wait_entered() {
    return comes_true([this] { return state_->entered.load() > 0; });
  }
  void open() { state_->open.store(true); }

 private:
  struct State {
    std::atomic<int> entered{0};
    std::atomic<bool> open{false};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // the device keeps it too
};

class WorkerTest : public RecorderTest {
 protected:
  void SetUp() override {
    RecorderTest::SetUp();
    internal::set_circuit_worker(true);
  }
  void TearDown() override {
    try {
      internal::set_circuit_worker(false);
    } catch (const std::exception&) {
    }
    RecorderTest::TearDown();
  }
};

bool add(const BufferRef& out, const BufferRef& a, float b, int64_t n = 16) {
  return record(OpId::add, memory(out), memory(a), number(b), n);
}

TEST_F(WorkerTest, RunsWhatIsHandedOverWhileTheProgramGoesOn) {
  std::atomic<std::thread::id> runner;
  scalar().on_run = [&] { runner.store(std::this_thread::get_id()); };
  const BufferRef a = filled(16, 1), b = deferred(16);
  ASSERT_TRUE(add(b, a, 2));
  hand_over();
  EXPECT_TRUE(comes_true([&] { return !is_pending(*b); }));
  EXPECT_NE(runner.load(), std::thread::id());
  EXPECT_NE(runner.load(), std::this_thread::get_id());
  EXPECT_EQ(floats(b), std::vector<float>(16, 3));
  EXPECT_EQ(a->use_count(), 1u);
  hand_over();  // nothing is recorded
  EXPECT_EQ(recorder_stats(scalar()).circuits, 1u);
}

TEST_F(WorkerTest, AWaitIsForWhatIsAskedForOnly) {
  const BufferRef a = filled(16, 1), b = deferred(16), c = deferred(16);
  {
    Gate gate;
    ASSERT_TRUE(add(b, a, 2));
    hand_over();
    ASSERT_TRUE(add(c, a, 3));
    ASSERT_TRUE(gate.wait_entered());
    EXPECT_TRUE(is_pending(*b));
    EXPECT_TRUE(is_pending(*a)) << "read by what runs";
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      gate.open();
    });
    EXPECT_EQ(floats(b), std::vector<float>(16, 3));
    opener.join();
    EXPECT_TRUE(is_pending(*c));
    EXPECT_EQ(recorder_stats(scalar()).circuits, 1u);
  }
  EXPECT_EQ(floats(c), std::vector<float>(16, 4));
}

TEST_F(WorkerTest, ABufferOfSeveralCircuitsLivesAsLongAsTheLast) {
  const BufferRef a = filled(16, 1), last = deferred(16);
  {
    Gate gate;
    {
      BufferRef x = deferred(16);
      ASSERT_TRUE(add(x, a, 1));
      hand_over();
      for (int i = 0; i < 5; ++i) {
        const BufferRef y = deferred(16);
        ASSERT_TRUE(record(OpId::add, memory(y), memory(x), memory(x), 16));
        hand_over();
        x = y;
      }
      ASSERT_TRUE(add(last, x, 0.5f));
    }
    hand_over();
    ASSERT_TRUE(gate.wait_entered());
  }
  EXPECT_EQ(floats(last), std::vector<float>(16, 64.5f));
  EXPECT_EQ(last->use_count(), 1u);
  EXPECT_EQ(a->use_count(), 1u);
}

TEST_F(WorkerTest, ThreadsRecordHandOverFreeAndLook) {
  constexpr int kThreads = 16;
  const int rounds = kThreadSanitizer ? 60 : 300;
  const BufferRef shared = filled(16, 3);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      const BufferRef sum = filled(16, 0);
      float expected = 0;
      for (int round = 0; round < rounds; ++round) {
        BufferRef x = shared;
        float value = 3;
        const int length = 1 + static_cast<int>(random() % 12);
        for (int i = 0; i < length; ++i) {
          const BufferRef next = deferred(16);
          ASSERT_TRUE(add(next, x, 1));
          value += 1;
          x = next;
          if (random() % 8 == 0) hand_over();
          if (random() % 16 == 0) {
            ASSERT_EQ(floats(x), std::vector<float>(16, value));
          }
        }
        ASSERT_TRUE(record(OpId::sub, memory(sum), memory(x), memory(sum), 16));
        expected = value - expected;
        if (random() % 8 == 0) {
          // At once, between recorded work on both sides.
          materialize(*sum);
          for (int i = 0; i < 16; ++i) sum->data_as<float>()[i] *= 0.5f;
          expected *= 0.5f;
        }
        if (random() % 32 == 0) flush(scalar());
      }
      ASSERT_EQ(floats(sum), std::vector<float>(16, expected));
    });
  }
  for (std::thread& thread : threads) thread.join();
  flush(scalar());
  EXPECT_TRUE(comes_true([&] { return shared->use_count() == 1; }));
  EXPECT_EQ(floats(shared), std::vector<float>(16, 3));
}

// A program of random ops, cut at random places: the bytes of all it can see at its end.
std::vector<float> random_program(unsigned seed, Device& device) {
  std::mt19937 random(seed);
  const int64_t n = 4096;
  std::vector<BufferRef> values;
  for (int i = 0; i < 4; ++i) {
    values.push_back(filled(n, 0, device));
    for (int64_t k = 0; k < n; ++k) {
      values.back()->data_as<float>()[k] = std::ldexp(static_cast<float>(random() % 2001) - 1000.f,
                                                      static_cast<int>(random() % 40) - 20);
    }
  }
  constexpr OpId kOps[] = {OpId::add, OpId::sub, OpId::mul, OpId::div, OpId::maximum};
  for (int i = 0; i < 120; ++i) {
    const BufferRef a = values[random() % values.size()], b = values[random() % values.size()];
    const OpId op = kOps[random() % 5];
    if (random() % 3 == 0) {
      EXPECT_TRUE(record(op, memory(a), memory(a), memory(b), n));
    } else {
      values.push_back(deferred(n, device));
      EXPECT_TRUE(record(op, memory(values.back()), memory(a), memory(b), n));
    }
    if (random() % 4 == 0) values.erase(values.begin() + static_cast<int64_t>(random() % 3));
    if (random() % 6 == 0) hand_over(device);
    if (random() % 20 == 0) materialize(*values[random() % values.size()]);
  }
  std::vector<float> seen;
  for (const BufferRef& value : values) {
    for (const float x : floats(value)) seen.push_back(std::isnan(x) ? 12345.f : x);
  }
  return seen;
}

TEST_F(WorkerTest, GivesTheBitsThatTheCallingThreadGives) {
  const int before = num_threads();
  for (unsigned seed = 0; seed < 20; ++seed) {
    set_num_threads(1 + static_cast<int>(seed % 4));
    internal::set_circuit_worker(true);
    const std::vector<float> beside = random_program(seed, cpu());
    internal::set_circuit_worker(false);
    const std::vector<float> here = random_program(seed, cpu());
    ASSERT_EQ(beside.size(), here.size());
    EXPECT_EQ(std::memcmp(beside.data(), here.data(), here.size() * sizeof(float)), 0) << seed;
  }
  set_num_threads(before);
}

TEST_F(WorkerTest, ErrorsReachTheNextThreadThatAsksOnce) {
  const BufferRef a = filled(16, 1), early = deferred(16), b = deferred(16), c = deferred(16);
  ASSERT_TRUE(add(early, a, 1));
  hand_over();
  EXPECT_EQ(floats(early), std::vector<float>(16, 2));
  std::atomic<bool> failed{true};
  scalar().on_run = [&] {
    if (!failed.exchange(true)) throw std::runtime_error("the kernel broke");
  };
  const auto fail_beside = [&] {
    failed.store(false);
    ASSERT_TRUE(add(b, a, 2));
    hand_over();
    ASSERT_TRUE(add(c, a, 3));
    hand_over();
    EXPECT_TRUE(comes_true([&] { return failed.load(); }));
    EXPECT_TRUE(is_pending(*b)) << "it is not a result";
    EXPECT_EQ(floats(early), std::vector<float>(16, 2)) << "older results are not concerned";
  };
  fail_beside();
  EXPECT_THROW(scalar().synchronize(), std::runtime_error);
  scalar().synchronize();
  EXPECT_EQ(floats(c), std::vector<float>(16, 4));
  fail_beside();
  EXPECT_THROW(materialize(*b), std::runtime_error);
  EXPECT_FALSE(is_pending(*b));
  EXPECT_EQ(floats(c), std::vector<float>(16, 4));
  fail_beside();
  EXPECT_THROW(materialize(*c), std::runtime_error) << "what came before it failed";
  EXPECT_EQ(floats(c), std::vector<float>(16, 4));
  fail_beside();
  EXPECT_TRUE(scalar().default_stream().query());
  EXPECT_THROW(scalar().synchronize(), std::runtime_error) << "kept, for query() does not throw";
}

TEST_F(WorkerTest, LateErrorsSayWhatFailedAndWhereItWasRecorded) {
  static const uint16_t kBroken =
      register_call({"breaks", [](const CallArguments& c) {
                       if (c.numbers[0] == 1) fail(ErrorKind::kIndex, "index 7 is out of range");
                       if (c.numbers[0] == 2) throw std::logic_error("the library broke");
                     }});
  static thread_local std::string t_line;
  set_record_site([] { return t_line; });
  const BufferRef a = filled(16, 1), b = deferred(16), c = deferred(16);
  const auto fail_beside = [&](uint64_t how) {
    t_line = "model.py:11";
    ASSERT_TRUE(add(b, a, 2));
    const CallOperand operand = {b.get(), 0, 64, true, true, true};
    t_line = "model.py:12";
    ASSERT_TRUE(record_call(kBroken, {&operand, 1}, {}, {&how, 1}, 1e6));
    const uint64_t well = 0;
    const CallOperand other = {c.get(), 0, 64, false, true, true};
    t_line = "model.py:13";  // cuts the circuit before it is recorded
    ASSERT_TRUE(record_call(kBroken, {&other, 1}, {}, {&well, 1}, 1e6));
    hand_over();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  for (const bool lines : {false, true, false}) {
    internal::set_remembers_sites(lines);
    const std::string where = lines ? ", recorded at model.py:12)" : ")";
    fail_beside(1);
    EXPECT_ERROR(scalar().synchronize(), ErrorKind::kIndex,
                 "index 7 is out of range (in breaks, which was deferred" + where);
    fail_beside(2);
    if (lines) {
      EXPECT_ERROR(materialize(*b), ErrorKind::kInternal,
                   "the library broke (in breaks, which was deferred, recorded at model.py:12)");
    } else {
      EXPECT_THROW(materialize(*b), std::logic_error);
    }
    flush(scalar());

    const BufferRef big = deferred(4 << 20);
    t_line = "model.py:20";
    ASSERT_TRUE(add(b, a, 2));
    t_line = "model.py:21";
    ASSERT_TRUE(record(OpId::add, memory(big), number(1), number(2), 4 << 20));
    t_line = "model.py:22";
    ASSERT_TRUE(record(OpId::add, memory(big), memory(big), number(2), 4 << 20));
    empty_cache();
    testing::fail_os_allocations(1);
    EXPECT_ERROR(materialize(*b), ErrorKind::kOutOfMemory,
                 lines ? "(for a result that was deferred, recorded at model.py:21)"
                       : "(for a result that was deferred)");
    testing::fail_os_allocations(0);
    flush(scalar());
  }
  set_record_site(nullptr);
}

TEST_F(WorkerTest, ACircuitWithoutMemoryWaitsForWhoAsks) {
  constexpr int64_t kMany = 4 << 20;
  empty_cache();
  const BufferRef a = filled(16, 1), big = deferred(kMany), after = deferred(16);
  testing::fail_os_allocations(1);
  ASSERT_TRUE(record(OpId::add, memory(big), number(1), number(2), kMany));
  hand_over();
  ASSERT_TRUE(add(after, a, 2));
  hand_over();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_TRUE(is_pending(*after)) << "circuits keep their order";
  EXPECT_ERROR(materialize(*after), ErrorKind::kOutOfMemory, "tried to allocate 16.00 MiB");
  EXPECT_ERROR(scalar().synchronize(), ErrorKind::kOutOfMemory, "tried to allocate 16.00 MiB");
  testing::fail_os_allocations(0);
  EXPECT_EQ(floats(after), std::vector<float>(16, 3));
  EXPECT_EQ(floats(big)[kMany - 1], 3);
  EXPECT_EQ(recorder_stats(scalar()).circuits, 2u);
}

TEST_F(WorkerTest, DeletersOfForeignMemoryAreLeftToTheProgram) {
  struct Context {
    float data[16] = {};
    std::atomic<std::thread::id> deleter{};
  } context;
  const BufferRef out = deferred(16);
  const auto use_foreign = [&] {
    context.deleter.store({});
    const BufferRef foreign = BufferRef::adopt(wrap_buffer(
        scalar(), context.data, sizeof context.data,
        [](void* c) { static_cast<Context*>(c)->deleter.store(std::this_thread::get_id()); },
        &context));
    ASSERT_TRUE(add(out, foreign, 1));
    hand_over();
  };
  use_foreign();
  ASSERT_TRUE(comes_true([&] { return !is_pending(*out); }));
  EXPECT_EQ(context.deleter.load(), std::thread::id());
  ASSERT_TRUE(add(out, out, 1));  // recording is a good moment
  EXPECT_EQ(context.deleter.load(), std::this_thread::get_id());
  use_foreign();
  ASSERT_TRUE(comes_true([&] { return !is_pending(*out); }));
  flush(scalar());  // the same, though there is nothing to run
  EXPECT_EQ(context.deleter.load(), std::this_thread::get_id());
}

TEST_F(WorkerTest, WhatWaitsIsBounded) {
  const BufferRef a = filled(16, 1), sum = filled(16, 0);
  std::atomic<int> recorded{0};
  std::thread program;
  {
    Gate gate;
    program = std::thread([&] {
      for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(record(OpId::add, memory(sum), memory(sum), memory(a), 16));
        hand_over();
        recorded.fetch_add(1);
      }
    });
    ASSERT_TRUE(gate.wait_entered());
    EXPECT_TRUE(comes_true([&] { return recorded.load() >= CircuitBounds::kMaxQueued - 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_LE(recorded.load(), CircuitBounds::kMaxQueued);
  }
  program.join();
  EXPECT_EQ(floats(sum), std::vector<float>(16, 200));
}

TEST_F(WorkerTest, MemoryThatOnlyTheQueueHoldsIsBounded) {
  constexpr int64_t kMiB = 1 << 20;
  const BufferRef sum = filled(16, 0);
  const int64_t before = memory_stats().allocated_bytes.current;
  const auto limit = static_cast<int64_t>(
      std::max(CircuitBounds::kKeptFloor, memory_limit() / CircuitBounds::kKeptShare));
  std::atomic<int64_t> most{0};
  std::atomic<bool> done{false};
  std::thread program;
  {
    Gate gate;
    program = std::thread([&] {
      for (int i = 0; i < 24; ++i) {
        BufferRef given_up =
            BufferRef::adopt(allocate_buffer(scalar(), static_cast<size_t>(limit) / 4));
        std::fill_n(given_up->data_as<float>(), 16, 1.f);
        ASSERT_TRUE(record(OpId::add, memory(sum), memory(sum), memory(given_up), 16));
        most = std::max(most.load(), memory_stats().allocated_bytes.current - before);
        given_up.reset();
        hand_over();
      }
      done.store(true);
    });
    ASSERT_TRUE(gate.wait_entered());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(done.load());
  }
  program.join();
  EXPECT_LE(most.load(), 2 * limit + 4 * kMiB);
  EXPECT_EQ(floats(sum), std::vector<float>(16, 24));
  EXPECT_EQ(memory_stats().allocated_bytes.current, before) << "free as soon as waited for";
}

TEST_F(WorkerTest, AFullCircuitIsHandedOver) {
  std::atomic<std::thread::id> runner;
  scalar().on_run = [&] { runner.store(std::this_thread::get_id()); };
  const BufferRef b = filled(4, 0);
  for (int i = 0; i <= internal::CircuitBounds::kMaxSmallOps; ++i) {
    ASSERT_TRUE(record(OpId::add, memory(b), memory(b), number(1), 4));
  }
  EXPECT_TRUE(comes_true([&] { return recorder_stats(scalar()).circuits >= 1; }));
  EXPECT_TRUE(comes_true([&] { return runner.load() != std::thread::id(); }));
  EXPECT_NE(runner.load(), std::this_thread::get_id());
  EXPECT_EQ(floats(b), std::vector<float>(4, internal::CircuitBounds::kMaxSmallOps + 1));
}

TEST_F(WorkerTest, WhatIsNotAskedForRunsInTheEnd) {
  std::atomic<std::thread::id> runner;
  scalar().on_run = [&] { runner.store(std::this_thread::get_id()); };
  const BufferRef a = filled(16, 1), b = deferred(16), c = deferred(16);
  for (const BufferRef& out : {b, c}) {
    const auto before = std::chrono::steady_clock::now();
    ASSERT_TRUE(add(out, a, 2));
    EXPECT_TRUE(comes_true([&] { return !is_pending(*out); }));
    EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(20));
    EXPECT_NE(runner.load(), std::this_thread::get_id());
    std::this_thread::sleep_for(std::chrono::milliseconds(60));  // it looks on
  }
  EXPECT_EQ(floats(c), std::vector<float>(16, 3));
  // A trace is of the program's circuits, not of its pauses.
  const BufferRef d = deferred(16);
  const uint64_t trace = start_tracing(scalar());
  ASSERT_TRUE(add(d, a, 2));
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  EXPECT_TRUE(is_pending(*d));
  stop_tracing(trace);
  EXPECT_TRUE(comes_true([&] { return !is_pending(*d); }));
}

TEST_F(WorkerTest, TracesAndObserversSeeWhatItRuns) {
  static std::atomic<int> entered, left, begun, asked_beside;
  static thread_local bool is_program = false;
  static thread_local bool is_inside = false;
  entered = left = begun = asked_beside = 0;
  is_program = true;
  static const LaunchObserver observer = {
      .wanted = [] { return is_program || is_inside; },
      .begin = [](const Launch&) -> void* {
        if (!is_program) ++begun;
        return nullptr;
      },
      .end = [](void*) {},
      .share = []() -> void* { return new int(7); },
      .enter =
          [](void* shared) {
            is_inside = *static_cast<int*>(shared) == 7;
            ++entered;
          },
      .leave =
          [](void* shared) {
            is_inside = false;
            delete static_cast<int*>(shared);
            ++left;
          },
  };
  set_launch_observer(&observer);
  const uint64_t trace = start_tracing(scalar());
  const BufferRef a = filled(16, 1), b = deferred(16);
  ASSERT_TRUE(add(b, a, 2));
  hand_over();
  EXPECT_TRUE(comes_true([&] { return !is_pending(*b); }));
  flush(scalar());
  set_launch_observer(nullptr);
  const auto circuits = stop_tracing(trace);
  ASSERT_EQ(circuits.size(), 1u);
  EXPECT_EQ(circuits[0]->cause, "call");
  EXPECT_NE(circuits[0]->thread, static_cast<uint64_t>(gettid()));
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(entered, 1);
  EXPECT_EQ(left, 1);
}

TEST_F(WorkerTest, AStepIsCutAlikeHoweverFastItRuns) {
  const BufferRef a = filled(1000, 1);
  const auto step = [&](int pause) {
    BufferRef x = a;
    for (int i = 0; i < 40; ++i) {
      const BufferRef y = deferred(1000);
      ASSERT_TRUE(
          record(i % 3 == 0 ? OpId::mul : OpId::sub, memory(y), memory(x), memory(a), 1000));
      x = y;
      if (i % 5 == 4) hand_over();
      if (pause != 0 && i % pause == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    materialize(*x);
  };
  step(0);
  reset_recorder_stats(scalar());
  for (int i = 0; i < 30; ++i) step(i % 4 == 0 ? 1 + i % 7 : 0);
  flush(scalar());
  const RecorderStats stats = recorder_stats(scalar());
  EXPECT_EQ(stats.circuits, 30u * 8);
  EXPECT_EQ(stats.plan_misses, 0u);
}

TEST_F(WorkerTest, AForkedChildHasAWorkerOfItsOwn) {
  if (kThreadSanitizer) GTEST_SKIP() << "the sanitizer does not follow forks of threads";
  for (int round = 0; round < 10; ++round) {
    const BufferRef a = filled(16, 1), b = deferred(16);
    ASSERT_TRUE(add(b, a, 2));
    hand_over();
    const BufferRef c = deferred(16);
    ASSERT_TRUE(add(c, b, 3));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool good = !is_pending(*b) && !is_pending(*c) && c->data_as<float>()[0] == 6;
      const BufferRef d = deferred(16);
      good = good && add(d, c, 1);
      hand_over();
      good = good && comes_true([&] { return !is_pending(*d); });
      good = good && floats(d)[15] == 7;
      std::exit(good ? 0 : 1);
    }
    EXPECT_EQ(floats(c), std::vector<float>(16, 6));
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
}

TEST_F(WorkerTest, AProcessMayEndInTheMidst) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        static BufferRef sum = filled(16, 0);
        scalar().on_run = [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); };
        for (int i = 0; i < 20; ++i) {
          if (!record(OpId::add, memory(sum), memory(sum), number(1), 16)) std::exit(1);
          hand_over();
        }
        std::exit(is_pending(*sum) ? 0 : 2);
      },
      ::testing::ExitedWithCode(0), "");
  const auto end_asleep = [] {
    const BufferRef a = filled(16, 1), b = deferred(16);
    add(b, a, 2);
    hand_over();
    std::exit(comes_true([&] { return !is_pending(*b); }) ? 0 : 1);
  };
  EXPECT_EXIT(end_asleep(), ::testing::ExitedWithCode(0), "");
}

TEST_F(WorkerTest, SwitchedOffTheCallerRunsWhatIsComplete) {
  internal::set_circuit_worker(false);
  const BufferRef a = filled(16, 1), b = deferred(16);
  ASSERT_TRUE(add(b, a, 2));
  std::this_thread::sleep_for(std::chrono::milliseconds(80));
  EXPECT_TRUE(is_pending(*b));  // however old it gets
  EXPECT_EQ(recorder_stats(scalar()).circuits, 0u);
  hand_over();
  EXPECT_FALSE(is_pending(*b));
  EXPECT_EQ(recorder_stats(scalar()).circuits, 1u);
  EXPECT_EQ(floats(b), std::vector<float>(16, 3));
}

TEST(WorkerSetting, TheEnvironmentDecides) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto setting = [](const char* wish) {
    wish != nullptr ? setenv("HOLOGRAM_WORKER", wish, 1) : unsetenv("HOLOGRAM_WORKER");
    std::exit(internal::has_circuit_worker() ? 11 : 12);
  };
  EXPECT_EXIT(setting("0"), ::testing::ExitedWithCode(12), "");
  cpu_set_t set;
  const bool two = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 1;
  EXPECT_EXIT(setting("1"), ::testing::ExitedWithCode(two ? 11 : 12), "");
  EXPECT_EXIT(setting(nullptr), ::testing::ExitedWithCode(two ? 11 : 12), "");
}

}  // namespace
}  // namespace hologram
