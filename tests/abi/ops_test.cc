// SPDX-License-Identifier: MIT
// Ops through handles: recorded and at once, in place and over memory that overlaps, and refusals.
#include <cmath>
#include <cstring>
#include <functional>

#include "hologram/dlpack.h"
#include "tests/abi/support.h"

namespace hologram::capi_test {
namespace {

constexpr int kBad = HOLOGRAM_INVALID_ARGUMENT;

std::vector<float> ramp(int64_t n, float start = -2.0f, float step = 0.37f) {
  std::vector<float> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    values[static_cast<size_t>(i)] = start + step * static_cast<float>(i);
  return values;
}

// A window on memory of the test as a buffer: foreign memory, on which ops run at their calls.
class Window {
 public:
  Window(float* memory, int64_t n) : shape_(n) {
    managed_.version = {1, 0};
    managed_.dl_tensor = {memory, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, &shape_, nullptr, 0};
    uint64_t tensor = 0;
    EXPECT_OK(hologram_tensor_from_dlpack(&managed_, &tensor));
    EXPECT_OK(hologram_tensor_as_buffer(tensor, &handle_));
    EXPECT_OK(hologram_tensor_cleanup(tensor));
  }
  ~Window() { hologram_buffer_cleanup(handle_); }
  Window(const Window&) = delete;
  operator uint64_t() const { return handle_; }  // NOLINT

 private:
  int64_t shape_;
  DLManagedTensorVersioned managed_ = {};
  uint64_t handle_ = 0;
};

TEST(Ops, InPlaceAndPartsOfBuffers) {
  const Executor ex;
  const std::vector<float> x = ramp(50);
  const Buffer a(ex, x);
  const Buffer c(ex, x);
  EXPECT_OK(hologram_vector_mul_f32(ex, c, a, c, 20));
  EXPECT_OK(hologram_vector_clip_f32(ex, c, c, 10, 0.5f, 1.0f));
  const std::vector<float> y = c.values();
  for (size_t i = 0; i < 50; ++i) {
    const float square = x[i] * x[i];
    const float want = i < 10 ? std::fmin(std::fmax(square, 0.5f), 1.0f) : i < 20 ? square : x[i];
    EXPECT_EQ(y[i], want) << i;
  }
}

TEST(Ops, MemoryOfOthersThatOverlapsIsReadBeforeItIsWritten) {
  const Executor ex;
  std::vector<float> memory = ramp(40);
  const std::vector<float> old = memory;
  {
    const Window x(memory.data(), 30);
    const Window shifted(memory.data() + 1, 30);
    EXPECT_OK(hologram_scalar_add_f32(ex, x, shifted, 30, 1.0f));
    for (size_t i = 0; i < 30; ++i) EXPECT_EQ(memory[i + 1], old[i] + 1.0f) << i;
    EXPECT_EQ(memory[0], old[0]);
    EXPECT_EQ(memory[31], old[31]);
  }
  memory = old;
  const Window x(memory.data(), 30);
  const Window same(memory.data(), 30);
  const Window later(memory.data() + 3, 30);
  EXPECT_OK(hologram_vector_add_f32(ex, x, later, same, 30));
  for (size_t i = 0; i < 30; ++i) EXPECT_EQ(memory[i], old[i] + old[i + 3]) << i;
  memory = old;
  EXPECT_OK(hologram_buffer_copy(ex, x, later, 30));
  for (size_t i = 0; i < 30; ++i) EXPECT_EQ(memory[i + 3], old[i]) << i;
  memory = old;
  EXPECT_OK(hologram_gemm_f32(ex, x, later, same, 3, 3, 3));
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      float want = 0;
      for (size_t k = 0; k < 3; ++k) want += old[3 * i + k] * old[3 + 3 * k + j];
      EXPECT_NEAR(memory[3 * i + j], want, 1e-5) << i << j;
    }
  }
}

// Our own memory, of the boundary pool and of the linear one, beside windows that others hold on
// it.
TEST(Ops, OwnMemoryThatWasLentAndTakenBackOverlaps) {
  const Executor ex;
  for (const int64_t n : {int64_t{40}, int64_t{50'000}}) {
    const auto last = static_cast<size_t>(n) - 1;
    std::vector<float> want = ramp(n);
    const Buffer own(ex, want);
    void* address = nullptr;
    ASSERT_OK(hologram_buffer_as_mut_ptr(ex, own, &address));
    auto* memory = static_cast<float*>(address);
    const Window later(memory + 1, n - 1);

    EXPECT_OK(hologram_scalar_add_f32(ex, own, later, n - 1, 1.0f));
    for (size_t i = last; i > 0; --i) want[i] = want[i - 1] + 1.0f;
    EXPECT_EQ(own.values(), want);
    EXPECT_OK(hologram_vector_sub_f32(ex, later, own, own, n - 1));
    for (size_t i = 0; i < last; ++i) want[i] = want[i + 1] - want[i];
    EXPECT_EQ(own.values(), want);
    EXPECT_OK(hologram_buffer_copy(ex, own, later, n - 1));
    for (size_t i = last; i > 0; --i) want[i] = want[i - 1];
    EXPECT_EQ(own.values(), want);
    EXPECT_OK(hologram_buffer_copy_from_bytes(ex, later, memory, last * sizeof(float)));
    for (size_t i = last; i > 0; --i) want[i] = want[i - 1];
    EXPECT_EQ(own.values(), want);

    std::vector<float> product = want;
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 3; ++j) {
        product[1 + 3 * i + j] = 0;
        for (size_t k = 0; k < 3; ++k) {
          product[1 + 3 * i + j] += want[3 * i + k] * want[3 * k + j];
        }
      }
    }
    EXPECT_OK(hologram_gemm_f32(ex, own, own, later, 3, 3, 3));
    const std::vector<float> found = own.values();
    for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(found[i], product[i], 1e-4) << i;
    float sum = 0;
    for (size_t i = 1; i < 12; ++i) sum += found[i];
    EXPECT_OK(hologram_reduce_sum_f32(ex, later, own, 11));
    EXPECT_NEAR(own.values()[0], sum, 1e-4);
  }
}

// A descriptor of ours that we take ourselves, while work on the lender's buffer waits.
TEST(Ops, WhatWaitsIsDoneBeforeTheTakerTouchesIt) {
  const Executor ex;
  const std::vector<float> x = ramp(30);
  const Buffer own(ex, x);
  const Buffer before(ex, 30);
  EXPECT_OK(hologram_scalar_add_f32(ex, own, own, 30, 1.0f));
  EXPECT_OK(hologram_scalar_mul_f32(ex, own, before, 30, 10.0f));
  DLManagedTensorVersioned* managed = nullptr;
  ASSERT_OK(hologram_tensor_to_dlpack(own, &managed));
  uint64_t tensor = 0, taken = 0;
  ASSERT_OK(hologram_tensor_from_dlpack(managed, &tensor));
  ASSERT_OK(hologram_tensor_as_buffer(tensor, &taken));
  EXPECT_OK(hologram_vector_neg_f32(ex, taken, taken, 30));
  EXPECT_OK(hologram_vector_add_f32(ex, own, taken, own, 30));
  EXPECT_OK(hologram_scalar_add_f32(ex, taken, taken, 30, 0.5f));
  const std::vector<float> found = own.values(), kept = before.values();
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(kept[i], (x[i] + 1.0f) * 10.0f) << i;
    EXPECT_EQ(found[i], -(x[i] + 1.0f) * 2.0f + 0.5f) << i;
  }
  EXPECT_OK(hologram_buffer_cleanup(taken));
  EXPECT_OK(hologram_tensor_cleanup(tensor));
}

TEST(Ops, WindowsOfOneBufferOverlapToo) {
  const Executor ex;
  const std::vector<float> x = ramp(12);
  const Buffer whole(ex, x);
  uint64_t tensor = 0;
  uint64_t window = 0;
  const int64_t shape[] = {8};
  ASSERT_OK(hologram_tensor_from_buffer(whole, 2, 1, shape, nullptr, &tensor));
  ASSERT_OK(hologram_tensor_as_buffer(tensor, &window));
  EXPECT_OK(hologram_scalar_mul_f32(ex, whole, window, 8, 2.0f));
  EXPECT_OK(hologram_vector_neg_f32(ex, window, whole, 8));
  const std::vector<float> y = whole.values();
  std::vector<float> want = x;
  for (size_t i = 0; i < 8; ++i) want[i + 2] = x[i] * 2.0f;
  const std::vector<float> after = want;
  for (size_t i = 0; i < 8; ++i) want[i] = -after[i + 2];
  EXPECT_EQ(y, want);
  EXPECT_REFUSED(hologram_vector_neg_f32(ex, window, window, 9), kBad,
                 "vector_neg_f32: x: n is 9 but the buffer has 8 elements");
  EXPECT_OK(hologram_buffer_cleanup(window));
  EXPECT_OK(hologram_tensor_cleanup(tensor));
}

TEST(Ops, RecordedAndImmediateResultsHaveTheSameBits) {
  const Executor ex;
  const std::vector<float> x = ramp(1000, -5.0f, 0.01f);
  const Buffer a(ex, x);
  using Call = std::function<int(uint64_t in, uint64_t out)>;
  const Call calls[] = {
      [&](uint64_t in, uint64_t out) { return hologram_sigmoid_f32(ex, in, out, 1000); },
      [&](uint64_t in, uint64_t out) { return hologram_gelu_f32(ex, in, out, 1000); },
      [&](uint64_t in, uint64_t out) { return hologram_tanh_f32(ex, in, out, 1000); },
      [&](uint64_t in, uint64_t out) { return hologram_vector_div_f32(ex, in, in, out, 1000); },
      [&](uint64_t in, uint64_t out) { return hologram_exp(ex, in, out, 1000); },
      [&](uint64_t in, uint64_t out) { return hologram_softmax(ex, in, out, 10, 100); },
      [&](uint64_t in, uint64_t out) { return hologram_reduce_sum_f32(ex, in, out, 1000); },
      [&](uint64_t in, uint64_t out) {
        return hologram_mse_loss_f32(ex, in, a, out, 999, nullptr);
      },
      [&](uint64_t in, uint64_t out) { return hologram_matvec_f32(ex, in, in, out, 31, 32); },
  };
  for (const Call& call : calls) {
    const Buffer out(ex, std::vector<float>(1000));
    EXPECT_OK(call(a, out));
    const Buffer at_once(ex, std::vector<float>(1000));
    const Buffer in(ex, x);
    const void* address = nullptr;
    EXPECT_OK(hologram_buffer_as_ptr(ex, at_once, &address));
    EXPECT_OK(hologram_buffer_as_ptr(ex, in, &address));
    EXPECT_OK(call(in, at_once));
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are meant
    EXPECT_EQ(std::memcmp(out.values().data(), at_once.values().data(), 4000), 0) << &call - calls;
  }
}

TEST(Ops, AnyDtypeAndNumbersAmongTheInputs) {
  const Executor ex;
  const Buffer i(ex, std::vector<int32_t>{-3, 0, 5, 7});
  const Buffer f(ex, std::vector<float>{0.5f, 1.5f, -2.5f, 100.0f});
  const Buffer out(ex, 4);
  const Buffer whole(ex, 4, HOLOGRAM_INT32);
  const Buffer flags(ex, 4, HOLOGRAM_BOOL);
  EXPECT_OK(hologram_add(ex, i, f, out, 4));
  EXPECT_EQ(out.values(), (std::vector<float>{-2.5f, 1.5f, 2.5f, 107.0f}));
  const uint64_t clamp[] = {i, 0, 0};
  const double bounds[] = {0, -1.0, 6.0};
  EXPECT_OK(hologram_elementwise(ex, HOLOGRAM_OP_clamp, clamp, bounds, 3, whole, 4));
  EXPECT_EQ(whole.values<int32_t>(), (std::vector<int32_t>{-1, 0, 5, 6}));
  EXPECT_OK(hologram_gt(ex, f, i, flags, 4));
  char bytes[4];
  EXPECT_OK(hologram_buffer_to_bytes(ex, flags, bytes, 4));
  EXPECT_EQ(std::string(bytes, 4), std::string("\1\1\0\1", 4));
  const uint64_t pair[] = {f, i};
  EXPECT_REFUSED_WITH(hologram_elementwise(ex, HOLOGRAM_OP_add, pair, nullptr, 2, whole, 4),
                      HOLOGRAM_TYPE_MISMATCH, "elementwise: ");
  EXPECT_REFUSED_WITH(hologram_bitwise_and(ex, f, f, out, 4), HOLOGRAM_TYPE_MISMATCH,
                      "bitwise_and: ");
  EXPECT_REFUSED(hologram_elementwise(ex, 31, pair, nullptr, 2, out, 4), kBad,
                 "elementwise: op is 31, which is no row of hologram/elementwise.def");
  EXPECT_REFUSED(hologram_elementwise(ex, -1, pair, nullptr, 2, out, 4), kBad,
                 "elementwise: op is -1, which is no row of hologram/elementwise.def");
  EXPECT_REFUSED(hologram_elementwise(ex, HOLOGRAM_OP_add, pair, nullptr, 3, out, 4), kBad,
                 "elementwise: arity is 3 but add takes 2");
  EXPECT_REFUSED(hologram_elementwise(ex, HOLOGRAM_OP_add, nullptr, nullptr, 2, out, 4), kBad,
                 "elementwise: inputs: the pointer is null; pass the address of that many handles");
  const uint64_t gap[] = {f, 0};
  EXPECT_REFUSED(hologram_elementwise(ex, HOLOGRAM_OP_add, gap, nullptr, 2, out, 4), kBad,
                 "elementwise: inputs[1]: the handle is 0; pass one from executor_allocate_buffer");
  const uint64_t none[] = {0, 0};
  EXPECT_REFUSED(hologram_elementwise(ex, HOLOGRAM_OP_add, none, bounds, 2, out, 4), kBad,
                 "elementwise: inputs: all are numbers; pass a buffer");
  const Buffer z(ex, 4, HOLOGRAM_COMPLEX64);
  EXPECT_REFUSED(hologram_neg(ex, z, out, 4), HOLOGRAM_TYPE_MISMATCH,
                 "neg: x: the buffer holds complex64, not real numbers");
  EXPECT_EQ(hologram_neg(ex, f, z, 4), HOLOGRAM_TYPE_MISMATCH);
}

TEST(Ops, OpsOfFloatsTakeFloats) {
  const Executor ex;
  const Buffer f(ex, 4);
  const Buffer d(ex, 4, HOLOGRAM_FLOAT64);
  const std::string text = "the buffer holds float64, not float32";
  EXPECT_REFUSED(hologram_vector_add_f32(ex, f, d, f, 4), HOLOGRAM_TYPE_MISMATCH,
                 "vector_add_f32: b: " + text);
  EXPECT_REFUSED(hologram_tanh_f32(ex, f, d, 4), HOLOGRAM_TYPE_MISMATCH, "tanh_f32: y: " + text);
  EXPECT_REFUSED(hologram_reduce_max_f32(ex, d, f, 4), HOLOGRAM_TYPE_MISMATCH,
                 "reduce_max_f32: x: " + text);
  EXPECT_REFUSED(hologram_mse_loss_f32(ex, f, f, d, 4, nullptr), HOLOGRAM_TYPE_MISMATCH,
                 "mse_loss_f32: loss: " + text);
  EXPECT_REFUSED(hologram_gemm_f32(ex, f, d, f, 2, 2, 2), HOLOGRAM_TYPE_MISMATCH,
                 "gemm_f32: b: " + text);
  EXPECT_REFUSED(hologram_gemm(ex, f, d, f, 2, 2, 2), HOLOGRAM_TYPE_MISMATCH,
                 "gemm: b: the buffer holds float64, not the dtype of a");
  EXPECT_REFUSED(hologram_softmax_f32(ex, d, f, 4), HOLOGRAM_TYPE_MISMATCH,
                 "softmax_f32: x: " + text);
}

TEST(Ops, LossesGiveLossSumAndCount) {
  const Executor ex;
  const Buffer p(ex, std::vector<float>{0.5f, 0.25f, 1.0f, 0.0f, 9.0f});
  const Buffer t(ex, std::vector<float>{0.0f, 0.75f, 1.0f, 0.0f, 9.0f});
  const Buffer loss(ex, 4);
  float value = 0;
  EXPECT_OK(hologram_mse_loss_f32(ex, p, t, loss, 4, &value));
  EXPECT_EQ(value, 0.125f);
  EXPECT_EQ(loss.values()[1], 0.5f);
  EXPECT_EQ(loss.values()[2], 4.0f);
  EXPECT_OK(hologram_cross_entropy_loss_f32(ex, p, t, loss, 4, nullptr));
  EXPECT_NEAR(loss.values()[0], -0.75 * std::log(0.25) / 4, 1e-6);
  EXPECT_OK(hologram_binary_cross_entropy_loss_f32(ex, p, t, loss, 4, &value));
  EXPECT_NEAR(value, -(std::log(0.5) + 0.75 * std::log(0.25) + 0.25 * std::log(0.75)) / 4, 1e-6);
  EXPECT_REFUSED(hologram_mse_loss_f32(ex, p, t, Buffer(ex, 2), 4, &value), kBad,
                 "mse_loss_f32: loss: the buffer has 2 elements; pass one of at least 3, for the "
                 "loss, the sum and the count");
  EXPECT_OK(hologram_mse_loss_f32(ex, p, t, loss, 0, &value));
  EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(loss.values()[1], 0.0f);
  // The loss may go where the predictions are.
  EXPECT_OK(hologram_mse_loss_f32(ex, p, t, p, 4, &value));
  EXPECT_EQ(value, 0.125f);
}

TEST(Ops, ProductsAndReductionsCheckTheirSizes) {
  const Executor ex;
  const Buffer a(ex, 6);
  const Buffer c(ex, 3);
  EXPECT_REFUSED(hologram_gemm_f32(ex, a, a, c, 2, 2, 4), kBad,
                 "gemm_f32: a: m * k is 2 * 4 but the buffer has 6 elements");
  EXPECT_REFUSED(hologram_gemm_f32(ex, a, a, c, 1, 7, 1), kBad,
                 "gemm_f32: b: k * n is 1 * 7 but the buffer has 6 elements");
  EXPECT_REFUSED(hologram_gemm_f32(ex, a, a, c, 2, 2, 3), kBad,
                 "gemm_f32: c: m * n is 2 * 2 but the buffer has 3 elements");
  EXPECT_REFUSED(hologram_gemm_f32(ex, a, a, c, -1, 2, 3), kBad,
                 "gemm_f32: m is -1; pass 0 or more");
  EXPECT_REFUSED(hologram_gemm_f32(ex, a, a, c, INT64_MAX, 2, INT64_MAX), kBad,
                 "gemm_f32: a: m * k is 9223372036854775807 * 9223372036854775807 but the buffer "
                 "has 6 elements");
  EXPECT_REFUSED(hologram_matvec_f32(ex, a, c, c, 2, 4), kBad,
                 "matvec_f32: a: m * n is 2 * 4 but the buffer has 6 elements");
  EXPECT_REFUSED(hologram_matvec_f32(ex, a, c, c, 1, 6), kBad,
                 "matvec_f32: x: n is 6 * 1 but the buffer has 3 elements");
  EXPECT_REFUSED(hologram_matvec_f32(ex, a, c, c, 2, -3), kBad,
                 "matvec_f32: n is -3; pass 0 or more");
  EXPECT_REFUSED(hologram_softmax(ex, a, a, 3, 3), kBad,
                 "softmax: x: rows * cols is 9 but the buffer has 6 elements");
  EXPECT_REFUSED(hologram_softmax(ex, a, a, INT64_MAX, 3), kBad,
                 "softmax: rows * cols is more than any buffer has");
  EXPECT_REFUSED(hologram_softmax(ex, a, a, -1, 3), kBad, "softmax: rows is -1; pass 0 or more");
  EXPECT_REFUSED(hologram_softmax_f32(ex, a, a, -1), kBad, "softmax_f32: n is -1; pass 0 or more");
  EXPECT_REFUSED(hologram_reduce_sum_f32(ex, a, Buffer(ex, 0), 6), kBad,
                 "reduce_sum_f32: y: the buffer has 0 elements; the result is 1");
  EXPECT_REFUSED(hologram_reduce(ex, 14, a, c, 6), kBad,
                 "reduce: reduction is 14; pass a hologram_reduction, 0 to 13");
  EXPECT_REFUSED_WITH(hologram_reduce_min_f32(ex, a, c, 0), kBad, "reduce_min_f32: ");
  EXPECT_OK(hologram_buffer_fill(ex, c, 5.0, 3));
  EXPECT_OK(hologram_reduce_sum_f32(ex, a, c, 0));
  EXPECT_EQ(c.values(), (std::vector<float>{0, 5, 5}));
  EXPECT_OK(hologram_gemm_f32(ex, a, a, c, 1, 3, 0));
  EXPECT_EQ(c.values(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(hologram_gemm(ex, Buffer(ex, 1, HOLOGRAM_BOOL), Buffer(ex, 1, HOLOGRAM_BOOL),
                          Buffer(ex, 1, HOLOGRAM_BOOL), 1, 1, 1),
            HOLOGRAM_TYPE_MISMATCH);
  EXPECT_OK(hologram_gemm(ex, Buffer(ex, 1, HOLOGRAM_COMPLEX64), Buffer(ex, 1, HOLOGRAM_COMPLEX64),
                          Buffer(ex, 1, HOLOGRAM_COMPLEX64), 1, 1, 1));
}

TEST(Ops, ProductsMayWriteWhatTheyRead) {
  const Executor ex;
  const Buffer a(ex, std::vector<float>{1, 2, 3, 4});
  EXPECT_OK(hologram_gemm_f32(ex, a, a, a, 2, 2, 2));
  EXPECT_EQ(a.values(), (std::vector<float>{7, 10, 15, 22}));
  EXPECT_OK(hologram_reduce_sum_f32(ex, a, a, 4));
  EXPECT_EQ(a.values(), (std::vector<float>{54, 10, 15, 22}));
  EXPECT_OK(hologram_softmax_f32(ex, a, a, 4));
  EXPECT_NEAR(a.values()[0], 1.0f, 1e-6);
}

}  // namespace
}  // namespace hologram::capi_test
