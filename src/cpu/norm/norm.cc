// SPDX-License-Identifier: MIT
// Layer norm over contiguous rows: plain rows in place, the half types through scratch.
#include "src/cpu/norm/norm.h"

#include <algorithm>
#include <memory>
#include <new>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/device/scratch.h"
#include "src/cpu/norm/norm_kernels.h"

namespace hologram {
namespace cpu {
namespace {

// Elements of the compute type that fit a scratch slot whatever the type.
constexpr int64_t kSlot = 1536;
// Sums over rows are made for at most kGroups groups of rows, and added in their order.
constexpr int64_t kGroups = 32;
constexpr int64_t kGroupRows = 16;

// The address of an element.
const char* at(const View& view, int64_t element) {
  return static_cast<const char*>(view.data) + element * static_cast<int64_t>(itemsize(view.dtype));
}
char* at_out(const View& view, int64_t element) { return const_cast<char*>(at(view, element)); }

void check_rows(const char* what, const View& view, int64_t rows, int64_t n) {
  if (!is_floating(view.dtype)) {
    fail(ErrorKind::kNotSupported, what, " is not implemented for ", dtype_name(view.dtype),
         "; convert it to a floating dtype");
  }
  if (view.ndim != 2 || view.shape[0] != rows || view.shape[1] != n ||
      (view.strides[1] != 1 && n > 1)) {
    fail(ErrorKind::kInvalidArgument, what, ": expected [", rows, ", ", n,
         "] with adjacent elements in a row");
  }
}

void check_line(const char* what, const View* view, int64_t n) {
  if (view == nullptr) return;
  if (!is_floating(view->dtype)) {
    fail(ErrorKind::kNotSupported, what, " is not implemented for ", dtype_name(view->dtype),
         "; convert it to a floating dtype");
  }
  if (view->ndim != 1 || view->shape[0] != n || (view->strides[0] != 1 && n > 1)) {
    fail(ErrorKind::kInvalidArgument, what, ": expected ", n, " adjacent elements");
  }
}

Dtype compute_of(const View& in) {
  return in.dtype == Dtype::kFloat64 ? Dtype::kFloat64 : Dtype::kFloat32;
}

std::unique_ptr<char[]> heap(const char* what, int64_t bytes) {
  std::unique_ptr<char[]> memory(new (std::nothrow) char[static_cast<size_t>(bytes)]);
  if (memory == nullptr) fail(ErrorKind::kOutOfMemory, what, " needs ", bytes, " bytes");
  return memory;
}

// A line of n elements in the compute type: the view's own memory where it has that type.
class Line {
 public:
  Line(const View* view, Dtype compute, int64_t n) {
    if (view == nullptr) return;
    data_ = view->data;
    if (view->dtype == compute) return;
    const auto bytes = n * static_cast<int64_t>(itemsize(compute));
    char* to = small_;
    if (bytes > static_cast<int64_t>(sizeof small_)) {
      large_ = heap("layer_norm", bytes);
      to = large_.get();
    }
    convert(view->dtype, view->data, compute, to, n);
    data_ = to;
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  const void* data() const { return data_; }

 private:
  alignas(64) char small_[4096];
  std::unique_ptr<char[]> large_;
  const void* data_ = nullptr;
};

// Scratch for a few rows of each of several operands, in the compute type.
class RowScratch {
 public:
  RowScratch(int operands, int64_t rows, int64_t n, Dtype compute)
      : bytes_(rows * n * static_cast<int64_t>(itemsize(compute))) {
    if (rows * n > kSlot) large_ = heap("layer_norm", operands * bytes_);
  }
  char* operator[](int k) {
    return large_ != nullptr ? large_.get() + k * bytes_ : scratch_.slot(k);
  }

 private:
  int64_t bytes_;
  Scratch scratch_;
  std::unique_ptr<char[]> large_;
};

void load(const View& from, int64_t row, int64_t rows, int64_t n, Dtype compute, char* to) {
  const auto step = n * static_cast<int64_t>(itemsize(compute));
  for (int64_t r = 0; r < rows; ++r) {
    convert(from.dtype, at(from, (row + r) * from.strides[0]), compute, to + r * step, n);
  }
}
void store(const char* from, Dtype compute, int64_t row, int64_t rows, int64_t n, const View& to) {
  const auto step = n * static_cast<int64_t>(itemsize(compute));
  for (int64_t r = 0; r < rows; ++r) {
    convert(compute, from + r * step, to.dtype, at_out(to, (row + r) * to.strides[0]), n);
  }
}

int64_t rows_at_once(int64_t n) { return std::clamp<int64_t>(kSlot / n, 1, 64); }

void forward_rows(const View& in, const View& out, const View& mean, const View& rstd,
                  NormRows rows, Dtype compute, int64_t begin, int64_t end) {
  const NormKernel& kernel = norm_kernel(current_isa(), compute);
  const int64_t n = rows.n;
  const bool plain = in.dtype == compute && out.dtype == compute;
  const bool plain_stats = mean.dtype == compute && rstd.dtype == compute;
  if (plain && plain_stats) {
    rows.count = end - begin;
    rows.x = at(in, begin * in.strides[0]), rows.x_stride = in.strides[0];
    rows.out = at_out(out, begin * out.strides[0]), rows.out_stride = out.strides[0];
    rows.mean = at_out(mean, begin), rows.rstd = at_out(rstd, begin);
    kernel.forward(rows);
    return;
  }
  const int64_t together = rows_at_once(n);
  RowScratch scratch(1, together, n, compute);
  alignas(64) char stats[2][64 * 8];
  for (int64_t r = begin; r < end; r += together) {
    rows.count = std::min(together, end - r);
    // The row may be worked on in place: it is read before it is written.
    load(in, r, rows.count, n, compute, scratch[0]);
    rows.x = rows.out = scratch[0];
    rows.x_stride = rows.out_stride = n;
    rows.mean = stats[0], rows.rstd = stats[1];
    kernel.forward(rows);
    store(scratch[0], compute, r, rows.count, n, out);
    convert(compute, stats[0], mean.dtype, at_out(mean, r), rows.count);
    convert(compute, stats[1], rstd.dtype, at_out(rstd, r), rows.count);
  }
}

struct Gradients {
  const View& grad;
  const View& in;
  const View& mean;
  const View& rstd;
  const View* grad_in;
  Dtype compute;
};

void backward_rows(const Gradients& g, NormGradRows rows, int64_t begin, int64_t end) {
  const NormKernel& kernel = norm_kernel(current_isa(), g.compute);
  const int64_t n = rows.n;
  const auto has_type = [&](const View* v) { return v == nullptr || v->dtype == g.compute; };
  if (has_type(&g.grad) && has_type(&g.in) && has_type(&g.mean) && has_type(&g.rstd) &&
      has_type(g.grad_in)) {
    rows.count = end - begin;
    rows.grad = at(g.grad, begin * g.grad.strides[0]), rows.grad_stride = g.grad.strides[0];
    rows.x = at(g.in, begin * g.in.strides[0]), rows.x_stride = g.in.strides[0];
    rows.mean = at(g.mean, begin), rows.rstd = at(g.rstd, begin);
    if (g.grad_in != nullptr) {
      rows.grad_in = at_out(*g.grad_in, begin * g.grad_in->strides[0]);
      rows.grad_in_stride = g.grad_in->strides[0];
    }
    kernel.backward(rows);
    return;
  }
  const int64_t together = rows_at_once(n);
  RowScratch scratch(2, together, n, g.compute);
  alignas(64) char stats[2][64 * 8];
  for (int64_t r = begin; r < end; r += together) {
    rows.count = std::min(together, end - r);
    load(g.grad, r, rows.count, n, g.compute, scratch[0]);
    load(g.in, r, rows.count, n, g.compute, scratch[1]);
    convert(g.mean.dtype, at(g.mean, r), g.compute, stats[0], rows.count);
    convert(g.rstd.dtype, at(g.rstd, r), g.compute, stats[1], rows.count);
    rows.grad = scratch[0], rows.x = scratch[1];
    rows.grad_stride = rows.x_stride = rows.grad_in_stride = n;
    rows.mean = stats[0], rows.rstd = stats[1];
    rows.grad_in = g.grad_in != nullptr ? scratch[0] : nullptr;
    kernel.backward(rows);
    if (g.grad_in != nullptr) store(scratch[0], g.compute, r, rows.count, n, *g.grad_in);
  }
}

// to = the sums over the groups, which lie `step` elements apart.
template <class T>
void add_groups(const T* sums, int64_t groups, int64_t step, int64_t n, const View& to) {
  constexpr int64_t kTile = 256;
  double totals[kTile];
  T rounded[kTile];
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t width = std::min(kTile, n - j);
    std::fill_n(totals, width, 0.0);
    for (int64_t k = 0; k < groups; ++k) {
      for (int64_t i = 0; i < width; ++i) totals[i] += static_cast<double>(sums[k * step + j + i]);
    }
    for (int64_t i = 0; i < width; ++i) rounded[i] = static_cast<T>(totals[i]);
    convert(sizeof(T) == 8 ? Dtype::kFloat64 : Dtype::kFloat32, rounded, to.dtype, at_out(to, j),
            width);
  }
}

}  // namespace
}  // namespace cpu

void layer_norm(const View& in, const View* weight, const View* bias, double eps, const View& out,
                const View& mean, const View& rstd, int max_threads) {
  using namespace cpu;
  const int64_t count = in.ndim == 2 ? in.shape[0] : 0, n = in.ndim == 2 ? in.shape[1] : 0;
  check_rows("layer_norm: in", in, count, n);
  check_rows("layer_norm: out", out, count, n);
  check_line("layer_norm: weight", weight, n);
  check_line("layer_norm: bias", bias, n);
  check_line("layer_norm: mean", &mean, count);
  check_line("layer_norm: rstd", &rstd, count);
  if (count == 0 || n == 0) return;
  const Dtype compute = compute_of(in);
  const Line factors(weight, compute, n), terms(bias, compute, n);
  NormRows rows{};
  rows.n = n, rows.eps = eps, rows.weight = factors.data(), rows.bias = terms.data();
  for_chunks(count, std::max<int64_t>(1, grain(true) / n), threads_of(max_threads),
             [&](int64_t begin, int64_t end) {
               forward_rows(in, out, mean, rstd, rows, compute, begin, end);
             });
}

void layer_norm_backward(const View& grad, const View& in, const View& mean, const View& rstd,
                         const View* weight, const View* grad_in, const View* grad_weight,
                         const View* grad_bias, int max_threads) {
  using namespace cpu;
  const int64_t count = in.ndim == 2 ? in.shape[0] : 0, n = in.ndim == 2 ? in.shape[1] : 0;
  check_rows("layer_norm_backward: in", in, count, n);
  check_rows("layer_norm_backward: grad", grad, count, n);
  if (grad_in != nullptr) check_rows("layer_norm_backward: grad_in", *grad_in, count, n);
  check_line("layer_norm_backward: weight", weight, n);
  check_line("layer_norm_backward: grad_weight", grad_weight, n);
  check_line("layer_norm_backward: grad_bias", grad_bias, n);
  check_line("layer_norm_backward: mean", &mean, count);
  check_line("layer_norm_backward: rstd", &rstd, count);
  if (count == 0 || n == 0) {
    for (const View* sums : {grad_weight, grad_bias}) {
      if (sums != nullptr) fill(0.0, *sums);
    }
    return;
  }
  const Dtype compute = compute_of(in);
  const auto size = static_cast<int64_t>(itemsize(compute));
  const Line factors(weight, compute, n);
  NormGradRows rows{};
  rows.n = n, rows.weight = factors.data();
  const Gradients g{grad, in, mean, rstd, grad_in, compute};
  if (grad_weight == nullptr && grad_bias == nullptr) {
    if (grad_in == nullptr) return;
    for_chunks(count, std::max<int64_t>(1, grain(true) / n), threads_of(max_threads),
               [&](int64_t begin, int64_t end) { backward_rows(g, rows, begin, end); });
    return;
  }
  // The groups depend on the shape alone, and so do the sums.
  const int64_t per_group = std::max(kGroupRows, (count + kGroups - 1) / kGroups);
  const int64_t groups = (count + per_group - 1) / per_group;
  const auto sums = heap("layer_norm_backward", groups * 2 * n * size);
  parallel_for(groups, max_threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t k = begin; k < end; ++k) {
      NormGradRows mine = rows;
      char* part_sums = sums.get() + k * 2 * n * size;
      std::fill_n(part_sums, 2 * n * size, 0);
      mine.grad_weight = part_sums, mine.grad_bias = part_sums + n * size;
      backward_rows(g, mine, k * per_group, std::min(count, (k + 1) * per_group));
    }
  });
  int64_t offset = 0;
  for (const View* to : {grad_weight, grad_bias}) {
    if (to != nullptr && compute == Dtype::kFloat64) {
      add_groups(reinterpret_cast<const double*>(sums.get()) + offset, groups, 2 * n, n, *to);
    } else if (to != nullptr) {
      add_groups(reinterpret_cast<const float*>(sums.get()) + offset, groups, 2 * n, n, *to);
    }
    offset += n;
  }
}

}  // namespace hologram
