// SPDX-License-Identifier: MIT
// Calls on floats with every kind of operand, for tests.
#pragma once

#include <cstring>
#include <vector>

#include "hologram/call.h"

namespace hologram::circuit::testing {

// PlanLimits::call_result of a device that keeps calls apart.
inline bool no_result(uint16_t /*kind*/, const uint64_t* /*attributes*/, CallResult& /*result*/) {
  return false;
}

struct TestOperand {
  bool reads, writes, covers;
  bool one = false;       // one float; else as many as attribute 0 says
  bool optional = false;  // may be missing
};

struct TestCall {
  uint16_t kind;
  std::vector<TestOperand> operands;
};

// Operands may overlap: what is read is read before anything is written.
inline std::vector<float> floats_at(const char* at, uint64_t n) {
  std::vector<float> values(n);
  if (at != nullptr) std::memcpy(values.data(), at, 4 * n);
  return values;
}
inline void put_floats(char* at, const std::vector<float>& values) {
  std::memcpy(at, values.data(), 4 * values.size());
}

inline const std::vector<TestCall>& test_calls() {
  static const auto* calls = new std::vector<TestCall>{
      // A result of two columns, which others may read element by element: differences to the first
      // of x.
      {register_call({.name = "test_result",
                      .run =
                          [](const CallArguments& c) {
                            auto x = floats_at(c.operands[1], c.attributes[0]);
                            const float first = x[0];
                            for (float& v : x) v -= first;
                            put_floats(c.operands[0], x);
                          },
                      .result =
                          [](const uint64_t* attributes, CallResult& result) {
                            result.rows = static_cast<int64_t>(attributes[0] / 2);
                            result.cols = 2;
                            return attributes[0] % 2 == 0;
                          }}),
       {{false, true, true}, {true, false, false}}},
      // The same of as many columns as x has sixths, adding to what is there.
      {register_call({.name = "test_adding_result",
                      .run =
                          [](const CallArguments& c) {
                            auto out = floats_at(c.operands[0], c.attributes[0]);
                            const auto x = floats_at(c.operands[1], c.attributes[0]);
                            for (size_t i = 0; i < x.size(); ++i) out[i] += x[x.size() - 1 - i];
                            put_floats(c.operands[0], out);
                          },
                      .result =
                          [](const uint64_t* attributes, CallResult& result) {
                            result.rows = 6;
                            result.cols = static_cast<int64_t>(attributes[0] / 6);
                            return attributes[0] % 6 == 0;
                          }}),
       {{true, true, true}, {true, false, false}}},
      // Two groups of three rows, behind what it is made of: twice x.
      {register_call({.name = "test_grouped_result",
                      .run =
                          [](const CallArguments& c) {
                            auto x = floats_at(c.operands[0], c.attributes[0]);
                            for (float& v : x) v += v;
                            put_floats(c.operands[1], x);
                          },
                      .result =
                          [](const uint64_t* attributes, CallResult& result) {
                            result.rows = 6;
                            result.cols = static_cast<int64_t>(attributes[0] / 6);
                            result.group = 3;
                            result.operand = 1;
                            return attributes[0] % 6 == 0;
                          }}),
       {{true, false, false}, {false, true, true}}},
      {register_call({"test_reverse",
                      [](const CallArguments& c) {
                        const auto in = floats_at(c.operands[0], c.attributes[0]);
                        put_floats(c.operands[1], {in.rbegin(), in.rend()});
                      }}),
       {{true, false, false}, {false, true, true}}},
      // y += number * x, and + z where there is one.
      {register_call({"test_axpy",
                      [](const CallArguments& c) {
                        float scale;
                        std::memcpy(&scale, c.numbers, 4);
                        auto y = floats_at(c.operands[0], c.attributes[0]);
                        const auto x = floats_at(c.operands[1], c.attributes[0]);
                        const auto z = floats_at(c.operands[2], c.attributes[0]);
                        for (size_t i = 0; i < y.size(); ++i) y[i] += scale * x[i] + z[i];
                        put_floats(c.operands[0], y);
                      }}),
       {{true, true, true}, {true, false, false}, {true, false, false, false, true}}},
      // Sums up to each element, and the last of them.
      {register_call({"test_sums",
                      [](const CallArguments& c) {
                        auto sums = floats_at(c.operands[0], c.attributes[0]);
                        for (size_t i = 1; i < sums.size(); ++i) sums[i] += sums[i - 1];
                        put_floats(c.operands[1], sums);
                        put_floats(c.operands[2], {sums.back()});
                      }}),
       {{true, false, false}, {false, true, true}, {false, true, true, true}}},
      // Every other element, the rest stays.
      {register_call({"test_evens",
                      [](const CallArguments& c) {
                        for (uint64_t i = 0; i < c.attributes[0]; i += 2) {
                          std::memcpy(c.operands[0] + 4 * i, c.numbers, 4);
                        }
                      }}),
       {{false, true, false}}},
  };
  return *calls;
}

}  // namespace hologram::circuit::testing
