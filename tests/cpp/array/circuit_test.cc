// SPDX-License-Identifier: MIT
// Circuits made by hand: what they record, become and compute, again and again.
#include "hologram/circuit.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hologram/error.h"
#include "hologram/functions.h"
#include "hologram/memory.h"
#include "tests/cpp/array/support.h"

namespace hologram {
namespace {

Tensor floats(Shape shape, const std::vector<float>& values) {
  return tensor(std::move(shape), values);
}
using Floats = std::vector<float>;

struct Chain {
  Circuit circuit{cpu()};
  Tensor a = circuit.input({4}, Dtype::kFloat32), b = circuit.input({4}, Dtype::kFloat32);
  Chain() {
    circuit.record([&] { circuit.output(add(mul(relu(add(mul(a, b), a)), 2.0), b)); });
  }
};

TEST(Circuit, RunsOnOtherTensorsAgainAndAgain) {
  Chain chain;
  chain.circuit.compile();
  const CircuitStats stats = chain.circuit.stats();
  EXPECT_EQ(stats.ops, 5);
  EXPECT_EQ(stats.kernels, 1);
  EXPECT_LT(stats.bytes_moved, stats.bytes_unfused);
  const RecorderStats before = recorder_stats(cpu());
  for (int round = 1; round <= 3; ++round) {
    const auto r = static_cast<float>(round);
    const Tensor x = floats({4}, {r, -1, 2, 0}), y = floats({4}, {1, 1, r, 3});
    const std::vector<Tensor> results = chain.circuit.run({x, y});
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(values<float>(results[0]), (Floats{4 * r + 1, 1, 4 * (r + 1) + r, 3}));
  }
  const RecorderStats after = recorder_stats(cpu());
  EXPECT_EQ(after.plan_misses, before.plan_misses);
  EXPECT_EQ(after.plan_hits, before.plan_hits + 3);
}

TEST(Circuit, TakesWhatIsNotRowMajorAndWhatIsTwice) {
  Chain chain;
  const Tensor both = floats({2, 4}, {9, 9, 9, 9, 1, 2, 3, 4});
  const Tensor row = both.select(0, 1);
  EXPECT_EQ(values<float>(chain.circuit.run({row, row})[0]), (Floats{5, 14, 27, 44}));
  const Tensor column = both.transpose(0, 1).reshape({4, 2}).select(1, 1);
  EXPECT_EQ(values<float>(chain.circuit.run({column, row})[0]), (Floats{5, 14, 27, 44}));
}

TEST(Circuit, ReadsAndWritesTensorsFromOutside) {
  const Tensor weight = floats({3}, {1, 2, 3});
  Circuit circuit(cpu());
  const Tensor x = circuit.input({3}, Dtype::kFloat32);
  circuit.record([&] {
    circuit.output(mul(x, weight));
    apply_into(OpId::sub, {weight, 1.0}, weight);
  });
  EXPECT_EQ(values<float>(weight), (Floats{1, 2, 3}));  // recorded, not run
  const Tensor ones = floats({3}, {1, 1, 1});
  EXPECT_EQ(values<float>(circuit.run({ones})[0]), (Floats{1, 2, 3}));
  EXPECT_EQ(values<float>(circuit.run({ones})[0]), (Floats{0, 1, 2}));
  fill_into(5, weight);
  EXPECT_EQ(values<float>(circuit.run({ones})[0]), (Floats{5, 5, 5}));
  EXPECT_EQ(values<float>(weight), (Floats{4, 4, 4}));
}

TEST(Circuit, WritesItsInputs) {
  Circuit circuit(cpu());
  const Tensor x = circuit.input({2}, Dtype::kFloat32);
  circuit.record([&] {
    apply_into(OpId::add, {x, 1}, x);
    circuit.output(x);
  });
  const Tensor given = floats({2}, {1, 2});
  const Tensor result = circuit.run({given})[0];
  EXPECT_EQ(result.buffer(), given.buffer());
  EXPECT_EQ(values<float>(given), (Floats{2, 3}));
  const Tensor part = floats({3}, {1, 2, 3}).narrow(0, 1, 2);
  expect_error(ErrorKind::kInvalidArgument, "input 0 is written by the circuit",
               [&] { circuit.run({part}); });
}

TEST(Circuit, HoldsReductionsProductsAndViews) {
  Circuit circuit(cpu());
  const Tensor x = circuit.input({4, 8}, Dtype::kFloat32),
               w = circuit.input({8, 3}, Dtype::kFloat32);
  circuit.record([&] {
    const Tensor y = matmul(x, w);
    circuit.output(softmax(y, 1));
    circuit.output(reduce(Reduction::sum, y, {.dims = std::vector{0}}));
    circuit.output(y.transpose(0, 1));
  });
  Floats a(32), b(24);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 5) - 2;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 7) - 3;
  const Tensor left = floats({4, 8}, a), right = floats({8, 3}, b);
  const std::vector<Tensor> got = circuit.run({left, right});
  const Tensor y = matmul(left, right);
  EXPECT_EQ(values<float>(got[0]), values<float>(softmax(y, 1)));
  EXPECT_EQ(values<float>(got[1]),
            values<float>(reduce(Reduction::sum, y, {.dims = std::vector{0}})));
  EXPECT_EQ(values<float>(got[2]), values<float>(y.transpose(0, 1)));
}

TEST(Circuit, DropsWhatIsNotRead) {
  Circuit circuit(cpu());
  const Tensor x = circuit.input({16}, Dtype::kFloat32);
  circuit.record([&] {
    const Tensor unused = exp(x);
    circuit.output(add(mul(x, x), mul(x, x)));
  });
  circuit.canonicalize();
  EXPECT_EQ(circuit.stats().ops, 4);
  EXPECT_GE(circuit.stats().dead, 1);
  EXPECT_EQ(circuit.stats().kernels, 1);
  EXPECT_NE(circuit.print().find("exp"), std::string::npos);  // as recorded
  EXPECT_NE(circuit.json().find("\"plan\": {"), std::string::npos);
}

TEST(Circuit, EqualMeaningsHashEqual) {
  const auto hash = [](bool twice) {
    Circuit circuit(cpu());
    const Tensor x = circuit.input({16}, Dtype::kFloat32);
    circuit.record([&] {
      const Tensor a = exp(x);
      circuit.output(add(a, twice ? exp(x) : a));
    });
    circuit.canonicalize();
    return circuit.stats().canonical_hash;
  };
  EXPECT_EQ(hash(false), hash(true));
}

TEST(Circuit, WorksWhereExecutionIsEager) {
  set_deferring(false);
  Chain chain;
  const Tensor ones = full({4}, 1.0, Dtype::kFloat32, cpu());
  const std::vector<Tensor> got = chain.circuit.run({ones, ones});
  ASSERT_NE(got[0].data(), nullptr);
  EXPECT_EQ(static_cast<const float*>(got[0].data())[3], 5);
  set_deferring(true);
}

TEST(Circuit, ErrorsSayWhatToDo) {
  Chain chain;
  Circuit& c = chain.circuit;
  expect_error(ErrorKind::kState, "stands for a value of a Circuit",
               [&] { values<float>(chain.a); });
  expect_error(ErrorKind::kState, "stands for a value of a Circuit",
               [&] { values<float>(add(chain.a, 1)); });
  const Tensor ones = full({4}, 1.0, Dtype::kFloat32, cpu());
  expect_error(ErrorKind::kInvalidArgument, "the circuit has 2 inputs, got 1",
               [&] { c.run({ones}); });
  expect_error(ErrorKind::kInvalidArgument, "input 1 is float32[4], got int32[4]", [&] {
    c.run({ones, full({4}, 1, Dtype::kInt32, cpu())});
  });
  expect_error(ErrorKind::kState, "declare all inputs before the first op",
               [&] { c.input({4}, Dtype::kFloat32); });
  expect_error(ErrorKind::kState, "canonical already", [&] { c.begin(); });
  Circuit other(cpu());
  expect_error(ErrorKind::kState, "nothing that the circuit computes would be seen",
               [&] { other.compile(); });
  expect_error(ErrorKind::kInvalidArgument, "neither takes nor computes",
               [&] { other.output(ones); });
  const Tensor x = other.input({4}, Dtype::kFloat32);
  other.begin();
  expect_error(ErrorKind::kState, "this thread is recording a circuit already",
               [&] { Circuit(cpu()).begin(); });
  expect_error(ErrorKind::kState, "still being recorded", [&] { other.canonicalize(); });
  expect_error(ErrorKind::kState, "this thread is recording a circuit", [&] {
    c.run({ones, ones});
  });
  other.end();
  // A circuit that goes away while it records leaves the thread as it was.
  {
    Circuit gone(cpu());
    gone.begin();
  }
  EXPECT_EQ(values<float>(add(ones, 1))[0], 2);
}

}  // namespace
}  // namespace hologram
