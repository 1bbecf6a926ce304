// SPDX-License-Identifier: MIT
// gather, scatter and triangles: elements moved one by one.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "hologram/error.h"
#include "hologram/indexing.h"
#include "src/base/element.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/movement/around.h"
#include "src/cpu/movement/copy_bytes.h"

namespace hologram {
namespace cpu {
namespace {

// Elements of one line, `step` apart, from each next place of it where kSlides. An index outside is
// a branch that is never taken: it costs less than a look at all of them before. False for one.
template <bool kSlides, class T>
bool gather_line(const T* __restrict from, const int64_t* __restrict index, int64_t n, int64_t size,
                 int64_t step, T* __restrict out) {
  bool good = true;
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; ++i) {
    int64_t at = index[i];
    if (!inside(at, size)) [[unlikely]] {
      good = false;
      at = 0;
    }
    out[i] = kSlides ? from[at * step + i] : from[at];
  }
  return good;
}

template <class T>
bool gather_typed(const T* in, const GatherShape& s, const int64_t* index, T* out,
                  int max_threads) {
  std::atomic<bool> all{true};
  const int64_t n = s.n, size = s.size, inner = s.inner;
  const int64_t per_chunk = std::max<int64_t>(1, grain(true) / inner);
  for_chunks(s.outer * n, per_chunk, threads_of(max_threads), [&](int64_t begin, int64_t end) {
    bool good = true;
    const T* from = in + begin / n * size * inner;
    int64_t row = begin, line_end = (begin / n + 1) * n;
    if (inner == 1) {
      for (; row < end; from += size, line_end += n) {
        const int64_t stop = std::min(end, line_end);
        good &= gather_line<false>(from, index + row, stop - row, size, 1, out + row);
        row = stop;
      }
    }
    for (; row < end; from += size * inner, line_end += n) {
      for (const int64_t stop = std::min(end, line_end); row < stop; ++row) {
        good &= gather_line<true>(from, index + row * inner, inner, size, inner, out + row * inner);
      }
    }
    if (!good) all.store(false, std::memory_order_relaxed);
  });
  return all.load();
}

// Columns of a tile of scattered elements, which a thread takes with all their values.
constexpr int64_t kScatterColumns = 64;

// f(to, from) for every element, k ascending for each place; a thread takes whole places.
template <bool kOne, class T, class F>
bool scatter_tiles(T* out, const GatherShape& s, const int64_t* index, const T* values,
                   int max_threads, F&& f) {
  std::atomic<bool> all{true};
  const int64_t n = s.n, size = s.size, inner = s.inner, line = n * inner;
  const int64_t columns = ceil_div(inner, kScatterColumns);
  const int64_t width = std::min(inner, kScatterColumns);
  const int64_t per_chunk = std::max<int64_t>(1, grain(true) / (n * width));
  const T one = kOne ? *values : T();
  for_chunks(s.outer * columns, per_chunk, threads_of(max_threads),
             [&](int64_t begin, int64_t end) {
               bool good = true;
               const auto move = [&](T* to, int64_t at, int64_t step, const T* from) {
                 if (!inside(at, size)) [[unlikely]] {
                   good = false;
                   return;
                 }
                 f(to[at * step], kOne ? one : *from);
               };
               if (inner == 1) {
                 T* to = out + begin * size;
                 int64_t e = begin * n;
                 for (int64_t l = begin; l < end; ++l, to += size) {
                   for (const int64_t last = e + n; e < last; ++e) {
                     move(to, index[e], 1, values + (kOne ? 0 : e));
                   }
                 }
               }
               for (int64_t tile = inner == 1 ? end : begin; tile < end; ++tile) {
                 const int64_t l = tile / columns, first = (tile - l * columns) * kScatterColumns;
                 const int64_t last = std::min(inner, first + width);
                 T* const to = out + l * size * inner;
                 for (int64_t row = l * line; row < (l + 1) * line; row += inner) {
                   for (int64_t i = first; i < last; ++i) {
                     move(to + i, index[row + i], inner, values + (kOne ? 0 : row + i));
                   }
                 }
               }
               if (!good) all.store(false, std::memory_order_relaxed);
             });
  return all.load();
}

template <class T, class F>
bool scatter_typed(T* out, const GatherShape& s, const int64_t* index, const T* values, bool one,
                   int max_threads, F&& f) {
  return one ? scatter_tiles<true>(out, s, index, values, max_threads, f)
             : scatter_tiles<false>(out, s, index, values, max_threads, f);
}

template <class T>
bool add_typed(void* out, const GatherShape& s, const int64_t* index, const void* values,
               int max_threads) {
  return scatter_typed(static_cast<T*>(out), s, index, static_cast<const T*>(values), false,
                       max_threads, [](T& to, T value) { to = static_cast<T>(to + value); });
}

bool is_empty(const GatherShape& s) { return s.outer == 0 || s.n == 0 || s.inner == 0; }

}  // namespace
}  // namespace cpu

bool gather(const void* in, int64_t bytes, const GatherShape& shape, const int64_t* index,
            void* out, int max_threads) {
  if (cpu::is_empty(shape)) return true;
  if (shape.size == 0) return false;
  return with_element("gather", bytes, [&](auto type) {
    using T = decltype(type);
    return cpu::gather_typed(static_cast<const T*>(in), shape, index, static_cast<T*>(out),
                             max_threads);
  });
}

bool scatter(void* out, int64_t bytes, const GatherShape& shape, const int64_t* index,
             const void* values, bool one, int max_threads) {
  if (cpu::is_empty(shape)) return true;
  return with_element("scatter", bytes, [&](auto type) {
    using T = decltype(type);
    return cpu::scatter_typed(static_cast<T*>(out), shape, index, static_cast<const T*>(values),
                              one, max_threads, [](T& to, T value) { to = value; });
  });
}

bool scatter_add(Dtype dtype, void* out, const GatherShape& shape, const int64_t* index,
                 const void* values, int max_threads) {
  if (cpu::is_empty(shape)) return true;
  switch (dtype) {
    case Dtype::kFloat32:
      return cpu::add_typed<float>(out, shape, index, values, max_threads);
    case Dtype::kFloat64:
      return cpu::add_typed<double>(out, shape, index, values, max_threads);
    // Unsigned: integers wrap.
    case Dtype::kInt32:
      return cpu::add_typed<uint32_t>(out, shape, index, values, max_threads);
    case Dtype::kInt64:
      return cpu::add_typed<uint64_t>(out, shape, index, values, max_threads);
    default:
      fail(ErrorKind::kNotSupported, "scatter_add is not implemented for ", dtype_name(dtype),
           "; use float32, float64, int32 or int64");
  }
}

void triangle(const void* in, int64_t count, int64_t rows, int64_t cols, int64_t bytes,
              int64_t diagonal, bool upper, void* out, int max_threads) {
  using namespace cpu;
  if (count == 0 || rows == 0 || cols == 0) return;
  const int64_t line = cols * bytes;
  const int64_t per_chunk = std::max<int64_t>(1, (int64_t{64} << 10) / line);
  diagonal = std::clamp(diagonal, -rows, cols);
  // Row r is divided at column r + before. Rows that end before the first such column lie together,
  // and so do those whose column is behind the last.
  const int64_t before = diagonal + (upper ? 0 : 1);
  const int64_t divided = std::clamp<int64_t>(-before, 0, rows);
  const int64_t beyond = std::clamp<int64_t>(cols - before, divided, rows);
  const auto write = [&](int64_t begin, int64_t n, bool keeps) {
    const char* from = static_cast<const char*>(in) + begin;
    char* to = static_cast<char*>(out) + begin;
    if (n == 0) return;
    if (!keeps) {
      std::memset(to, 0, static_cast<size_t>(n));
    } else if (from != to) {
      copy_bytes(to, from, n);
    }
  };
  for_chunks(count * rows, per_chunk, threads_of(max_threads), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end;) {
      const int64_t r = row % rows, matrix = row - r;
      const int64_t stop = r < divided ? divided : r < beyond ? r + 1 : rows;
      const int64_t next = std::min(end, matrix + stop);
      if (r < divided || r >= beyond) {
        write(row * line, (next - row) * line, upper == (r < divided));
      } else {
        const int64_t edge = (r + before) * bytes;
        write(row * line, edge, !upper);
        write(row * line + edge, line - edge, upper);
      }
      row = next;
    }
  });
}

namespace cpu {

void run(const calls::Gather<>& call, CallThreads threads) {
  const Around around(call.input, call.dim);
  const GatherShape shape{around.outer, around.size, call.index.shape[call.dim], around.inner};
  if (!hologram::gather(call.input.data, item_bytes(call.input), shape,
                        static_cast<const int64_t*>(call.index.data), call.out.data,
                        threads(call.index.numel()))) {
    fail_outside(shape.size);
  }
}

void run(const calls::Scatter<>& call, CallThreads threads) {
  const View& self = call.self;
  const Around around(self, call.dim);
  const GatherShape shape{around.outer, around.size, call.index.shape[call.dim], around.inner};
  const auto* at = static_cast<const int64_t*>(call.index.data);
  const int most = threads(call.index.numel());
  const bool one = !call.source.has_data();
  const bool inside =
      call.add && !one
          ? hologram::scatter_add(self.dtype, self.data, shape, at, call.source.data, most)
          : hologram::scatter(self.data, item_bytes(self), shape, at,
                              one ? &call.element : call.source.data, one, most);
  if (!inside) fail_outside(shape.size);
}

}  // namespace cpu

}  // namespace hologram
