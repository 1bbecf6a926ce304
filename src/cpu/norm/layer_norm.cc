// SPDX-License-Identifier: MIT
// Layer norm over rows without gaps: plain rows in place, the half types through scratch.
#include <algorithm>
#include <memory>
#include <new>
#include <tuple>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/dense_view.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/device/scratch.h"
#include "src/cpu/norm/norm_kernels.h"

namespace hologram::cpu {
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
  Line(const View& view, Dtype compute, int64_t n) {
    data_ = view.data;
    if (data_ == nullptr || view.dtype == compute) return;
    const auto bytes = n * static_cast<int64_t>(itemsize(compute));
    char* to = small_;
    if (bytes > static_cast<int64_t>(sizeof small_)) {
      large_ = heap("layer_norm", bytes);
      to = large_.get();
    }
    convert(view.dtype, view.data, compute, to, n);
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
    convert(from.dtype, at(from, (row + r) * n), compute, to + r * step, n);
  }
}
void store(const char* from, Dtype compute, int64_t row, int64_t rows, int64_t n, const View& to) {
  const auto step = n * static_cast<int64_t>(itemsize(compute));
  for (int64_t r = 0; r < rows; ++r) {
    convert(compute, from + r * step, to.dtype, at_out(to, (row + r) * n), n);
  }
}

int64_t rows_at_once(int64_t n) { return std::clamp<int64_t>(kSlot / n, 1, 64); }

void forward_rows(const calls::LayerNorm<>& call, NormRows rows, Dtype compute, int64_t begin,
                  int64_t end) {
  const auto& [in, out, mean, rstd] = std::tie(call.input, call.out, call.mean, call.rstd);
  const NormKernel& kernel = norm_kernel(current_isa(), compute);
  const int64_t n = rows.n;
  rows.x_stride = rows.out_stride = n;
  if (in.dtype == compute && out.dtype == compute && mean.dtype == compute &&
      rstd.dtype == compute) {
    rows.count = end - begin;
    rows.x = at(in, begin * n), rows.out = at_out(out, begin * n);
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
    rows.mean = stats[0], rows.rstd = stats[1];
    kernel.forward(rows);
    store(scratch[0], compute, r, rows.count, n, out);
    convert(compute, stats[0], mean.dtype, at_out(mean, r), rows.count);
    convert(compute, stats[1], rstd.dtype, at_out(rstd, r), rows.count);
  }
}

void backward_rows(const calls::LayerNormBackward<>& call, NormGradRows rows, Dtype compute,
                   int64_t begin, int64_t end) {
  const auto& [grad, in, mean, rstd, grad_in] =
      std::tie(call.grad, call.input, call.mean, call.rstd, call.grad_input);
  const NormKernel& kernel = norm_kernel(current_isa(), compute);
  const int64_t n = rows.n;
  const bool wanted = grad_in.has_data();
  rows.grad_stride = rows.x_stride = rows.grad_in_stride = n;
  if (grad.dtype == compute && in.dtype == compute && mean.dtype == compute &&
      rstd.dtype == compute && (!wanted || grad_in.dtype == compute)) {
    rows.count = end - begin;
    rows.grad = at(grad, begin * n), rows.x = at(in, begin * n);
    rows.mean = at(mean, begin), rows.rstd = at(rstd, begin);
    if (wanted) rows.grad_in = at_out(grad_in, begin * n);
    kernel.backward(rows);
    return;
  }
  const int64_t together = rows_at_once(n);
  RowScratch scratch(2, together, n, compute);
  alignas(64) char stats[2][64 * 8];
  for (int64_t r = begin; r < end; r += together) {
    rows.count = std::min(together, end - r);
    load(grad, r, rows.count, n, compute, scratch[0]);
    load(in, r, rows.count, n, compute, scratch[1]);
    convert(mean.dtype, at(mean, r), compute, stats[0], rows.count);
    convert(rstd.dtype, at(rstd, r), compute, stats[1], rows.count);
    rows.grad = scratch[0], rows.x = scratch[1];
    rows.mean = stats[0], rows.rstd = stats[1];
    rows.grad_in = wanted ? scratch[0] : nullptr;
    kernel.backward(rows);
    if (wanted) store(scratch[0], compute, r, rows.count, n, grad_in);
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

void run(const calls::LayerNorm<>& call, CallThreads threads) {
  const View& in = call.input;
  const int64_t n = elements_of(in, in.ndim - static_cast<int>(call.axes), in.ndim);
  if (in.numel() == 0) return;
  const Dtype compute = compute_of(in);
  const Line factors(call.weight, compute, n), terms(call.bias, compute, n);
  NormRows rows{};
  rows.n = n, rows.eps = call.eps, rows.weight = factors.data(), rows.bias = terms.data();
  for_chunks(in.numel() / n, std::max<int64_t>(1, grain(true) / n), threads_of(threads(in.numel())),
             [&](int64_t begin, int64_t end) { forward_rows(call, rows, compute, begin, end); });
}

void run(const calls::LayerNormBackward<>& call, CallThreads threads) {
  const View& in = call.input;
  const int64_t n = elements_of(in, in.ndim - static_cast<int>(call.axes), in.ndim);
  const View* const sums_of[] = {&call.grad_weight, &call.grad_bias};
  if (in.numel() == 0) {
    for (const View* to : sums_of) {
      if (to->data != nullptr) fill(0.0, *to);
    }
    return;
  }
  const int64_t count = in.numel() / n;
  const Dtype compute = compute_of(in);
  const auto size = static_cast<int64_t>(itemsize(compute));
  const Line factors(call.weight, compute, n);
  NormGradRows rows{};
  rows.n = n, rows.weight = factors.data();
  const int most = threads(in.numel());
  if (!call.grad_weight.has_data() && !call.grad_bias.has_data()) {
    if (!call.grad_input.has_data()) return;
    for_chunks(count, std::max<int64_t>(1, grain(true) / n), threads_of(most),
               [&](int64_t begin, int64_t end) { backward_rows(call, rows, compute, begin, end); });
    return;
  }
  // The groups depend on the shape alone, and so do the sums.
  const int64_t per_group = std::max(kGroupRows, (count + kGroups - 1) / kGroups);
  const int64_t groups = (count + per_group - 1) / per_group;
  const auto sums = heap("layer_norm_backward", groups * 2 * n * size);
  parallel_for(groups, most, [&](int64_t begin, int64_t end, int) {
    for (int64_t k = begin; k < end; ++k) {
      NormGradRows mine = rows;
      char* part_sums = sums.get() + k * 2 * n * size;
      std::fill_n(part_sums, 2 * n * size, 0);
      mine.grad_weight = part_sums, mine.grad_bias = part_sums + n * size;
      backward_rows(call, mine, compute, k * per_group, std::min(count, (k + 1) * per_group));
    }
  });
  int64_t offset = 0;
  for (const View* to : sums_of) {
    if (to->data != nullptr && compute == Dtype::kFloat64) {
      add_groups(reinterpret_cast<const double*>(sums.get()) + offset, groups, 2 * n, n, *to);
    } else if (to->data != nullptr) {
      add_groups(reinterpret_cast<const float*>(sums.get()) + offset, groups, 2 * n, n, *to);
    }
    offset += n;
  }
}

}  // namespace hologram::cpu
