// SPDX-License-Identifier: MIT
// Joins pieces of memory, takes rows from positions and puts them there. Adding is in add_at.cc.
#include "hologram/indexing.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "src/base/element.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/device/kernel_table.h"
#include "src/cpu/movement/around.h"
#include "src/cpu/movement/copy_bytes.h"
#include "src/cpu/movement/index_kernels.h"

namespace hologram {
namespace cpu {
namespace {

constexpr int64_t kChunkBytes = 64 << 10;
// Shorter runs are not worth aligning for streaming stores.
constexpr int64_t kStreamRun = 4096;

// Copies `bytes` bytes, from kBytes to twice that many, as the first and the last kBytes, which may
// overlap.
template <int kBytes>
void copy_ends(char* to, const char* from, int64_t bytes) {
  char first[kBytes], last[kBytes];
  std::memcpy(first, from, kBytes);
  std::memcpy(last, from + bytes - kBytes, kBytes);
  std::memcpy(to, first, kBytes);
  std::memcpy(to + bytes - kBytes, last, kBytes);
}

// Short pieces are copied inline: calling memcpy costs more than a few moves.
inline void copy_small(char* to, const char* from, int64_t bytes) {
  if (bytes > 64) {
    copy_bytes(to, from, bytes);
  } else if (bytes > 32) {
    copy_ends<32>(to, from, bytes);
  } else if (bytes >= 16) {
    copy_ends<16>(to, from, bytes);
  } else if (bytes >= 8) {
    copy_ends<8>(to, from, bytes);
  } else if (bytes >= 4) {
    copy_ends<4>(to, from, bytes);
  } else {
    for (int64_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

void copy_run(char* to, const char* from, int64_t bytes, bool stream) {
  if (from == nullptr) {
    std::memset(to, 0, static_cast<size_t>(bytes));
    return;
  }
  if (stream && bytes >= kStreamRun) {
    const int64_t head = -static_cast<int64_t>(reinterpret_cast<uintptr_t>(to)) & 63;
    const int64_t body = (bytes - head) & ~int64_t{63};
    std::memcpy(to, from, static_cast<size_t>(head));
    convert_table(current_isa()).stream(from + head, to + head, body);
    to += head + body, from += head + body, bytes -= head + body;
  }
  copy_small(to, from, bytes);
}

// --- Taking -------------------------------------------------------------------------------------

// A place far away costs about as much as 16 bytes.
int64_t taken_per_chunk(int64_t inner) { return std::max<int64_t>(1, kChunkBytes / (inner + 16)); }

// f(line, k, last): positions [k, last) of a line, for all of [begin, end) of [outer, n].
template <class F>
void for_lines(int64_t begin, int64_t end, int64_t n, F&& f) {
  for (int64_t line = begin / n; begin < end; ++line) {
    const int64_t stop = std::min(end, (line + 1) * n);
    f(line, begin - line * n, stop - line * n);
    begin = stop;
  }
}

// Whether rows are single elements of 1 to 16 bytes and are taken straight by their positions: with
// many positions in several lines a list of places would cost more than it saves.
bool takes_elements(int64_t outer, int64_t inner, int64_t n) {
  return inner <= 16 && (inner & (inner - 1)) == 0 && (outer == 1 || n > kPositionBlock);
}

template <class T, class Index>
bool take_line(const T* __restrict from, const Index* __restrict index, int64_t n, int64_t size,
               T* __restrict out) {
  bool good = true;
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; ++i) {
    int64_t at = index[i];
    at += at >> 63 & size;
    if (!inside(at, size)) [[unlikely]] {
      good = false;
      at = 0;
    }
    out[i] = from[at];
  }
  return good;
}

// False for a position outside, which has taken the first element.
template <class Index>
bool take_elements(const void* in, int64_t outer, int64_t size, int64_t inner, const Index* index,
                   int64_t n, void* out, int max_threads) {
  if (size == 0) return false;
  std::atomic<bool> all{true};
  with_element("take", inner, [&](auto type) {
    using T = decltype(type);
    for_chunks(outer * n, taken_per_chunk(inner), threads_of(max_threads),
               [&](int64_t begin, int64_t end) {
                 bool good = true;
                 for_lines(begin, end, n, [&](int64_t line, int64_t k, int64_t last) {
                   good &= take_line(static_cast<const T*>(in) + line * size, index + k, last - k,
                                     size, static_cast<T*>(out) + line * n + k);
                 });
                 if (!good) all.store(false, std::memory_order_relaxed);
               });
    return true;
  });
  return all.load();
}

template <class Index>
void take_rows(const void* in, int64_t outer, int64_t size, int64_t inner, const Index* index,
               int64_t n, void* out, int max_threads) {
  const IndexKernels& kernels = index_kernels(current_isa());
  const char* const from = static_cast<const char*>(in);
  char* const to = static_cast<char*>(out);
  for_chunks(outer * n, taken_per_chunk(inner), threads_of(max_threads),
             [&](int64_t begin, int64_t end) {
               int64_t places[kPositionBlock];
               const auto take_some = [&](int64_t line, int64_t k, int64_t last) {
                 for (; k < last; k += kPositionBlock) {
                   const int64_t rows = std::min(kPositionBlock, last - k);
                   find_places(kernels, index + k, rows, size, inner, places);
                   kernels.take(from + line * size * inner, places, to + (line * n + k) * inner,
                                {1, 0, 0, rows, inner, inner});
                 }
               };
               // Whole lines that read the same places go together.
               const int64_t first = ceil_div(begin, n), lines = end / n - first;
               if (lines < 2 || n > kPositionBlock) return for_lines(begin, end, n, take_some);
               for_lines(begin, first * n, n, take_some);
               find_places(kernels, index, n, size, inner, places);
               kernels.take(from + first * size * inner, places, to + first * n * inner,
                            {lines, size * inner, n * inner, n, inner, inner});
               for_lines((first + lines) * n, end, n, take_some);
             });
}

// --- Joining ------------------------------------------------------------------------------------

// Rows of more bytes are joined one after another.
constexpr int64_t kShortJoin = 256;

// Short rows: one piece of many of them at a time.
void join_short(const Piece* pieces, int64_t count, int64_t rows, int64_t row, char* out,
                int max_threads) {
  static constexpr char kZeros[kShortJoin] = {};
  const int64_t together = kChunkBytes / row;
  for_chunks(rows, together, threads_of(max_threads), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r += together) {
      const int64_t here = std::min(together, end - r);
      char* to = out + r * row;
      for (int64_t i = 0; i < count; ++i) {
        const Piece& piece = pieces[i];
        const char* from = static_cast<const char*>(piece.data);
        if (from == nullptr) {
          copy_rows(kZeros, 0, to, row, here, piece.bytes);
        } else {
          copy_rows(from + r * piece.bytes, piece.bytes, to, row, here, piece.bytes);
        }
        to += piece.bytes;
      }
    }
  });
}

}  // namespace
}  // namespace cpu

void join(const Piece* pieces, int64_t count, int64_t rows, void* out, int max_threads) {
  using namespace cpu;
  int64_t row = 0;
  for (int64_t i = 0; i < count; ++i) row += pieces[i].bytes;
  const int64_t total = rows * row;
  if (total == 0) return;
  if (row <= kShortJoin && rows > 1) {
    return join_short(pieces, count, rows, row, static_cast<char*>(out), max_threads);
  }
  const bool stream = total >= kStreamBytes;
  for_chunks(total, kChunkBytes, threads_of(max_threads), [&](int64_t begin, int64_t end) {
    char* to = static_cast<char*>(out) + begin;
    int64_t r = begin / row, skip = begin % row, left = end - begin;
    int64_t i = 0;
    for (; skip >= pieces[i].bytes; ++i) skip -= pieces[i].bytes;
    while (left > 0) {
      const Piece& piece = pieces[i];
      const int64_t bytes = std::min(left, piece.bytes - skip);
      const char* from = static_cast<const char*>(piece.data);
      if (from != nullptr) from += r * piece.bytes + skip;
      copy_run(to, from, bytes, stream);
      to += bytes, left -= bytes, skip = 0;
      if (++i == count) i = 0, ++r;
    }
  });
}

bool positions_within(const Positions& positions, int64_t low, int64_t high) {
  cpu::check_index("positions_within", positions);
  const cpu::IndexKernels& kernels = cpu::index_kernels(current_isa());
  bool within = true;
  cpu::with_index(positions, [&](const auto* index) {
    within = cpu::are_within(kernels, index, positions.n, low, high);
  });
  return within;
}

void take(const void* in, int64_t outer, int64_t size, int64_t inner, const Positions& positions,
          void* out, int max_threads) {
  cpu::check_index("take", positions);
  if (outer == 0 || inner == 0 || positions.n == 0) return;
  cpu::with_index(positions, [&](const auto* index) {
    if (cpu::takes_elements(outer, inner, positions.n)) {
      cpu::take_elements(in, outer, size, inner, index, positions.n, out, max_threads);
    } else {
      cpu::take_rows(in, outer, size, inner, index, positions.n, out, max_threads);
    }
  });
}

void put_at(void* out, int64_t outer, int64_t size, int64_t inner, const Positions& positions,
            const void* values, int max_threads) {
  using namespace cpu;
  check_index("put_at", positions);
  const int64_t n = positions.n;
  if (inner == 0 || n == 0) return;
  // A thread takes some columns of all values, so that the last value of a place stays.
  const int64_t width = std::clamp<int64_t>(inner / (4 * threads_of(max_threads)), 1024, 16384);
  const int64_t columns = (inner + width - 1) / width;
  const int64_t per_chunk = std::max<int64_t>(1, kChunkBytes / (n * (std::min(width, inner) + 16)));
  const IndexKernels& kernels = index_kernels(current_isa());
  const auto put_tiles = [&](const auto* index, int64_t begin, int64_t end) {
    int64_t places[kPositionBlock];
    const auto put = [&](int64_t tile, int64_t lines, int64_t k, int64_t rows) {
      const int64_t line = tile / columns, j = tile % columns * width;
      kernels.put(static_cast<const char*>(values) + (line * n + k) * inner + j,
                  static_cast<char*>(out) + line * size * inner + j, places,
                  {lines, n * inner, size * inner, rows, inner, std::min(width, inner - j)});
    };
    if (n <= kPositionBlock) {
      find_places(kernels, index, n, size, inner, places);
      if (columns == 1) return put(begin, end - begin, 0, n);
      for (int64_t tile = begin; tile < end; ++tile) put(tile, 1, 0, n);
      return;
    }
    for (int64_t tile = begin; tile < end; ++tile) {
      for (int64_t k = 0; k < n; k += kPositionBlock) {
        const int64_t rows = std::min(kPositionBlock, n - k);
        find_places(kernels, index + k, rows, size, inner, places);
        put(tile, 1, k, rows);
      }
    }
  };
  with_index(positions, [&](const auto* index) {
    for_chunks(outer * columns, per_chunk, threads_of(max_threads),
               [&](int64_t begin, int64_t end) { put_tiles(index, begin, end); });
  });
}

namespace cpu {

void run(const calls::Take<>& call, CallThreads threads) {
  const Around around(call.input, call.dim);
  const int64_t inner = around.inner * item_bytes(call.input);
  const int64_t n = call.index.numel();
  const int most = threads(around.outer * n * inner / 4);
  if (n == 0 || around.outer * inner == 0) return check_inside(call.index, around.size);
  const Positions positions = positions_of(call.index);
  with_index(positions, [&](const auto* index) {
    if (takes_elements(around.outer, inner, n)) {
      if (!take_elements(call.input.data, around.outer, around.size, inner, index, n, call.out.data,
                         most)) {
        fail_outside(around.size);
      }
    } else {
      check_inside(call.index, around.size);
      take_rows(call.input.data, around.outer, around.size, inner, index, n, call.out.data, most);
    }
  });
}

void run(const calls::AddAt<>& call, CallThreads threads) {
  const View& self = call.self;
  const Around around(self, call.dim);
  check_inside(call.index, around.size);
  AddAtOptions options;
  options.max_threads = threads(call.source.numel());
  hologram::add_at(self.dtype, self.data, around.outer, around.size, around.inner,
                   positions_of(call.index), call.source.data, options);
}

void run(const calls::PutAt<>& call, CallThreads threads) {
  const View& self = call.self;
  const Around around(self, call.dim);
  check_inside(call.index, around.size);
  hologram::put_at(self.data, around.outer, around.size, around.inner * item_bytes(self),
                   positions_of(call.index), call.source.data, threads(call.source.numel()));
}

void run(const calls::EmbeddingBackward<>& call, CallThreads threads) {
  const View &grad = call.grad, &out = call.grad_weight;
  check_inside(call.indices, call.num_weights);
  AddAtOptions options;
  options.mean = call.scale_grad_by_freq;
  options.skipped = &call.padding_idx;
  options.max_threads = threads(grad.numel());
  hologram::fill(int64_t{0}, out, threads(out.numel()));
  hologram::add_at(grad.dtype, out.data, 1, call.num_weights, out.shape[1],
                   positions_of(call.indices), grad.data, options);
}

// indices: dimensions from the first on, sizes[d] positions in each; all have as many positions as
// the result.
void run(const calls::JointPositions<>& call, CallThreads) {
  auto* const joint = static_cast<int64_t*>(call.out.data);
  const int64_t n = call.out.numel();
  std::fill_n(joint, n, 0);
  for (size_t d = 0; d < call.indices.size(); ++d) {
    const int64_t size = call.sizes[d];
    const auto* const at = static_cast<const int64_t*>(call.indices[d].data);
    if (!positions_within({at, Dtype::kInt64, n}, -size, size)) fail_outside(size);
    for (int64_t i = 0; i < n; ++i) joint[i] = joint[i] * size + (at[i] < 0 ? at[i] + size : at[i]);
  }
}

// A piece is [rows, width] elements; without data: zeros.
void run(const calls::Join<>& call, CallThreads threads) {
  std::vector<Piece> pieces;
  int64_t row = 0;
  for (const View& piece : call.pieces) {
    pieces.push_back({piece.data, piece.shape[1] * item_bytes(piece)});
    row += pieces.back().bytes;
  }
  hologram::join(pieces.data(), static_cast<int64_t>(pieces.size()), call.rows, call.out.data,
                 threads(call.rows * row / 4));
}

// begins[k]: the byte of the result where piece k's first element goes; strides: in the result, for
// each dimension of each piece.
void run(const calls::Place<>& call, CallThreads threads) {
  const int64_t* strides = call.strides.data();
  for (size_t k = 0; k < call.pieces.size(); ++k) {
    const View& from = call.pieces[k];
    hologram::copy(from,
                   {static_cast<char*>(call.out.data) + call.begins[k], call.out.dtype, from.ndim,
                    from.shape, strides},
                   threads(from.numel()));
    strides += from.ndim;
  }
}

void run(const calls::Triangle<>& call, CallThreads threads) {
  const View& in = call.input;
  const int64_t rows = in.shape[in.ndim - 2], cols = in.shape[in.ndim - 1];
  hologram::triangle(in.data, in.numel() / (rows * cols), rows, cols, item_bytes(in), call.diagonal,
                     call.upper, call.out.data, threads(in.numel()));
}

}  // namespace cpu

}  // namespace hologram
