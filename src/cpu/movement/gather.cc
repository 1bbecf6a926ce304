// SPDX-License-Identifier: MIT
// gather, scatter and triangles: elements moved one by one.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "hologram/error.h"
#include "hologram/indexing.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/movement/around.h"
#include "src/cpu/movement/index_kernels.h"

namespace hologram {
namespace cpu {
namespace {

// An element of 16 bytes.
struct Sixteen {
  uint64_t words[2];
};

// Calls f(a value of the unsigned type that has `bytes` bytes).
template <class F>
bool with_bytes(const char* what, int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    case 16:
      return f(Sixteen{});
    default:
      fail(ErrorKind::kNotSupported, what, ": no element has ", bytes, " bytes");
  }
}

// What lies outside is left out and reported.
inline bool inside(int64_t at, int64_t size) {
  return static_cast<uint64_t>(at) < static_cast<uint64_t>(size);
}

// Rows [begin, end) of [outer, n] and columns [first, last) of them. With kChecks an index outside
// names the first place.
template <bool kChecks, class T>
void gather_rows(const T* in, const GatherShape& s, const int64_t* index, T* out, int64_t begin,
                 int64_t end, int64_t first, int64_t last) {
  const auto place = [&](int64_t at) { return !kChecks || inside(at, s.size) ? at : 0; };
  const T* from = in + begin / s.n * s.size * s.inner;
  for (int64_t row = begin, line_end = (begin / s.n + 1) * s.n; row < end; line_end += s.n) {
    const int64_t stop = std::min(end, line_end);
    if (s.inner == 1) {
      for (; row < stop; ++row) out[row] = from[place(index[row])];
    } else {
      for (; row < stop; ++row) {
        const int64_t* const at = index + row * s.inner;
        T* const to = out + row * s.inner;
        for (int64_t i = first; i < last; ++i) to[i] = from[place(at[i]) * s.inner + i];
      }
    }
    from += s.size * s.inner;
  }
}

// Indices are checked by blocks before their elements are moved: the loops that move them then have
// no branch.
template <class T>
bool gather_typed(const T* in, const GatherShape& s, const int64_t* index, T* out,
                  int max_threads) {
  std::atomic<bool> all{true};
  const int64_t per_chunk = std::max<int64_t>(1, grain(true) / s.inner);
  const int64_t block_rows = std::max<int64_t>(1, kPositionBlock / s.inner);
  const int64_t block_columns = std::min(kPositionBlock, s.inner);
  const IndexKernels& kernels = index_kernels(current_isa());
  for_chunks(s.outer * s.n, per_chunk, threads_of(max_threads), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row += block_rows) {
      const int64_t rows = std::min(block_rows, end - row);
      for (int64_t i = 0; i < s.inner; i += block_columns) {
        const int64_t columns = std::min(block_columns, s.inner - i);
        // More than one row is whole rows.
        if (are_within(kernels, index + row * s.inner + i, rows * columns, 0, s.size)) {
          gather_rows<false>(in, s, index, out, row, row + rows, i, i + columns);
        } else {
          gather_rows<true>(in, s, index, out, row, row + rows, i, i + columns);
          all.store(false, std::memory_order_relaxed);
        }
      }
    }
  });
  return all.load();
}

// Columns of a tile of scattered elements, which a thread takes with all their values.
constexpr int64_t kScatterColumns = 64;

// f(to, from) for rows [begin, end) of a line and columns [first, last) of them. With kChecks an
// index outside is left out.
template <bool kChecks, bool kOne, class T, class F>
void scatter_rows(T* to, const GatherShape& s, const int64_t* index, const T* values, int64_t begin,
                  int64_t end, int64_t first, int64_t last, F&& f) {
  const T one = kOne ? *values : T();
  if (s.inner == 1) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t at = index[k];
      if (!kChecks || inside(at, s.size)) f(to[at], kOne ? one : values[k]);
    }
    return;
  }
  for (int64_t k = begin; k < end; ++k) {
    const int64_t row = k * s.inner;
    for (int64_t i = first; i < last; ++i) {
      const int64_t at = index[row + i];
      if (!kChecks || inside(at, s.size)) f(to[at * s.inner + i], kOne ? one : values[row + i]);
    }
  }
}

// f(to, from) for every element, k ascending for each place; a thread takes whole places.
template <bool kOne, class T, class F>
bool scatter_tiles(T* out, const GatherShape& s, const int64_t* index, const T* values,
                   int max_threads, F&& f) {
  std::atomic<bool> all{true};
  const int64_t columns = ceil_div(s.inner, kScatterColumns);
  const int64_t width = std::min(s.inner, kScatterColumns), line = s.n * s.inner;
  const int64_t per_chunk = std::max<int64_t>(1, grain(true) / (s.n * width));
  const IndexKernels& kernels = index_kernels(current_isa());
  const int64_t block_rows = columns > 1 ? 1 : std::max<int64_t>(1, kPositionBlock / s.inner);
  const auto scatter_some = [&](int64_t o, int64_t k, int64_t rows, int64_t first, bool checked) {
    const int64_t last = std::min(s.inner, first + width);
    T* const to = out + o * s.size * s.inner;
    const T* const from = kOne ? values : values + o * line;
    if (checked || are_within(kernels, index + o * line + k * s.inner + first,
                              rows * (last - first), 0, s.size)) {
      scatter_rows<false, kOne>(to, s, index + o * line, from, k, k + rows, first, last, f);
    } else {
      scatter_rows<true, kOne>(to, s, index + o * line, from, k, k + rows, first, last, f);
      all.store(false, std::memory_order_relaxed);
    }
  };
  for_chunks(
      s.outer * columns, per_chunk, threads_of(max_threads), [&](int64_t begin, int64_t end) {
        if (columns == 1 && line <= kPositionBlock) {  // many short lines are checked at a time
          const int64_t block_lines = kPositionBlock / line;
          for (int64_t o = begin; o < end; o += block_lines) {
            const int64_t lines = std::min(block_lines, end - o);
            const bool fits = are_within(kernels, index + o * line, lines * line, 0, s.size);
            for (int64_t l = o; l < o + lines; ++l) scatter_some(l, 0, s.n, 0, fits);
          }
          return;
        }
        for (int64_t tile = begin; tile < end; ++tile) {
          for (int64_t k = 0; k < s.n; k += block_rows) {
            scatter_some(tile / columns, k, std::min(block_rows, s.n - k),
                         tile % columns * kScatterColumns, false);
          }
        }
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
  return cpu::with_bytes("gather", bytes, [&](auto type) {
    using T = decltype(type);
    return cpu::gather_typed(static_cast<const T*>(in), shape, index, static_cast<T*>(out),
                             max_threads);
  });
}

bool scatter(void* out, int64_t bytes, const GatherShape& shape, const int64_t* index,
             const void* values, bool one, int max_threads) {
  if (cpu::is_empty(shape)) return true;
  return cpu::with_bytes("scatter", bytes, [&](auto type) {
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
  for_chunks(count * rows, per_chunk, threads_of(max_threads), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const char* from = static_cast<const char*>(in) + row * line;
      char* to = static_cast<char*>(out) + row * line;
      // The first column of what is kept (upper), or the first that is not.
      const int64_t edge =
          std::clamp<int64_t>(row % rows + diagonal + (upper ? 0 : 1), 0, cols) * bytes;
      const int64_t kept = upper ? edge : 0, zeroed = upper ? 0 : edge;
      const int64_t keeps = upper ? line - edge : edge;
      std::memset(to + zeroed, 0, static_cast<size_t>(line - keeps));
      if (from != to) std::memcpy(to + kept, from + kept, static_cast<size_t>(keeps));
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
