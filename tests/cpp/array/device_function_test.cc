// SPDX-License-Identifier: MIT
// Functions of a device: captured once, run on the memory of each call.
#include "hologram/circuit.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "hologram/error.h"
#include "hologram/functions.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"
#include "hologram/trace.h"
#include "tests/cpp/array/support.h"

namespace hologram {
namespace {

using Floats = std::vector<float>;
using Buffers = std::vector<Buffer*>;

// A tensor without memory.
Tensor promised(Shape shape) { return empty(std::move(shape), Dtype::kFloat32, cpu()); }
Buffer* buffer(const Tensor& t) { return t.buffer().get(); }

// relu(a * 2 + b) of four numbers.
struct Example {
  explicit Example(double factor = 2.0) {
    const Tensor a = promised({4}), b = promised({4});
    begun = function.begin(Buffers{buffer(a), buffer(b)});
    if (!begun) return;
    const Tensor y = relu(add(mul(a, factor), b));
    function.end(Buffers{buffer(y)});
  }
  DeviceFunction function{cpu()};
  bool begun = false;
};

class DeviceFunctionTest : public ::testing::Test {
 protected:
  void SetUp() override { set_deferring(true); }
};

TEST_F(DeviceFunctionTest, RunsOnTheMemoryOfEachCall) {
  Example example;
  ASSERT_TRUE(example.begun);
  EXPECT_FALSE(is_capturing_graph());
  EXPECT_EQ(example.function.ops(), 3);
  EXPECT_EQ(example.function.bytes_kept(), 0);
  EXPECT_FALSE(example.function.writes(0));
  const Tensor a = tensor<float>({4}, {1, 2, 3, 4}), b = tensor<float>({4}, {-9, -4, 0, 1});
  const Tensor sum = add(a, b);  // not run yet
  const Tensor y = promised({4}), z = promised({4});
  const auto& numbers = example.function.numbers();
  EXPECT_TRUE(example.function.call(Buffers{buffer(a), buffer(b), buffer(y)}, numbers));
  EXPECT_TRUE(example.function.call(Buffers{buffer(sum), buffer(y), buffer(z)}, numbers));
  EXPECT_EQ(values<float>(y), (Floats{0, 0, 6, 9}));
  EXPECT_EQ(values<float>(z), (Floats{0, 0, 12, 19}));
}

TEST_F(DeviceFunctionTest, NumbersMayDiffer) {
  Example example;
  std::vector<uint64_t> numbers = example.function.numbers();
  ASSERT_EQ(numbers.size(), 1u);
  numbers[0] = std::bit_cast<uint32_t>(10.0f);
  const Tensor a = tensor<float>({4}, {1, 2, 3, 4}), b = tensor<float>({4}, {0, 0, 0, 0});
  const Tensor y = promised({4});
  EXPECT_TRUE(example.function.call(Buffers{buffer(a), buffer(b), buffer(y)}, numbers));
  EXPECT_EQ(values<float>(y), (Floats{10, 20, 30, 40}));
}

TEST_F(DeviceFunctionTest, WritesArgumentsAndReadsWhatIsOutside) {
  const Tensor outside = tensor<float>({4}, {1, 1, 2, 2});
  materialize(outside);
  const Tensor stand_in = promised({4});
  DeviceFunction function(cpu());
  ASSERT_TRUE(function.begin(Buffers{buffer(stand_in)}));
  copy_into(add(stand_in, outside), stand_in);
  function.end(Buffers{});
  EXPECT_TRUE(function.writes(0));
  const Tensor x = tensor<float>({4}, {0, 10, 20, 30});
  for (int k = 0; k < 2; ++k) ASSERT_TRUE(function.call(Buffers{buffer(x)}, function.numbers()));
  EXPECT_EQ(values<float>(x), (Floats{2, 12, 24, 34}));
  EXPECT_FALSE(function.call(Buffers{buffer(outside)}, function.numbers()));
  mark_exported(*x.buffer());
  EXPECT_FALSE(function.call(Buffers{buffer(x)}, function.numbers()));
  unmark_exported(*x.buffer());
  EXPECT_TRUE(function.call(Buffers{buffer(x)}, function.numbers()));
}

TEST_F(DeviceFunctionTest, OtherThreadsGoOn) {
  const Tensor a = promised({4});
  DeviceFunction function(cpu());
  ASSERT_TRUE(function.begin(Buffers{buffer(a)}));
  EXPECT_TRUE(is_capturing_function());
  std::thread([] {
    EXPECT_FALSE(is_capturing_graph());
    EXPECT_FALSE(Example().begun);  // one at a time
    EXPECT_EQ(values<float>(add(tensor<float>({2}, {1, 2}), 1.0)), (Floats{2, 3}));
  }).join();
  expect_error(ErrorKind::kState, "has no value yet", [&] { materialize(*a.buffer()); });
  function.abandon();
  EXPECT_FALSE(is_capturing_graph());
  EXPECT_TRUE(Example().begun);
}

// What a sealing thread is asked while it holds no lock: then another thread records an op.
std::function<void()> g_meanwhile;  // NOLINT(cert-err58-cpp): empty
constexpr LaunchObserver kMeanwhile{
    .wanted = [] { return true; },
    .begin = [](const Launch&) -> void* { return nullptr; },
    .end = [](void*) {},
    .share = []() -> void* {
      if (auto meanwhile = std::exchange(g_meanwhile, nullptr)) std::thread(meanwhile).join();
      return nullptr;
    },
    .enter = [](void*) {},
    .leave = [](void*) {},
};

TEST_F(DeviceFunctionTest, AnOpOfAnotherThreadDuringACallIsKept) {
  Example example;
  const Tensor a = tensor<float>({4}, {1, 2, 3, 4}), b = tensor<float>({4}, {0, 0, 0, 0});
  const Tensor y = promised({4});
  flush(cpu());
  Tensor other;
  g_meanwhile = [&] { other = add(b, 5.0); };
  set_launch_observer(&kMeanwhile);
  EXPECT_TRUE(
      example.function.call(Buffers{buffer(a), buffer(b), buffer(y)}, example.function.numbers()));
  set_launch_observer(nullptr);
  EXPECT_EQ(g_meanwhile, nullptr);
  EXPECT_EQ(values<float>(other), (Floats{5, 5, 5, 5}));
  EXPECT_EQ(values<float>(y), (Floats{2, 4, 6, 8}));
}

TEST_F(DeviceFunctionTest, ThreadsCallAndRecordInTurns) {
  constexpr int kThreads = 8;
  const int rounds = kThreadSanitizer ? 500 : 25000;
  std::atomic<int> wrong{0};
  const auto run = [&](int t) {
    std::optional<Example> made;
    do made.emplace();
    while (!made->begun);  // one captures at a time
    DeviceFunction& function = made->function;
    const float factor = static_cast<float>(t + 1);
    const Tensor a = tensor<float>({4}, {factor, 2 * factor, 3, 4});
    const Tensor b = tensor<float>({4}, {0, 1, -9, 3});
    const Floats expected{2 * factor, 4 * factor + 1, 0, 11};
    for (int round = 0; round < rounds; ++round) {
      const Tensor y = promised({4});
      const bool called =
          function.call(Buffers{buffer(a), buffer(b), buffer(y)}, function.numbers());
      const Tensor z = relu(add(mul(a, 2.0), b));
      if (!called || values<float>(y) != expected || values<float>(z) != expected) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(run, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(DeviceFunctionTest, MisuseIsAnError) {
  Example example;
  expect_error(ErrorKind::kState, "make another one", [&] { (void)example.function.begin({}); });
  expect_error(ErrorKind::kState, "did not begin() it", [&] { example.function.end({}); });
  expect_error(ErrorKind::kInvalidArgument, "2 arguments and 1 results, got 0 buffers",
               [&] { (void)example.function.call({}, {}); });
  DeviceFunction none(cpu());
  expect_error(ErrorKind::kState, "nothing was captured", [&] { (void)none.call({}, {}); });
}

TEST_F(DeviceFunctionTest, NothingWhereNothingIsRecorded) {
  Example example;
  const Tensor a = tensor<float>({4}, {1, 2, 3, 4}), b = tensor<float>({4}, {0, 0, 0, 0});
  const Tensor y = promised({4});
  set_deferring(false);
  EXPECT_FALSE(Example().begun);
  EXPECT_FALSE(
      example.function.call(Buffers{buffer(a), buffer(b), buffer(y)}, example.function.numbers()));
  set_deferring(true);
}

}  // namespace
}  // namespace hologram
