// SPDX-License-Identifier: MIT
// Strided copies by rectangles, with the conversion done on the contiguous side.
#include "src/cpu/reduce/reduce_gather.h"

#include <algorithm>
#include <cstdlib>

#include "hologram/elementwise.h"
#include "src/cpu/elementwise/iteration.h"
#include "src/cpu/movement/copy_bytes.h"

namespace hologram::cpu {
namespace {

// Rows of this many elements are worth a conversion each; shorter ones are packed first.
constexpr int64_t kConvertedRow = 64;

// copy_block() only writes through its target.
char* writable(const void* p) { return static_cast<char*>(const_cast<void*>(p)); }

void convert_or_copy(Dtype from, const void* src, Dtype to, void* dst, int64_t n) {
  if (from == to) {
    copy_bytes(dst, src, n * static_cast<int64_t>(itemsize(to)));
  } else {
    convert(from, src, to, dst, n);
  }
}

// Calls f(row, rows, first, n) for rectangles of at most kScratchElements.
template <class F>
void for_pieces(int64_t rows, int64_t n, F&& f) {
  const int64_t width = std::min(n, kScratchElements);
  const int64_t together = kScratchElements / std::max<int64_t>(1, width);
  for (int64_t r = 0; r < rows; r += together) {
    for (int64_t i = 0; i < n; i += width) {
      f(r, std::min(together, rows - r), i, std::min(width, n - i));
    }
  }
}

}  // namespace

void gather_rows(const void* src, Dtype src_dtype, int64_t rows, int64_t row_stride, int64_t n,
                 int64_t stride, Dtype dst_dtype, void* dst) {
  if (rows * n == 0) return;
  const int64_t size = static_cast<int64_t>(itemsize(src_dtype));
  const int64_t to_size = static_cast<int64_t>(itemsize(dst_dtype));
  const bool along = stride == 1 || n == 1;
  if (along && (row_stride == n || rows == 1)) {
    return convert_or_copy(src_dtype, src, dst_dtype, dst, rows * n);
  }
  const char* from = static_cast<const char*>(src);
  char* to = static_cast<char*>(dst);
  if (src_dtype == dst_dtype) {
    return copy_block({writable(src), row_stride, stride}, {to, n, 1}, rows, n, size);
  }
  if (along && n >= kConvertedRow) {
    for (int64_t r = 0; r < rows; ++r) {
      convert(src_dtype, from + r * row_stride * size, dst_dtype, to + r * n * to_size, n);
    }
    return;
  }
  alignas(64) char raw[kScratchElements * 8];
  for_pieces(rows, n, [&](int64_t r, int64_t here, int64_t i, int64_t length) {
    copy_block({writable(from + (r * row_stride + i * stride) * size), row_stride, stride},
               {raw, length, 1}, here, length, size);
    convert(src_dtype, raw, dst_dtype, to + (r * n + i) * to_size, here * length);
  });
}

void scatter_rows(const void* src, Dtype src_dtype, int64_t rows, int64_t row_stride, int64_t n,
                  int64_t stride, Dtype dst_dtype, void* dst) {
  if (rows * n == 0) return;
  const int64_t from_size = static_cast<int64_t>(itemsize(src_dtype));
  const int64_t to_size = static_cast<int64_t>(itemsize(dst_dtype));
  const bool along = stride == 1 || n == 1;
  if (along && (row_stride == n || rows == 1)) {
    return convert_or_copy(src_dtype, src, dst_dtype, dst, rows * n);
  }
  const char* from = static_cast<const char*>(src);
  char* to = static_cast<char*>(dst);
  // Along the memory that is written.
  const auto scatter = [&](const void* piece, char* target, int64_t here, int64_t length) {
    const Block source{writable(piece), length, 1}, block{target, row_stride, stride};
    if (here == 1 || std::abs(row_stride) >= std::abs(stride)) {
      return copy_block(source, block, here, length, to_size);
    }
    copy_block({source.data, 1, length}, {target, stride, row_stride}, length, here, to_size);
  };
  if (src_dtype == dst_dtype) return scatter(src, to, rows, n);
  if (along && n >= kConvertedRow) {
    for (int64_t r = 0; r < rows; ++r) {
      convert(src_dtype, from + r * n * from_size, dst_dtype, to + r * row_stride * to_size, n);
    }
    return;
  }
  alignas(64) char raw[kScratchElements * 8];
  for_pieces(rows, n, [&](int64_t r, int64_t here, int64_t i, int64_t length) {
    convert(src_dtype, from + (r * n + i) * from_size, dst_dtype, raw, here * length);
    scatter(raw, to + (r * row_stride + i * stride) * to_size, here, length);
  });
}

}  // namespace hologram::cpu
