// SPDX-License-Identifier: MIT
// The C interface: reductions, softmax, losses and products.
#include "hologram/functions.h"

#include <string_view>

#include "src/capi/call.h"

namespace hologram::capi {
namespace {

void check_float(const BufferUse& used) { used.is(Dtype::kFloat32, "float32"); }
void check_any(const BufferUse&) {}

template <class Check>
int reduce_all(const char* function, Reduction op, uint64_t ex, uint64_t x_handle,
               const char* x_argument, uint64_t y_handle, const char* y_argument, int64_t n,
               Check&& check) {
  return guarded(function, [&] {
    const Device& device = executor_device(ex);
    const BufferUse x(x_handle, x_argument);
    const BufferUse y(y_handle, y_argument);
    check(x.on(device).holds(n));
    check(y.on(device).writable());
    if (y.length() < 1) {
      fail(ErrorKind::kInvalidArgument, y_argument, ": the buffer has 0 elements; the result is 1");
    }
    const bool needs_elements = reduction_info(op).empty == ReductionInfo::kError;
    if (n == 0 && needs_elements) {
      fail(ErrorKind::kInvalidArgument, "n is 0; none of no elements is the ", reduction_name(op));
    }
    naming({&x, &y},
           [&] { reduce_into(op, x.tensor(Shape{n}), y.tensor(Shape{1}), {.keepdim = true}); });
  });
}

template <class Check>
int softmax_rows(const char* function, bool logarithm, uint64_t ex, uint64_t x_handle,
                 uint64_t y_handle, int64_t rows, int64_t cols, const char* count, Check&& check) {
  return guarded(function, [&] {
    const Device& device = executor_device(ex);
    const BufferUse x(x_handle, "x");
    const BufferUse y(y_handle, "y");
    const bool is_all = std::string_view(count) == "n";
    if (rows < 0) fail(ErrorKind::kInvalidArgument, "rows is ", rows, "; pass 0 or more");
    if (cols < 0) refuse_length("x", is_all ? "n" : "cols", cols, x.length());
    const int64_t n = product(rows, cols);
    if (n < 0) fail(ErrorKind::kInvalidArgument, count, " is more than any buffer has");
    check(x.on(device).holds(n, count));
    check(y.on(device).holds(n, count).writable());
    const Shape shape{rows, cols};
    const Tensor in = x.tensor(shape);
    naming({&x, &y}, [&] {
      const Tensor out = y.tensor(shape);
      logarithm ? log_softmax_into(in, 1, out) : softmax_into(in, 1, out);
    });
  });
}

// The sum over n elements of the terms of a loss, as a tensor of one element.
using LossSum = Tensor (*)(const Tensor& pred, const Tensor& target);

Tensor mse_sum(const Tensor& pred, const Tensor& target) {
  return reduce(Reduction::sum, squared_difference(pred, target), {.keepdim = true});
}
Tensor cross_entropy_sum(const Tensor& pred, const Tensor& target) {
  // A logarithm of 0 counts as -100, as in the binary one: 0 log(0) is 0 then.
  const Tensor terms = mul(target, maximum(log(pred), -100.0));
  return neg(reduce(Reduction::sum, terms, {.keepdim = true}));
}
Tensor binary_cross_entropy_sum(const Tensor& pred, const Tensor& target) {
  const Tensor yes = mul(target, maximum(log(pred), -100.0));
  const Tensor no = mul(sub(1.0, target), maximum(log1p(neg(pred)), -100.0));
  return neg(reduce(Reduction::sum, add(yes, no), {.keepdim = true}));
}

int loss(const char* function, LossSum sum_of, uint64_t ex, uint64_t pred_handle,
         uint64_t target_handle, uint64_t loss_handle, int64_t n, float* value) {
  return guarded(function, [&] {
    const Device& device = executor_device(ex);
    const BufferUse pred(pred_handle, "pred");
    const BufferUse target(target_handle, "target");
    const BufferUse loss(loss_handle, "loss");
    check_float(pred.on(device).holds(n));
    check_float(target.on(device).holds(n));
    check_float(loss.on(device).writable());
    if (loss.length() < 3) {
      fail(ErrorKind::kInvalidArgument, "loss: the buffer has ", loss.length(),
           " elements; pass one of at least 3, for the loss, the sum and the count");
    }
    const Tensor sum = sum_of(pred.tensor(Shape{n}), target.tensor(Shape{n}));
    const Tensor mean = loss.tensor(Shape{1});
    apply_into(OpId::div, {sum, static_cast<double>(n)}, mean);
    copy_into(sum, loss.tensor(Shape{1}, 1));
    fill_into(Scalar(static_cast<double>(n)), loss.tensor(Shape{1}, 2));
    if (value != nullptr) *value = static_cast<float>(item(mean).f64);
  });
}

// c [m x n] = a [m x k] b [k x n]; without a second dimension where `vector`.
template <class Check>
int multiply(const char* function, uint64_t ex, uint64_t a_handle, uint64_t b_handle,
             const char* b_argument, uint64_t c_handle, const char* c_argument, int64_t m,
             int64_t n, int64_t k, bool vector, Check&& check) {
  return guarded(function, [&] {
    const Device& device = executor_device(ex);
    const BufferUse a(a_handle, "a");
    const BufferUse b(b_handle, b_argument);
    const BufferUse c(c_handle, c_argument);
    const auto size = [](const char* name, int64_t value) {
      if (value < 0) fail(ErrorKind::kInvalidArgument, name, " is ", value, "; pass 0 or more");
    };
    size("m", m);
    if (!vector) size("n", n);
    size(vector ? "n" : "k", k);
    const auto holds = [&](const BufferUse& used, const char* text, int64_t rows, int64_t cols) {
      const int64_t count = product(rows, cols);
      if (count < 0 || count > used.length()) {
        fail(ErrorKind::kInvalidArgument, used.argument(), ": ", text, " is ", rows, " * ", cols,
             " but the buffer has ", used.length(), used.length() == 1 ? " element" : " elements");
      }
      check(used.on(device));
    };
    holds(a, vector ? "m * n" : "m * k", m, k);
    holds(b, vector ? "n" : "k * n", k, vector ? 1 : n);
    holds(c, vector ? "m" : "m * n", m, vector ? 1 : n);
    c.writable();
    if (b.dtype() != a.dtype()) refuse_dtype(b_argument, b.dtype(), "the dtype of a");
    if (c.dtype() != a.dtype()) refuse_dtype(c_argument, c.dtype(), "the dtype of a");
    const Tensor left = a.tensor(Shape{m, k});
    const Tensor right = b.tensor(vector ? Shape{k} : Shape{k, n});
    naming({&a, &b, &c}, [&] {
      matmul_into(left, right, c.tensor(vector ? Shape{m} : Shape{m, n}));
    });
  });
}

}  // namespace
}  // namespace hologram::capi

using namespace hologram;        // NOLINT: definitions of C functions stand outside
using namespace hologram::capi;  // NOLINT

int hologram_reduce_sum_f32(uint64_t ex, uint64_t x, uint64_t y, int64_t n) {
  return reduce_all("reduce_sum_f32", Reduction::sum, ex, x, "x", y, "y", n, check_float);
}
int hologram_reduce_min_f32(uint64_t ex, uint64_t x, uint64_t y, int64_t n) {
  return reduce_all("reduce_min_f32", Reduction::amin, ex, x, "x", y, "y", n, check_float);
}
int hologram_reduce_max_f32(uint64_t ex, uint64_t x, uint64_t y, int64_t n) {
  return reduce_all("reduce_max_f32", Reduction::amax, ex, x, "x", y, "y", n, check_float);
}

int hologram_reduce(uint64_t ex, int reduction, uint64_t x, uint64_t out, int64_t n) {
  if (reduction < 0 || reduction >= kReductionCount) {
    return guarded("reduce", [&] {
      fail(ErrorKind::kInvalidArgument, "reduction is ", reduction,
           "; pass a hologram_reduction, 0 to ", kReductionCount - 1);
    });
  }
  return reduce_all("reduce", static_cast<Reduction>(reduction), ex, x, "x", out, "out", n,
                    check_any);
}

int hologram_softmax_f32(uint64_t ex, uint64_t x, uint64_t y, int64_t n) {
  return softmax_rows("softmax_f32", false, ex, x, y, 1, n, "n", check_float);
}
int hologram_softmax(uint64_t ex, uint64_t x, uint64_t y, int64_t rows, int64_t cols) {
  return softmax_rows("softmax", false, ex, x, y, rows, cols, "rows * cols", check_any);
}
int hologram_log_softmax(uint64_t ex, uint64_t x, uint64_t y, int64_t rows, int64_t cols) {
  return softmax_rows("log_softmax", true, ex, x, y, rows, cols, "rows * cols", check_any);
}

int hologram_mse_loss_f32(uint64_t ex, uint64_t pred, uint64_t target, uint64_t loss, int64_t n,
                          float* value) {
  return capi::loss("mse_loss_f32", mse_sum, ex, pred, target, loss, n, value);
}
int hologram_cross_entropy_loss_f32(uint64_t ex, uint64_t pred, uint64_t target, uint64_t loss,
                                    int64_t n, float* value) {
  return capi::loss("cross_entropy_loss_f32", cross_entropy_sum, ex, pred, target, loss, n, value);
}
int hologram_binary_cross_entropy_loss_f32(uint64_t ex, uint64_t pred, uint64_t target,
                                           uint64_t loss, int64_t n, float* value) {
  return capi::loss("binary_cross_entropy_loss_f32", binary_cross_entropy_sum, ex, pred, target,
                    loss, n, value);
}

int hologram_gemm_f32(uint64_t ex, uint64_t a, uint64_t b, uint64_t c, int64_t m, int64_t n,
                      int64_t k) {
  return multiply("gemm_f32", ex, a, b, "b", c, "c", m, n, k, false, check_float);
}
int hologram_matvec_f32(uint64_t ex, uint64_t a, uint64_t x, uint64_t y, int64_t m, int64_t n) {
  return multiply("matvec_f32", ex, a, x, "x", y, "y", m, 1, n, true, check_float);
}
int hologram_gemm(uint64_t ex, uint64_t a, uint64_t b, uint64_t c, int64_t m, int64_t n,
                  int64_t k) {
  return multiply("gemm", ex, a, b, "b", c, "c", m, n, k, false, check_any);
}
