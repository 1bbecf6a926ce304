// SPDX-License-Identifier: MIT
// Ops round, and treat denormal numbers, as the thread that called them did then, whatever
// thread runs them and when.
#if defined(__SSE__)
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hologram/call.h"
#include "hologram/elementwise.h"
#include "hologram/memory.h"
#include "hologram/parallel.h"
#include "hologram/trace.h"
#include "src/runtime/recording/circuit_check.h"
#include "src/runtime/recording/recorder.h"
#include "tests/cpp/runtime/float_modes.h"
#include "tests/cpp/runtime/recording_device.h"

namespace hologram {
namespace {

using internal::Recorder;

constexpr unsigned kDefault = 0, kZeros = 0x0040, kDown = 0x2000;
constexpr unsigned kModes[] = {kDefault, kFlush, kZeros, 0x8000, kDown, kUp, 0x6000};

unsigned mode_here() { return _mm_getcsr() & kMode; }

// Where modes differ: denormal numbers, the least normal one, what is not exact.
const std::vector<float> kTricky = {1e-39f,    -1e-39f, 1.17549435e-38f, 3e-45f, 1.0f / 3,  0.1f,
                                    -1.0f / 3, 1e-30f,  -2.5e-38f,       7.7e8f, 16777217., 0.0f,
                                    -0.0f,     1e38f,   -3.3e-7f,        1.5f};

// What one after another gives: (x * 0.1 + x) - y, with y = x[i + 1], on this thread.
std::vector<float> oracle(const std::vector<float>& x) {
  std::vector<float> result(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    volatile float a = x[i], tenth = 0.1f, y = x[(i + 1) % x.size()];
    volatile float scaled = a * tenth;
    volatile float sum = scaled + a;
    result[i] = sum - y;
  }
  return result;
}

std::vector<uint32_t> bits(const std::vector<float>& values) {
  std::vector<uint32_t> result(values.size());
  std::memcpy(result.data(), values.data(), values.size() * sizeof(float));
  return result;
}

BufferRef held(const std::vector<float>& values) {
  BufferRef b = filled(static_cast<int64_t>(values.size()), 0, cpu());
  std::memcpy(b->data(), values.data(), values.size() * sizeof(float));
  return b;
}

// As oracle() does, recorded.
BufferRef recorded(const std::vector<float>& x) {
  std::vector<float> next(x.begin() + 1, x.end());
  next.push_back(x[0]);
  const auto n = static_cast<int64_t>(x.size());
  const BufferRef a = held(x), b = held(next), scaled = deferred(n, cpu()),
                  sum = deferred(n, cpu());
  BufferRef result = deferred(n, cpu());
  EXPECT_TRUE(record(OpId::mul, memory(scaled), memory(a), number(0.1f), n));
  EXPECT_TRUE(record(OpId::add, memory(sum), memory(scaled), memory(a), n));
  EXPECT_TRUE(record(OpId::sub, memory(result), memory(sum), memory(b), n));
  return result;
}

template <class F>
bool comes_true(F&& condition) {
  for (int i = 0; i < 20000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  return false;
}

void fill_the_circuit() {
  const BufferRef a = filled(4, 1, cpu());
  for (int i = 0; i < internal::CircuitBounds::kMaxSmallOps + 1; ++i) {
    EXPECT_TRUE(record(OpId::add, memory(a), memory(a), number(0), 4));
  }
}

// Who runs what was recorded, and when. Called in the default mode.
struct Way {
  const char* name;
  bool worker;
  std::function<void(const BufferRef&)> run;
};
const Way kWays[] = {
    {"the thread that asks", false, [](const BufferRef& b) { materialize(*b); }},
    {"the thread that asks, with a worker", true, [](const BufferRef& b) { materialize(*b); }},
    {"another thread that asks", false,
     [](const BufferRef& b) { std::thread([&] { materialize(*b); }).join(); }},
    {"a thread in yet another mode", true,
     [](const BufferRef& b) {
       std::thread([&] {
         const InMode other(kUp);
         materialize(*b);
       }).join();
     }},
    {"the worker, which was told to", true,
     [](const BufferRef& b) {
       Recorder::of(cpu()).hand_over();
       EXPECT_TRUE(comes_true([&] { return !is_pending(*b); }));
     }},
    {"the worker, since it grew old", true,
     [](const BufferRef& b) { EXPECT_TRUE(comes_true([&] { return !is_pending(*b); })); }},
    {"the one that fills the circuit", false, [](const BufferRef&) { fill_the_circuit(); }},
    {"the one that fills the circuit, with a worker", true,
     [](const BufferRef& b) {
       fill_the_circuit();
       materialize(*b);
     }},
    {"a flush", false, [](const BufferRef&) { flush(cpu()); }},
    {"who turns deferring off", true,
     [](const BufferRef&) {
       set_deferring(false);
       set_deferring(true);
     }},
};

class FloatMode : public ::testing::Test {
 protected:
  void SetUp() override {
    set_deferring(true);
    internal::set_circuit_worker(false);
    flush(cpu());
  }
  void TearDown() override {
    internal::set_checks_circuits(false);
    internal::set_circuit_worker(false);
    flush(cpu());
    ASSERT_EQ(mode_here(), kDefault);
  }
};

TEST_F(FloatMode, IsThatOfTheCallHoweverTheCircuitRuns) {
  for (const Way& way : kWays) {
    internal::set_circuit_worker(way.worker);
    for (const unsigned mode : kModes) {
      // Alone, the circuit stays open when the mode is left; else it lies between two others.
      for (const bool alone : {true, false}) {
        const std::string where =
            way.name + std::string(alone ? ", alone" : "") + ", mode " + std::to_string(mode);
        const std::vector<uint32_t> plain = bits(oracle(kTricky));
        const BufferRef before = alone ? held(kTricky) : recorded(kTricky);
        BufferRef result;
        std::vector<uint32_t> want;
        {
          const InMode here(mode);
          result = recorded(kTricky);
          want = bits(oracle(kTricky));
        }
        const BufferRef after = alone ? held(kTricky) : recorded(kTricky);
        way.run(result);
        EXPECT_EQ(mode_here(), kDefault) << where;
        EXPECT_EQ(bits(floats(result)), want) << where;
        EXPECT_EQ(bits(floats(before)), alone ? bits(kTricky) : plain) << where;
        EXPECT_EQ(bits(floats(after)), alone ? bits(kTricky) : plain) << where;
        EXPECT_EQ(want == plain, mode == kDefault) << "nothing was tested, mode " << mode;
      }
    }
  }
}

TEST_F(FloatMode, OfTheThreadThatAsksIsLeftAlone) {
  for (const bool worker : {false, true}) {
    internal::set_circuit_worker(worker);
    const BufferRef plain = recorded(kTricky);
    const std::vector<uint32_t> want = bits(oracle(kTricky));
    const InMode flushing(kFlush | kDown);
    materialize(*plain);
    EXPECT_EQ(mode_here(), kFlush | kDown);
    EXPECT_EQ(bits(floats(plain)), want);
    const BufferRef here = recorded(kTricky);
    EXPECT_EQ(bits(floats(here)), bits(oracle(kTricky)));
    EXPECT_EQ(mode_here(), kFlush | kDown);
  }
}

TEST_F(FloatMode, OfThreadsThatRecordAtOnceStayApart) {
  for (const bool worker : {false, true}) {
    internal::set_circuit_worker(worker);
    std::vector<std::thread> threads;
    for (const unsigned mode : {kDefault, kFlush, kUp, kDown}) {
      threads.emplace_back([mode] {
        const InMode here(mode);
        const std::vector<uint32_t> want = bits(oracle(kTricky));
        std::vector<BufferRef> results;
        for (int i = 0; i < (kThreadSanitizer ? 40 : 200); ++i) {
          results.push_back(recorded(kTricky));
          if (i % 7 == 0) materialize(*results[results.size() / 2]);
        }
        for (const BufferRef& result : results) ASSERT_EQ(bits(floats(result)), want) << mode;
        ASSERT_EQ(mode_here(), mode);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// Exceptions are no part of it: neither which happened nor which a program wants to be told of.
TEST_F(FloatMode, ExceptionsCutNoCircuitAndStopNone) {
  reset_recorder_stats(cpu());
  const unsigned before = _mm_getcsr();
  const BufferRef a = filled(16, 1, cpu()), b = deferred(16, cpu()), c = deferred(16, cpu());
  ASSERT_TRUE(record(OpId::div, memory(b), memory(a), number(0), 16));
  _mm_setcsr(before | 0x3f);
  ASSERT_TRUE(record(OpId::add, memory(c), memory(b), memory(a), 16));
  _mm_setcsr(before & ~0x0200u);  // to divide by zero is a signal now
  ASSERT_TRUE(record(OpId::add, memory(c), memory(c), memory(a), 16));
  EXPECT_EQ(floats(c), std::vector<float>(16, INFINITY));
  EXPECT_EQ(_mm_getcsr() & 0x1f80, before & 0x1f80 & ~0x0200u);
  _mm_setcsr(before);
  EXPECT_EQ(recorder_stats(cpu()).circuits, 1u);
}

// Every thread that takes tiles of a call, one that waits for it included.
TEST_F(FloatMode, IsThatOfTheCallOnEveryThreadThatTakesTiles) {
  static std::atomic<int> others{0};
  static std::atomic<bool> slow{false};
  static const uint16_t kLook =
      register_call({"tells_its_mode", [](const CallArguments& call) {
                       const auto caller = std::this_thread::get_id();
                       auto* seen = reinterpret_cast<uint32_t*>(call.operands[0]);
                       parallel_for(64, 4, [&](int64_t begin, int64_t end, int) {
                         for (int64_t i = begin; i < end; ++i) {
                           seen[i] = mode_here();
                           if (slow) std::this_thread::sleep_for(std::chrono::microseconds(200));
                           if (std::this_thread::get_id() != caller) ++others;
                         }
                       });
                     }});
  const int threads = num_threads();
  set_num_threads(4);
  for (const Way& way : kWays) {
    internal::set_circuit_worker(way.worker);
    slow = true;
    for (const unsigned mode : {kFlush, kUp}) {
      others = 0;
      for (int i = 0; i < 50 && others == 0; ++i) {
        const BufferRef seen = filled(64, 0, cpu());
        const CallOperand operand = {seen.get(), 0, 256, false, true, true};
        {
          const InMode here(mode);
          ASSERT_TRUE(record_call(kLook, {&operand, 1}, {}, {}, 1));
        }
        way.run(seen);
        materialize(*seen);
        for (int k = 0; k < 64; ++k) {
          ASSERT_EQ(seen->data_as<uint32_t>()[k], mode) << way.name << ", tile " << k;
        }
      }
      EXPECT_GT(others, 0) << way.name;
    }
  }
  set_num_threads(threads);
}

// x + 0 and its like are x, and so is what is converted to a wider type and back, only where
// denormal numbers count and zeros come out as to nearest.
TEST_F(FloatMode, LawsOfFloatsHoldInTheDefaultModeOnly) {
  const auto n = static_cast<int64_t>(kTricky.size());
  struct Case {
    OpId op;
    float number;
  };
  const Case cases[] = {{OpId::mul, 1}, {OpId::div, 1}, {OpId::sub, 0}, {OpId::add, -0.0f}};
  for (const unsigned mode : kModes) {
    // Equal words find plans of either kind.
    for (const unsigned in : {mode, kDefault, mode}) {
      std::vector<BufferRef> deep, at_once;
      BufferRef wide = deferred(2 * n, cpu()), back = deferred(n, cpu());
      {
        const InMode here(in);
        for (const bool defer : {true, false}) {
          for (const Case& c : cases) {
            const BufferRef x = held(kTricky), y = deferred(n, cpu()), z = deferred(n, cpu());
            if (defer) {
              // neg makes it a result of arithmetic, as the laws want it.
              const RecordOperand operands[] = {memory(y), memory(x)};
              ASSERT_TRUE(record_flat(OpId::neg, Dtype::kFloat32, operands, 1, n));
              ASSERT_TRUE(record(OpId::add, memory(y), memory(y), memory(y), n));
              ASSERT_TRUE(record(c.op, memory(z), memory(y), number(c.number), n));
              deep.push_back(z);
              continue;
            }
            materialize(*y);
            materialize(*z);
            for (int64_t i = 0; i < n; ++i) {
              volatile float twice = -x->data_as<float>()[i], k = c.number;
              twice = twice + twice;
              z->data_as<float>()[i] = c.op == OpId::mul   ? twice * k
                                       : c.op == OpId::div ? twice / k
                                       : c.op == OpId::sub ? twice - k
                                                           : twice + k;
            }
            at_once.push_back(z);
          }
        }
        const BufferRef x = held(kTricky), sum = deferred(n, cpu());
        ASSERT_TRUE(record(OpId::mul, memory(sum), memory(x), number(0.5f), n));
        RecordOperand doubles = memory(wide);
        doubles.dtype = Dtype::kFloat64;
        ASSERT_TRUE(record_flat_copy(doubles, memory(sum), n));
        ASSERT_TRUE(record_flat_copy(memory(back), doubles, n));
        at_once.push_back(filled(n, 0, cpu()));
        for (int64_t i = 0; i < n; ++i) {
          volatile float half = kTricky[static_cast<size_t>(i)] * 0.5f;
          volatile double wider = half;
          at_once.back()->data_as<float>()[i] = static_cast<float>(wider);
        }
        deep.push_back(back);
      }
      for (size_t k = 0; k < deep.size(); ++k) {
        EXPECT_EQ(bits(floats(deep[k])), bits(floats(at_once[k])))
            << "case " << k << ", mode " << in;
      }
    }
  }
}

// Against the ops one by one on copies, which the recorder does itself: generated loops, classes
// and the order of tiles change nothing in any mode.
TEST_F(FloatMode, FusedIsUnfusedInEveryMode) {
  internal::set_checks_circuits(true);
  constexpr OpId kOps[] = {OpId::add, OpId::sub,     OpId::mul,     OpId::div,
                           OpId::neg, OpId::maximum, OpId::minimum, OpId::abs,
                           OpId::exp, OpId::relu,    OpId::sqrt,    OpId::sigmoid};
  constexpr int64_t n = 777;
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const InMode here(kModes[seed % std::size(kModes)]);
    std::vector<BufferRef> values;
    for (int i = 0; i < 3; ++i) {
      values.push_back(filled(n, 0, cpu()));
      for (int64_t k = 0; k < n; ++k) {
        const float wide = std::ldexp(static_cast<float>(random() % 2001) - 1000.f,
                                      static_cast<int>(random() % 40) - 20);
        const float small = kTricky[random() % kTricky.size()];
        values.back()->data_as<float>()[k] = random() % 2 == 0 ? wide : small;
      }
    }
    // A plan that comes back runs in generated loops.
    const std::mt19937 again = random;
    for (int round = 0; round < 3; ++round) {
      random = again;
      std::vector<BufferRef> seen = values;
      for (int i = 0; i < 30; ++i) {
        const OpId op = kOps[random() % std::size(kOps)];
        const BufferRef a = seen[random() % seen.size()], b = seen[random() % seen.size()];
        const RecordOperand second = random() % 3 != 0 ? memory(b)
                                     : random() % 2    ? number(1)
                                                       : number(-0.0f);
        seen.push_back(deferred(n, cpu()));
        const RecordOperand operands[] = {memory(seen.back()), memory(a), second};
        ASSERT_TRUE(record_flat(op, Dtype::kFloat32, operands, op_info(op).arity, n));
        if (random() % 3 == 0) seen.erase(seen.begin() + 3 + random() % (seen.size() - 3));
        if (seen.size() < 4) break;
      }
      ASSERT_NO_THROW(flush(cpu())) << "seed " << seed;
    }
  }
}

TEST_F(FloatMode, IsThatOfTheCallInAForkedChild) {
  if (kThreadSanitizer) GTEST_SKIP() << "it does not follow forks of threaded programs";
  for (const bool worker : {false, true}) {
    internal::set_circuit_worker(worker);
    BufferRef result;
    std::vector<float> want;
    {
      const InMode here(kFlush);
      result = recorded(kTricky);
      want = oracle(kTricky);
    }
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      BufferRef own;
      {
        const InMode here(kFlush);
        own = recorded(kTricky);
      }
      const bool good = bits(floats(result)) == bits(want) && bits(floats(own)) == bits(want) &&
                        mode_here() == kDefault;
      _exit(good ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_EQ(bits(floats(result)), bits(want));
  }
}

TEST_F(FloatMode, ATraceTellsThatACircuitEndedForIt) {
  const uint64_t trace = start_tracing(cpu());
  const BufferRef first = recorded(kTricky);
  {
    const InMode here(kFlush);
    materialize(*recorded(kTricky));
  }
  const auto circuits = stop_tracing(trace);
  ASSERT_EQ(circuits.size(), 2u);
  EXPECT_EQ(circuits[0]->cause, "float mode");
}

}  // namespace
}  // namespace hologram
#endif
