// SPDX-License-Identifier: MIT
// Running sums along a dimension: lines piece by piece, or many neighbouring lines abreast.
#include <algorithm>
#include <cstdlib>
#include <type_traits>

#include "hologram/error.h"
#include "hologram/parallel.h"
#include "hologram/reduction.h"
#include "src/base/dtype_check.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/reduce/reduce_gather.h"
#include "src/cpu/reduce/reduce_plan.h"

namespace hologram {
namespace cpu {
namespace {

constexpr int64_t kAbreast = 512;     // lines summed together
constexpr int64_t kMostFew = 8;       // lines whose sums stay in registers
constexpr int64_t kShortLine = 64;    // elements
constexpr int64_t kScanUnit = 32768;  // elements a thread claims at a time

struct Line {
  const char* in;
  char* out;
  Dtype in_dtype, out_dtype, compute;
  int64_t in_step, out_step, n;
  // Other lines beside this one, and more such groups of lines.
  int64_t lines, in_next, out_next;
  int64_t groups, in_group, out_group;

  // Its elements lie side by side.
  bool is_along() const { return in_step == 1 && out_step == 1; }
  bool is_computed() const { return in_dtype == compute && out_dtype == compute; }
  bool is_beside() const {
    return lines > 1 && in_next == 1 && out_next == 1 && is_computed() && !is_along();
  }
  int64_t in_bytes() const { return static_cast<int64_t>(itemsize(in_dtype)); }
  int64_t out_bytes() const { return static_cast<int64_t>(itemsize(out_dtype)); }
};

// float32 is summed in float64, as PyTorch does; int64 wraps.
template <class T>
using SumOf = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

// Neighbours of one line, from a sum on; returns the sum of all. out may be in.
template <class T>
SumOf<T> scan_run(const T* in, int64_t n, SumOf<T> sum, T* out) {
  int64_t i = 0;
  if constexpr (std::is_same_v<T, float>) {
    // Each addition to the sum waits for the one before, so four elements are added at once; in
    // float64 that is as exact.
    for (; i + 4 <= n; i += 4) {
      const double a = in[i], b = in[i + 1], c = in[i + 2], d = in[i + 3];
      const double two = sum + (a + b), four = sum + ((a + b) + (c + d));
      out[i] = static_cast<float>(sum + a);
      out[i + 1] = static_cast<float>(two);
      out[i + 2] = static_cast<float>(two + c);
      out[i + 3] = static_cast<float>(four);
      sum = four;
    }
  }
  for (; i < n; ++i) {
    sum += static_cast<SumOf<T>>(in[i]);
    out[i] = static_cast<T>(sum);
  }
  return sum;
}

// Lines of so few elements that the compiler writes them out.
template <class T, int kLength>
void scan_short(const Line& line) {
  const T* in = reinterpret_cast<const T*>(line.in);
  T* out = reinterpret_cast<T*>(line.out);
  for (int64_t j = 0; j < line.lines; ++j, in += line.in_next, out += line.out_next) {
    SumOf<T> sum = 0;
    T sums[kLength];
    for (int i = 0; i < kLength; ++i) sums[i] = static_cast<T>(sum += static_cast<SumOf<T>>(in[i]));
    for (int i = 0; i < kLength; ++i) out[i] = sums[i];
  }
}

// Lines along memory, of the dtype that is summed.
template <class T>
void scan_direct(const Line& line) {
  using Scan = void (*)(const Line&);
  constexpr Scan kShort[] = {scan_short<T, 2>, scan_short<T, 3>, scan_short<T, 4>, scan_short<T, 5>,
                             scan_short<T, 6>, scan_short<T, 7>, scan_short<T, 8>};
  if (line.n >= 2 && line.n <= 8) return kShort[line.n - 2](line);
  for (int64_t j = 0; j < line.lines; ++j) {
    scan_run<T>(reinterpret_cast<const T*>(line.in) + j * line.in_next, line.n, 0,
                reinterpret_cast<T*>(line.out) + j * line.out_next);
  }
}

// Lines along memory of another dtype, many of which fit the scratch memory.
template <class T>
void scan_converted(const Line& line) {
  alignas(64) T values[kScratchElements];
  const int64_t together = kScratchElements / line.n;
  for (int64_t j = 0; j < line.lines; j += together) {
    const int64_t here = std::min(together, line.lines - j);
    gather_rows(line.in + j * line.in_next * line.in_bytes(), line.in_dtype, here, line.in_next,
                line.n, 1, line.compute, values);
    for (int64_t k = 0; k < here; ++k) {
      scan_run<T>(values + k * line.n, line.n, 0, values + k * line.n);
    }
    scatter_rows(values, line.compute, here, line.out_next, line.n, 1, line.out_dtype,
                 line.out + j * line.out_next * line.out_bytes());
  }
}

// So few lines beside each other that their sums stay in registers.
template <class T, int kLines>
void scan_few_beside(const Line& line) {
  for (int64_t g = 0; g < line.groups; ++g) {
    const T* in = reinterpret_cast<const T*>(line.in) + g * line.in_group;
    T* out = reinterpret_cast<T*>(line.out) + g * line.out_group;
    SumOf<T> sums[kLines] = {};
    for (int64_t i = 0; i < line.n; ++i, in += line.in_step, out += line.out_step) {
      for (int j = 0; j < kLines; ++j) sums[j] += static_cast<SumOf<T>>(in[j]);
      for (int j = 0; j < kLines; ++j) out[j] = static_cast<T>(sums[j]);
    }
  }
}

// Lines beside each other of the dtype that is summed.
template <class T>
void scan_beside(const Line& line) {
  using Scan = void (*)(const Line&);
  constexpr Scan kFew[] = {scan_few_beside<T, 2>, scan_few_beside<T, 3>, scan_few_beside<T, 4>,
                           scan_few_beside<T, 5>, scan_few_beside<T, 6>, scan_few_beside<T, 7>,
                           scan_few_beside<T, 8>};
  if (line.lines <= kMostFew) return kFew[line.lines - 2](line);
  SumOf<T> sums[kAbreast];
  std::fill_n(sums, line.lines, SumOf<T>(0));
  const T* in = reinterpret_cast<const T*>(line.in);
  T* out = reinterpret_cast<T*>(line.out);
  for (int64_t i = 0; i < line.n; ++i, in += line.in_step, out += line.out_step) {
    for (int64_t j = 0; j < line.lines; ++j) {
      sums[j] += static_cast<SumOf<T>>(in[j]);
      out[j] = static_cast<T>(sums[j]);
    }
  }
}

template <class T>
void scan(const Line& line) {
  using Sum = SumOf<T>;
  if (line.is_along()) {
    if (line.is_computed()) return scan_direct<T>(line);
    if (line.n <= kScratchElements) return scan_converted<T>(line);
  }
  if (line.is_beside()) return scan_beside<T>(line);
  alignas(64) T values[kScratchElements];
  Sum sums[kAbreast];
  std::fill_n(sums, line.lines, Sum(0));
  const int64_t together = std::max<int64_t>(1, kScratchElements / line.lines);
  for (int64_t i = 0; i < line.n; i += together) {
    const int64_t here = std::min(together, line.n - i);
    gather_rows(line.in + i * line.in_step * line.in_bytes(), line.in_dtype, here, line.in_step,
                line.lines, line.in_next, line.compute, values);
    if (line.lines == 1) {
      sums[0] = scan_run<T>(values, here, sums[0], values);
    }
    for (int64_t k = 0; line.lines > 1 && k < here; ++k) {
      T* row = values + k * line.lines;
      for (int64_t j = 0; j < line.lines; ++j) {
        sums[j] += static_cast<Sum>(row[j]);
        row[j] = static_cast<T>(sums[j]);
      }
    }
    scatter_rows(values, line.compute, here, line.out_step, line.lines, line.out_next,
                 line.out_dtype, line.out + i * line.out_step * line.out_bytes());
  }
}

}  // namespace
}  // namespace cpu

void cumsum(const View& in, int dim, const View& out, int max_threads) {
  using cpu::Line;
  const char* what = "cumsum";
  check_has_kernels(what, in.dtype);
  check_has_kernels(what, out.dtype);
  if (is_complex(in.dtype) || is_complex(out.dtype)) {
    fail(ErrorKind::kNotSupported, what, " of ", dtype_name(in.dtype), " into ",
         dtype_name(out.dtype), " is not supported");
  }
  bool same = in.ndim == out.ndim && in.ndim <= cpu::kMaxNest;
  for (int i = 0; same && i < in.ndim; ++i) same = in.shape[i] == out.shape[i];
  if (!same) fail(ErrorKind::kInvalidArgument, what, ": out must have the input's shape");
  const int along = cpu::wrap_dim(what, dim, in.ndim);
  if (in.numel() == 0) return;
  Line line{};
  line.in_dtype = in.dtype, line.out_dtype = out.dtype;
  line.compute = is_floating(out.dtype) ? compute_dtype(out.dtype) : Dtype::kInt64;
  line.n = 1;
  cpu::Nest others;
  for (int i = 0; i < in.ndim; ++i) {
    if (i == along) {
      line.n = in.shape[i], line.in_step = in.strides[i], line.out_step = out.strides[i];
    } else if (in.shape[i] != 1) {
      others.push(in.shape[i], in.strides[i], out.strides[i]);
    }
  }
  others.sort();
  others.merge();
  const int last = others.ndim - 1;
  const int64_t run = last >= 0 ? others.size[last] : 1;
  // Lines beside each other are walked together, and as many short ones as a thread claims.
  const bool beside = last >= 0 && std::abs(others.stride[0][last]) < std::abs(line.in_step);
  const bool is_short =
      line.n < cpu::kShortLine || (line.is_along() && line.n <= cpu::kScratchElements);
  const int64_t most = beside     ? cpu::kAbreast
                       : is_short ? std::min(cpu::kAbreast, cpu::kScanUnit / line.n)
                                  : 1;
  const int64_t width = std::min(run, most);
  const int64_t blocks = (run + width - 1) / width;
  if (last >= 0) {
    line.in_next = others.stride[0][last], line.out_next = others.stride[1][last];
  }
  line.lines = width, line.groups = 1;
  // A few short lines beside each other are too little for a tile.
  const bool has_groups = last >= 1 && blocks == 1 && width <= cpu::kMostFew && line.is_beside();
  const int64_t groups = has_groups ? others.size[last - 1] : 1;
  const int64_t together = std::clamp<int64_t>(cpu::kScanUnit / (width * line.n), 1, groups);
  const int64_t parts = (groups + together - 1) / together;
  if (has_groups) {
    line.in_group = others.stride[0][last - 1], line.out_group = others.stride[1][last - 1];
  }
  const int64_t tiles = others.count() / (run * groups) * blocks * parts;
  const int64_t chunk = std::max<int64_t>(1, cpu::kScanUnit / (width * line.n * together));
  parallel_for((tiles + chunk - 1) / chunk, max_threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin * chunk; t < std::min(tiles, end * chunk); ++t) {
      const int64_t group = t / (blocks * parts) * groups + t % parts * together;
      const int64_t first = group * run + t % blocks * width;
      Line here = line;
      here.groups = std::min(together, groups - t % parts * together);
      here.lines = std::min(width, run - t % blocks * width);
      here.in = static_cast<const char*>(in.data) +
                others.offset(first, 0) * static_cast<int64_t>(itemsize(in.dtype));
      here.out = static_cast<char*>(out.data) +
                 others.offset(first, 1) * static_cast<int64_t>(itemsize(out.dtype));
      if (here.lines == 1) here.in_next = here.out_next = 1;
      switch (here.compute) {
        case Dtype::kFloat32:
          cpu::scan<float>(here);
          break;
        case Dtype::kFloat64:
          cpu::scan<double>(here);
          break;
        default:
          cpu::scan<int64_t>(here);
      }
    }
  });
}

void cpu::run(const calls::Cumsum<>& call, CallThreads threads) {
  hologram::cumsum(call.input, static_cast<int>(call.dim), call.out, threads(call.input.numel()));
}

}  // namespace hologram
