// SPDX-License-Identifier: MIT
// Joins pieces of memory, takes and adds rows by index.
#include "hologram/indexing.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/device/kernel_table.h"
#include "src/cpu/movement/around.h"
#include "src/cpu/movement/copy_bytes.h"

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

template <class Index>
bool all_within(const Index* index, int64_t n, int64_t low, int64_t high) {
  bool within = true;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = index[i];
    within &= at >= low && at < high;
  }
  return within;
}

// f(index) with the positions under their own type.
template <class F>
void with_index(const Positions& positions, F&& f) {
  if (positions.dtype == Dtype::kInt64) {
    f(static_cast<const int64_t*>(positions.data));
  } else {
    f(static_cast<const int32_t*>(positions.data));
  }
}

void check_index(const char* what, const Positions& positions) {
  if (positions.dtype != Dtype::kInt64 && positions.dtype != Dtype::kInt32) {
    fail(ErrorKind::kTypeMismatch, what, ": positions are int64 or int32, not ",
         dtype_name(positions.dtype));
  }
}

template <int kBytes>
struct Fixed {
  static void copy(char* to, const char* from, int64_t) { std::memcpy(to, from, kBytes); }
};
struct Any {
  static void copy(char* to, const char* from, int64_t bytes) { copy_small(to, from, bytes); }
};

template <class Copy, class Index>
void take_rows(const char* in, int64_t size, int64_t inner, const Index* index, int64_t n,
               char* out, int64_t begin, int64_t end) {
  int64_t k = begin % n;
  const char* from = in + begin / n * size * inner;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = index[k];
    Copy::copy(out + row * inner, from + (at < 0 ? at + size : at) * inner, inner);
    if (++k == n) k = 0, from += size * inner;
  }
}

template <class Index>
void take_any(const char* in, int64_t size, int64_t inner, const Index* index, int64_t n, char* out,
              int64_t begin, int64_t end) {
  const auto run = [&](auto copy) {
    take_rows<decltype(copy)>(in, size, inner, index, n, out, begin, end);
  };
  switch (inner) {
    case 1:
      return run(Fixed<1>());
    case 2:
      return run(Fixed<2>());
    case 4:
      return run(Fixed<4>());
    case 8:
      return run(Fixed<8>());
    case 16:
      return run(Fixed<16>());
    default:
      return run(Any());
  }
}

// The values for each place of [0, size) in their order: those of place p are
// order[first[s] .. first[s + 1]) for the one s with place[s] == p.
struct Groups {
  std::unique_ptr<int64_t[]> memory;
  int64_t count = 0;
  int64_t* place = nullptr;
  int64_t* first = nullptr;
  int64_t* order = nullptr;
};

template <class Index>
Groups group(const Index* index, int64_t n, int64_t size, const int64_t* skipped) {
  // Counting takes time for every place, sorting for every value.
  const bool counts = size <= 16 * n + 1024;
  Groups groups;
  groups.memory.reset(new (std::nothrow) int64_t[static_cast<size_t>(3 * n + 1 + counts * size)]);
  if (groups.memory == nullptr) {
    fail(ErrorKind::kOutOfMemory, "add_at needs ", 8 * (3 * n + 1 + counts * size), " bytes");
  }
  groups.place = groups.memory.get();
  groups.first = groups.place + n;
  groups.order = groups.first + n + 1;
  const auto place_of = [&](int64_t k) {
    const int64_t at = index[k];
    return at < 0 ? at + size : at;
  };
  const auto is_skipped = [&](int64_t k) { return skipped != nullptr && index[k] == *skipped; };
  int64_t total = 0;
  if (counts) {
    int64_t* next = groups.order + n;
    std::fill_n(next, size, 0);
    for (int64_t k = 0; k < n; ++k) {
      if (!is_skipped(k)) ++next[place_of(k)];
    }
    for (int64_t p = 0; p < size; ++p) {
      if (next[p] == 0) continue;
      groups.place[groups.count] = p;
      groups.first[groups.count++] = total;
      total += next[p];
      next[p] = total - next[p];
    }
    for (int64_t k = 0; k < n; ++k) {
      if (!is_skipped(k)) groups.order[next[place_of(k)]++] = k;
    }
  } else {
    for (int64_t k = 0; k < n; ++k) {
      if (!is_skipped(k)) groups.order[total++] = k;
    }
    std::sort(groups.order, groups.order + total, [&](int64_t a, int64_t b) {
      const int64_t x = place_of(a), y = place_of(b);
      return x != y ? x < y : a < b;
    });
    for (int64_t i = 0; i < total; ++i) {
      const int64_t p = place_of(groups.order[i]);
      if (groups.count > 0 && groups.place[groups.count - 1] == p) continue;
      groups.place[groups.count] = p;
      groups.first[groups.count++] = i;
    }
  }
  groups.first[groups.count] = total;
  return groups;
}

// Columns of a tile: many, to read rows in one go, unless the places are too few for the threads.
constexpr int64_t kColumns = 1024;
constexpr int64_t kFewColumns = 64;

// One tile of columns of one place: the sum starts from what is there.
void add_tile(const Groups& groups, int64_t s, Dtype dtype, char* to, const char* values,
              int64_t row_bytes, int64_t width, bool mean) {
  const Dtype compute = compute_dtype(dtype);
  static constexpr OpId kAdd = OpId::add, kDiv = OpId::div;
  const ElementwiseKernel add = elementwise_kernel(kAdd, compute);
  alignas(64) char sum[kColumns * 8], value[kColumns * 8];
  const bool plain = compute == dtype && !mean;
  char* total = plain ? to : sum;
  if (!plain) {
    if (mean) {
      std::memset(sum, 0, static_cast<size_t>(width) * itemsize(compute));
    } else {
      convert(dtype, to, compute, sum, width);
    }
  }
  for (int64_t i = groups.first[s]; i < groups.first[s + 1]; ++i) {
    const char* from = values + groups.order[i] * row_bytes;
    if (compute != dtype) {
      convert(dtype, from, compute, value, width);
      from = value;
    }
    const void* in[] = {total, from};
    add(in, total, width);
  }
  if (plain) return;
  if (mean) {
    alignas(8) char times[8], before[kColumns * 8];
    const int64_t count = groups.first[s + 1] - groups.first[s];
    convert(Dtype::kInt64, &count, compute, times, 1);
    const void* in[] = {sum, times};
    elementwise_kernel(kDiv, compute, Form::kTrailingScalars)(in, sum, width);
    convert(dtype, to, compute, before, width);
    const void* both[] = {before, sum};
    add(both, sum, width);
  }
  convert(compute, sum, dtype, to, width);
}

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
  bool within = true;
  cpu::with_index(positions, [&](const auto* index) {
    within = cpu::all_within(index, positions.n, low, high);
  });
  return within;
}

void take(const void* in, int64_t outer, int64_t size, int64_t inner, const Positions& positions,
          void* out, int max_threads) {
  using namespace cpu;
  check_index("take", positions);
  if (inner == 0 || positions.n == 0) return;
  // A place far away costs about as much as 16 bytes.
  const int64_t per_chunk = std::max<int64_t>(1, kChunkBytes / (inner + 16));
  with_index(positions, [&](const auto* index) {
    for_chunks(outer * positions.n, per_chunk, threads_of(max_threads),
               [&](int64_t begin, int64_t end) {
                 take_any(static_cast<const char*>(in), size, inner, index, positions.n,
                          static_cast<char*>(out), begin, end);
               });
  });
}

void put_at(void* out, int64_t outer, int64_t size, int64_t inner, const Positions& positions,
            const void* values, int max_threads) {
  using namespace cpu;
  check_index("put_at", positions);
  if (inner == 0 || positions.n == 0) return;
  // A thread takes some columns of all values, so that the last value of a place stays.
  const int64_t width = std::clamp<int64_t>(inner / (4 * threads_of(max_threads)), 1024, 16384);
  const int64_t columns = (inner + width - 1) / width;
  const int64_t per_chunk =
      std::max<int64_t>(1, kChunkBytes / (positions.n * (std::min(width, inner) + 16)));
  with_index(positions, [&](const auto* index) {
    for_chunks(outer * columns, per_chunk, threads_of(max_threads),
               [&](int64_t begin, int64_t end) {
                 for (int64_t tile = begin; tile < end; ++tile) {
                   const int64_t j = tile % columns * width, bytes = std::min(width, inner - j);
                   char* to = static_cast<char*>(out) + tile / columns * size * inner + j;
                   const char* from =
                       static_cast<const char*>(values) + tile / columns * positions.n * inner + j;
                   for (int64_t k = 0; k < positions.n; ++k) {
                     const int64_t at = index[k];
                     copy_small(to + (at < 0 ? at + size : at) * inner, from + k * inner, bytes);
                   }
                 }
               });
  });
}

void add_at(Dtype dtype, void* out, int64_t outer, int64_t size, int64_t inner,
            const Positions& positions, const void* values, const AddAtOptions& options) {
  using namespace cpu;
  check_index("add_at", positions);
  if (!is_floating(dtype) && dtype != Dtype::kInt64 && dtype != Dtype::kInt32) {
    fail(ErrorKind::kNotSupported, "add_at is not implemented for ", dtype_name(dtype),
         "; use a floating dtype, int32 or int64");
  }
  if (outer == 0 || inner == 0 || positions.n == 0) return;
  Groups groups;
  with_index(positions,
             [&](const auto* index) { groups = group(index, positions.n, size, options.skipped); });
  const auto bytes = static_cast<int64_t>(itemsize(dtype));
  // The order of additions does not depend on the tiles, so the number of threads may choose them.
  const int64_t places = std::max<int64_t>(1, outer * groups.count);
  const int64_t threads = threads_of(options.max_threads);
  const int64_t shares = threads == 1 ? 1 : (4 * threads + places - 1) / places;
  const int64_t width =
      std::clamp((inner + shares - 1) / shares, std::min(inner, kFewColumns), kColumns);
  const int64_t columns = (inner + width - 1) / width;
  const int64_t per_tile = width * positions.n / std::max<int64_t>(1, groups.count);
  const int64_t per_chunk = std::max<int64_t>(1, grain(true) / (per_tile + 16));
  for_chunks(outer * groups.count * columns, per_chunk, threads_of(options.max_threads),
             [&](int64_t begin, int64_t end) {
               for (int64_t tile = begin; tile < end; ++tile) {
                 const int64_t j = tile % columns * width, s = tile / columns % groups.count;
                 const int64_t o = tile / columns / groups.count;
                 add_tile(
                     groups, s, dtype,
                     static_cast<char*>(out) + ((o * size + groups.place[s]) * inner + j) * bytes,
                     static_cast<const char*>(values) + (o * positions.n * inner + j) * bytes,
                     inner * bytes, std::min(width, inner - j), options.mean);
               }
             });
}

namespace cpu {

void run(const calls::Take<>& call, CallThreads threads) {
  const Around around(call.input, call.dim);
  const int64_t inner = around.inner * item_bytes(call.input);
  check_inside(call.index, around.size);
  hologram::take(call.input.data, around.outer, around.size, inner, positions_of(call.index),
                 call.out.data, threads(around.outer * call.index.numel() * inner / 4));
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
