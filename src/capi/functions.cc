// SPDX-License-Identifier: MIT
// The C interface: softmax and products.
#include "hologram/functions.h"

#include <optional>
#include <string_view>

#include "src/capi/call.h"

namespace hologram::capi {
namespace {

int softmax_rows(const char* function, bool logarithm, uint64_t ex, uint64_t x_handle,
                 uint64_t y_handle, int64_t rows, int64_t cols, const char* count,
                 std::optional<Dtype> dtype) {
  return guarded(function, [&] {
    const Device& device = executor_device(ex);
    const BufferUse x(x_handle, "x");
    const BufferUse y(y_handle, "y");
    const bool is_all = std::string_view(count) == "n";
    check_count("rows", rows);
    check_count(is_all ? "n" : "cols", cols);
    const int64_t n = product(rows, cols);
    if (n < 0) fail(ErrorKind::kInvalidArgument, count, " is more than any buffer has");
    x.on(device).holds(n, count).is(dtype);
    y.on(device).holds(n, count).writable().is(dtype);
    const Shape shape{rows, cols};
    const Tensor in = x.tensor(shape);
    naming({&x, &y}, [&] {
      const Tensor out = y.tensor(shape);
      logarithm ? log_softmax_into(in, 1, out) : softmax_into(in, 1, out);
    });
  });
}

// c [m x n] = a [m x k] b [k x n]; without a second dimension where `vector`.
int multiply(const char* function, uint64_t ex, uint64_t a_handle, uint64_t b_handle,
             const char* b_argument, uint64_t c_handle, const char* c_argument, int64_t m,
             int64_t n, int64_t k, bool vector, std::optional<Dtype> dtype) {
  return guarded(function, [&] {
    const Device& device = executor_device(ex);
    const BufferUse a(a_handle, "a");
    const BufferUse b(b_handle, b_argument);
    const BufferUse c(c_handle, c_argument);
    check_count("m", m);
    if (!vector) check_count("n", n);
    check_count(vector ? "n" : "k", k);
    const auto holds = [&](const BufferUse& used, const char* text, int64_t rows, int64_t cols) {
      const int64_t count = product(rows, cols);
      if (count < 0 || count > used.length()) {
        fail(ErrorKind::kInvalidArgument, used.argument(), ": ", text, " is ", rows, " * ", cols,
             " but the buffer has ", used.length(), used.length() == 1 ? " element" : " elements");
      }
      used.on(device).is(dtype);
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

int hologram_softmax_f32(uint64_t ex, uint64_t x, uint64_t y, int64_t n) {
  return softmax_rows("softmax_f32", false, ex, x, y, 1, n, "n", Dtype::kFloat32);
}
int hologram_softmax(uint64_t ex, uint64_t x, uint64_t y, int64_t rows, int64_t cols) {
  return softmax_rows("softmax", false, ex, x, y, rows, cols, "rows * cols", {});
}
int hologram_log_softmax(uint64_t ex, uint64_t x, uint64_t y, int64_t rows, int64_t cols) {
  return softmax_rows("log_softmax", true, ex, x, y, rows, cols, "rows * cols", {});
}

int hologram_gemm_f32(uint64_t ex, uint64_t a, uint64_t b, uint64_t c, int64_t m, int64_t n,
                      int64_t k) {
  return multiply("gemm_f32", ex, a, b, "b", c, "c", m, n, k, false, Dtype::kFloat32);
}
int hologram_matvec_f32(uint64_t ex, uint64_t a, uint64_t x, uint64_t y, int64_t m, int64_t n) {
  return multiply("matvec_f32", ex, a, x, "x", y, "y", m, 1, n, true, Dtype::kFloat32);
}
int hologram_gemm(uint64_t ex, uint64_t a, uint64_t b, uint64_t c, int64_t m, int64_t n,
                  int64_t k) {
  return multiply("gemm", ex, a, b, "b", c, "c", m, n, k, false, {});
}
