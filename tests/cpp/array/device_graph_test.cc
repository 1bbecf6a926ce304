// SPDX-License-Identifier: MIT
// Graphs of a device: captured once, replayed on the same memory.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <thread>
#include <vector>

#include "hologram/error.h"
#include "hologram/functions.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"
#include "tests/cpp/array/support.h"

namespace hologram {
namespace {

using Floats = std::vector<float>;

Tensor floats(Shape shape, const Floats& values) { return tensor(std::move(shape), values); }

// A tensor with memory.
Tensor settled(Shape shape, const Floats& values) {
  Tensor t = floats(std::move(shape), values);
  materialize(t);
  return t;
}

class DeviceGraphTest : public ::testing::Test {
 protected:
  void SetUp() override { set_deferring(true); }
};

TEST_F(DeviceGraphTest, ReplaysOnTheSameMemory) {
  const Tensor x = settled({4}, {1, 2, 3, 4});
  DeviceGraph graph(cpu());
  EXPECT_FALSE(graph.is_captured());
  graph.begin();
  EXPECT_TRUE(graph.is_capturing());
  EXPECT_TRUE(is_capturing_graph());
  const Tensor y = relu(add(mul(x, 2.0), -5.0));
  graph.end();
  EXPECT_FALSE(is_capturing_graph());
  graph.prepare();
  const DeviceGraph::Stats stats = graph.stats();
  EXPECT_EQ(stats.ops, 3);
  EXPECT_EQ(stats.kernels, 1);
  EXPECT_EQ(stats.bytes_moved, 2 * 16);
  EXPECT_EQ(stats.bytes_kept, 0);
  graph.replay();
  EXPECT_EQ(values<float>(y), (Floats{0, 0, 1, 3}));
  fill_into(10.0, x);
  graph.replay();
  EXPECT_EQ(values<float>(y), (Floats{15, 15, 15, 15}));
  EXPECT_NE(graph.print().find("relu("), std::string::npos);
}

TEST_F(DeviceGraphTest, NumbersMayChangeBetweenReplays) {
  const Tensor x = settled({2}, {1, 2});
  DeviceGraph graph(cpu());
  graph.begin();
  const Tensor y = mul(x, 3.0);
  graph.end();
  ASSERT_EQ(graph.numbers().size(), 1u);
  graph.replay();
  EXPECT_EQ(values<float>(y), (Floats{3, 6}));
  graph.numbers()[0] = std::bit_cast<uint32_t>(5.0f);
  graph.replay();
  EXPECT_EQ(values<float>(y), (Floats{5, 10}));
}

TEST_F(DeviceGraphTest, ValuesThatNobodySeesShareMemory) {
  constexpr int64_t n = 64;
  const Tensor w = settled({n, n}, Floats(n * n, 1.0f / n));
  const Tensor x = settled({n, n}, Floats(n * n, 2.0f));
  DeviceGraph graph(cpu());
  graph.begin();
  Tensor y = x;
  for (int i = 0; i < 12; ++i) y = matmul(y, w);
  graph.end();
  graph.prepare();
  const DeviceGraph::Stats stats = graph.stats();
  constexpr int64_t kBytes = n * n * 4;
  EXPECT_EQ(stats.bytes_wanted, 11 * kBytes);
  EXPECT_LE(stats.bytes_kept, 3 * kBytes);
  for (int i = 0; i < 3; ++i) graph.replay();
  for (const float value : values<float>(y)) ASSERT_EQ(value, 2.0f);
}

TEST_F(DeviceGraphTest, TakesWhatAllThreadsRecord) {
  const Tensor x = settled({3}, {1, 2, 3});
  Tensor y;
  DeviceGraph graph(cpu());
  graph.begin();
  std::thread([&] { y = add(x, 1.0); }).join();
  const Tensor z = add(y, 1.0);
  graph.end();
  graph.replay();
  EXPECT_EQ(values<float>(y), (Floats{2, 3, 4}));
  EXPECT_EQ(values<float>(z), (Floats{3, 4, 5}));
}

TEST_F(DeviceGraphTest, RoundsAsTheThreadThatBegan) {
  const Tensor x = settled({1}, {0x1p-126f});
  DeviceGraph graph(cpu());
  const uint32_t before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | 0x8040);  // denormal numbers are zero
  graph.begin();
  const Tensor y = mul(x, 0.5);
  graph.end();
  __builtin_ia32_ldmxcsr(before);
  graph.replay();
  EXPECT_EQ(values<float>(y), (Floats{0}));
}

TEST_F(DeviceGraphTest, ThreadsRecordWhileAnotherReplays) {
  const Tensor x = settled({1000}, Floats(1000, 2.0f));
  DeviceGraph graph(cpu());
  graph.begin();
  const Tensor y = mul(tanh(x), 2.0);
  graph.end();
  graph.replay();
  const Floats expected = values<float>(y);
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) {
      const Tensor z = add(floats({3}, {1, 2, 3}), 1.0);
      ASSERT_EQ(values<float>(z), (Floats{2, 3, 4}));
    }
  });
  for (int i = 0; i < 300; ++i) {
    graph.replay();
    ASSERT_EQ(values<float>(y), expected);
  }
  done = true;
  other.join();
}

TEST_F(DeviceGraphTest, ReusesItselfAfterReset) {
  const Tensor x = settled({2}, {1, 2});
  DeviceGraph graph(cpu());
  graph.begin();
  const Tensor y = add(x, 1.0);
  graph.end();
  graph.replay();
  graph.reset();
  EXPECT_FALSE(graph.is_captured());
  EXPECT_EQ(values<float>(y), (Floats{2, 3})) << "results keep their memory";
  graph.begin();
  const Tensor z = mul(y, 10.0);
  graph.end();
  graph.replay();
  EXPECT_EQ(values<float>(z), (Floats{20, 30}));
  graph.reset();
  graph.begin();
  graph.reset();  // gives up the capture
  EXPECT_FALSE(is_capturing_graph());
  EXPECT_EQ(values<float>(add(x, 1.0)), (Floats{2, 3}));
}

TEST_F(DeviceGraphTest, Errors) {
  const Tensor x = settled({2}, {1, 2});
  DeviceGraph graph(cpu()), other(cpu());
  EXPECT_ERROR(graph.end(), ErrorKind::kState, "the graph is not being captured");
  EXPECT_ERROR(graph.prepare(), ErrorKind::kState, "nothing was captured");
  EXPECT_ERROR(graph.replay(), ErrorKind::kState, "nothing was captured");
  other.begin();
  other.end();
  graph.begin();
  const Tensor y = add(x, 1.0);
  EXPECT_ERROR(graph.begin(), ErrorKind::kState, "holds what it captured before");
  EXPECT_ERROR(DeviceGraph(cpu()).begin(), ErrorKind::kState, "is being recorded already");
  EXPECT_ERROR(other.replay(), ErrorKind::kState, "a graph is being captured");
  EXPECT_ERROR(materialize(y), ErrorKind::kState, "computed by the graph that is being captured");
  graph.end();
  EXPECT_ERROR(graph.begin(), ErrorKind::kState, "holds what it captured before");
  graph.replay();
  EXPECT_EQ(values<float>(y), (Floats{2, 3}));
}

}  // namespace
}  // namespace hologram
