// SPDX-License-Identifier: MIT
// Functions on tensors compute in the float mode of their call: deferred, in threads, in circuits
// made by hand.
#if defined(__SSE__)
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hologram/circuit.h"
#include "hologram/functions.h"
#include "hologram/memory.h"
#include "hologram/parallel.h"
#include "src/runtime/recording/circuit_worker.h"
#include "src/runtime/recording/recorder.h"
#include "tests/cpp/runtime/float_modes.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

// Half of it denormal.
Tensor tricky(Shape shape, unsigned seed) {
  std::mt19937 random(seed);
  Tensor t = full(std::move(shape), 0.0, Dtype::kFloat32, cpu());
  materialize(t);
  for (int64_t i = 0; i < t.numel(); ++i) {
    const float x = static_cast<float>(random() % 2001) / 1000.f - 1.f;
    static_cast<float*>(t.data())[i] = random() % 2 == 0 ? x : x * 1e-38f;
  }
  return t;
}

std::vector<char> bytes(const Tensor& t) {
  const Tensor whole = contiguous(t);
  materialize(whole);
  const auto* data = static_cast<const char*>(whole.data());
  return {data, data + whole.nbytes()};
}

struct Case {
  const char* name;
  std::function<Tensor(const Tensor&, const Tensor&)> call;
};
// On matrices of 96 x 96.
const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {"mul", [](auto& a, auto& b) { return mul(a, b); }},
      {"chain", [](auto& a, auto& b) { return add(mul(mul(a, b), 0.1), exp(div(a, 3.0))); }},
      {"matmul", [](auto& a, auto& b) { return matmul(a, b); }},
      {"relu(matmul)", [](auto& a, auto& b) { return relu(add(matmul(a, b), b)); }},
      {"sum", [](auto& a, auto&) { return reduce(Reduction::sum, a, {.dims = std::vector{1}}); }},
      {"columns",
       [](auto& a, auto&) { return reduce(Reduction::mean, a, {.dims = std::vector{0}}); }},
      {"norm", [](auto& a, auto&) { return reduce(Reduction::norm, a, {.dims = std::vector{1}}); }},
      {"amax", [](auto& a, auto&) { return reduce(Reduction::amax, a, {.dims = std::vector{1}}); }},
      {"softmax", [](auto& a, auto&) { return softmax(a, 1); }},
      {"log_softmax", [](auto& a, auto&) { return log_softmax(a, 0); }},
      {"cumsum", [](auto& a, auto&) { return cumsum(a, 1); }},
      {"float64", [](auto& a, auto&) { return cast(a, Dtype::kFloat64); }},
      {"float16", [](auto& a, auto&) { return cast(mul(a, 0.1), Dtype::kFloat16); }},
      {"bfloat16", [](auto& a, auto&) { return cast(mul(a, 0.1), Dtype::kBFloat16); }},
      {"int32", [](auto& a, auto&) { return cast(mul(a, 7.0), Dtype::kInt32); }},
      {"turned", [](auto& a, auto& b) { return sub(a.transpose(0, 1), b); }},
  };
  return list;
}

class FloatModeOfFunctions : public ::testing::Test {
 protected:
  void SetUp() override {
    set_deferring(true);
    threads_ = num_threads();
  }
  void TearDown() override {
    set_deferring(true);
    set_num_threads(threads_);
    internal::set_circuit_worker(false);
  }

 private:
  int threads_ = 1;
};

TEST_F(FloatModeOfFunctions, IsThatOfTheCall) {
  const Tensor a = tricky({96, 96}, 1), b = tricky({96, 96}, 2);
  int different = 0;
  for (const bool worker : {false, true}) {
    internal::set_circuit_worker(worker);
    for (const int threads : {1, 4}) {
      set_num_threads(threads);
      for (const unsigned mode : {kFlush, kUp}) {
        for (const Case& c : cases()) {
          const std::string where = std::string(c.name) + ", mode " + std::to_string(mode);
          std::vector<char> want, plain;
          set_deferring(false);
          plain = bytes(c.call(a, b));
          Tensor result, other;
          {
            const InMode here(mode);
            want = bytes(c.call(a, b));
            set_deferring(true);
            result = c.call(a, b);
          }
          different += want != plain ? 1 : 0;
          other = c.call(a, b);
          if (worker) internal::Recorder::of(cpu()).hand_over();
          std::thread([&] { materialize(result); }).join();
          EXPECT_EQ(bytes(result), want) << where;
          EXPECT_EQ(bytes(other), plain) << where;
          EXPECT_EQ(_mm_getcsr() & kMode, 0u) << where;
        }
      }
    }
  }
  EXPECT_GT(different, 60) << "modes make a difference in most of the cases";
}

// The ops of a circuit made by hand are called when it runs.
TEST_F(FloatModeOfFunctions, ACircuitRunsInThatOfItsRun) {
  const Tensor a = tricky({96, 96}, 3), b = tricky({96, 96}, 4);
  for (const Case& c : cases()) {
    Circuit circuit(cpu());
    const Tensor x = circuit.input({96, 96}, Dtype::kFloat32);
    const Tensor y = circuit.input({96, 96}, Dtype::kFloat32);
    circuit.record([&] { circuit.output(c.call(x, y)); });
    for (const unsigned mode : {0u, kFlush, kUp, 0u}) {
      std::vector<char> want;
      std::vector<Tensor> results;
      {
        const InMode here(mode);
        set_deferring(false);
        want = bytes(c.call(a, b));
        set_deferring(true);
        results = circuit.run({a, b});
      }
      EXPECT_EQ(bytes(results[0]), want) << c.name << ", mode " << mode;
    }
  }
}

}  // namespace
}  // namespace hologram
#endif
