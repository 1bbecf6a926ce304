// SPDX-License-Identifier: MIT
// Calls of the catalogue through handles: by name, with lists, and refusals.
#include <cmath>
#include <string>

#include "tests/abi/support.h"

namespace hologram::capi_test {
namespace {

constexpr int kBad = HOLOGRAM_INVALID_ARGUMENT;

// A buffer's elements under a shape.
class Shaped {
 public:
  Shaped(uint64_t ex, const std::vector<float>& values, std::vector<int64_t> shape)
      : buffer_(ex, values) {
    EXPECT_OK(hologram_tensor_from_buffer(buffer_, 0, static_cast<int>(shape.size()), shape.data(),
                                          nullptr, &handle_));
  }
  ~Shaped() { hologram_tensor_cleanup(handle_); }
  Shaped(const Shaped&) = delete;
  operator uint64_t() const { return handle_; }  // NOLINT
  std::vector<float> values() const { return buffer_.values(); }

 private:
  Buffer buffer_;
  uint64_t handle_ = 0;
};

// What a tensor holds; its handle is freed.
std::vector<float> taken(uint64_t ex, uint64_t tensor, size_t n) {
  uint64_t buffer = 0;
  std::vector<float> values(n);
  EXPECT_OK(hologram_tensor_as_buffer(tensor, &buffer));
  EXPECT_OK(hologram_buffer_to_bytes(ex, buffer, values.data(), n * sizeof(float)));
  EXPECT_OK(hologram_buffer_cleanup(buffer));
  EXPECT_OK(hologram_tensor_cleanup(tensor));
  return values;
}

TEST(Calls, AreListedWithTheirSchemas) {
  int count = 0;
  ASSERT_OK(hologram_call_count(&count));
  bool found = false;
  for (int i = 0; i < count; ++i) {
    const char *name = nullptr, *schema = nullptr, *doc = nullptr;
    ASSERT_OK(hologram_call_info(i, &name, &schema, &doc));
    EXPECT_NE(std::string(schema).find("->"), std::string::npos) << name;
    EXPECT_FALSE(std::string(doc).empty()) << name;
    found = found || std::string(name) == "layer_norm";
  }
  EXPECT_TRUE(found);
  const std::string many = "call_info: index is " + std::to_string(count) + "; there are " +
                           std::to_string(count) + " calls";
  EXPECT_REFUSED(hologram_call_info(count, nullptr, nullptr, nullptr), HOLOGRAM_INDEX, many);
  EXPECT_REFUSED_WITH(hologram_call_count(nullptr), kBad, "count");
}

TEST(Calls, GiveTheirResults) {
  const Executor ex;
  const Shaped x(ex, {1, 2, 3, 4, -1, 1, -1, 1}, {2, 4});
  const Shaped weight(ex, {1, 1, 2, 2}, {4});
  const uint64_t inputs[] = {x, weight, 0};
  const hologram_argument eps = {"eps", 0.0, nullptr, 0};
  uint64_t results[3] = {};
  int count = 0;
  ASSERT_OK(hologram_call("layer_norm", inputs, nullptr, 3, &eps, 1, results, 3, &count));
  EXPECT_EQ(count, 3);
  const double unit = 1 / std::sqrt(1.25);
  const std::vector<float> y = taken(ex, results[0], 8);
  const double want[] = {-1.5 * unit, -0.5 * unit, unit, 3 * unit, -1, 1, -2, 2};
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(y[i], want[i], 1e-5) << i;
  EXPECT_NEAR(taken(ex, results[1], 2)[0], 2.5, 1e-6);
  EXPECT_NEAR(taken(ex, results[2], 2)[0], unit, 1e-5);
}

TEST(Calls, TakeListsAndWriteInPlace) {
  const Executor ex;
  const Shaped p(ex, {1, 2}, {2}), q(ex, {3}, {1}), dp(ex, {10, 20}, {2}), dq(ex, {30}, {1});
  const uint64_t inputs[] = {0, 0, p, q, dp, dq};
  const int counts[] = {1, 1, 2, 2, 0};
  const hologram_argument lr = {"lr", 0.5, nullptr, 0};
  ASSERT_OK(hologram_call("sgd", inputs, counts, 5, &lr, 1, nullptr, 0, nullptr));
  EXPECT_EQ(p.values(), (std::vector<float>{-4, -8}));
  EXPECT_EQ(q.values(), (std::vector<float>{-12}));
}

TEST(Calls, AreRefusedByName) {
  const Executor ex;
  const Shaped x(ex, {1, 2, 3, 4}, {2, 2});
  const uint64_t inputs[] = {x};
  uint64_t results[3] = {7, 7, 7};
  const auto call = [&](const char* name, const hologram_argument* given, int n, int capacity) {
    return hologram_call(name, inputs, nullptr, 1, given, n, results, capacity, nullptr);
  };
  EXPECT_REFUSED(call("layer_nrom", nullptr, 0, 3), kBad,
                 "call: there is no call \"layer_nrom\"; call_ops() lists those of this version");
  EXPECT_REFUSED_WITH(call(nullptr, nullptr, 0, 3), kBad, "name");
  EXPECT_REFUSED(call("layer_norm", nullptr, 0, 2), kBad,
                 "call: capacity is 2 but layer_norm has 3 results");
  const hologram_argument wrong = {"axis", 1, nullptr, 0};
  EXPECT_REFUSED_WITH(call("layer_norm", &wrong, 1, 3), kBad,
                      "layer_norm: has no parameter \"axis\"");
  const int64_t two[] = {1, 1};
  const hologram_argument several = {"axes", 0, two, 2};
  EXPECT_REFUSED_WITH(call("layer_norm", &several, 1, 3), kBad, "axes is one number, not several");
  const hologram_argument nameless = {nullptr, 1, nullptr, 0};
  EXPECT_REFUSED_WITH(call("layer_norm", &nameless, 1, 3), kBad, "arguments[].name");
  const hologram_argument negative = {"axes", 0, two, -1};
  EXPECT_REFUSED_WITH(call("layer_norm", &negative, 1, 3), kBad, "axes: count is -1");
  EXPECT_REFUSED_WITH(
      hologram_call("layer_norm", inputs, nullptr, -1, nullptr, 0, results, 3, nullptr), kBad,
      "n_inputs is -1");
  EXPECT_REFUSED_WITH(
      hologram_call("layer_norm", inputs, nullptr, 1, nullptr, -1, results, 3, nullptr), kBad,
      "n_arguments is -1");
  const int counts[] = {-1};
  EXPECT_REFUSED_WITH(
      hologram_call("layer_norm", inputs, counts, 1, nullptr, 0, results, 3, nullptr), kBad,
      "counts[0] is -1");
  const uint64_t stale[] = {x + 1};
  EXPECT_NE(hologram_call("layer_norm", stale, nullptr, 1, nullptr, 0, results, 3, nullptr),
            HOLOGRAM_OK);
  const uint64_t pair[] = {x, x};
  const int both[] = {2};
  EXPECT_REFUSED_WITH(hologram_call("layer_norm", pair, both, 1, nullptr, 0, results, 3, nullptr),
                      kBad, "input 0 of layer_norm is one tensor");
  EXPECT_REFUSED_WITH(call("matmul", nullptr, 0, 3), kBad, "matmul: has functions of its own");
  for (const uint64_t result : results) EXPECT_EQ(result, 7u);
}

}  // namespace
}  // namespace hologram::capi_test
