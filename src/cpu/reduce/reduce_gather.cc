// SPDX-License-Identifier: MIT
// Strided copies by element size, with the conversion done on the contiguous side.
#include "src/cpu/reduce/reduce_gather.h"

#include <algorithm>
#include <cstring>

#include "hologram/elementwise.h"

namespace hologram::cpu {
namespace {

struct Bytes16 {
  uint64_t low, high;
};

template <class Copy>
void by_size(size_t size, Copy&& copy) {
  switch (size) {
    case 1:
      return copy(uint8_t());
    case 2:
      return copy(uint16_t());
    case 4:
      return copy(uint32_t());
    case 8:
      return copy(uint64_t());
    default:
      return copy(Bytes16());
  }
}

void convert_or_copy(Dtype from, const void* src, Dtype to, void* dst, int64_t n) {
  if (from == to) {
    std::memcpy(dst, src, static_cast<size_t>(n) * itemsize(to));
  } else {
    convert(from, src, to, dst, n);
  }
}

}  // namespace

void gather_rows(const void* src, Dtype src_dtype, int64_t rows, int64_t row_stride, int64_t n,
                 int64_t stride, Dtype dst_dtype, void* dst) {
  const size_t size = itemsize(src_dtype);
  if (stride == 1 || n == 1) {
    if (row_stride == n || rows == 1)
      return convert_or_copy(src_dtype, src, dst_dtype, dst, rows * n);
    if (n >= 8) {
      const size_t step = static_cast<size_t>(n) * itemsize(dst_dtype);
      for (int64_t r = 0; r < rows; ++r) {
        convert_or_copy(src_dtype,
                        static_cast<const char*>(src) + r * row_stride * static_cast<int64_t>(size),
                        dst_dtype, static_cast<char*>(dst) + static_cast<size_t>(r) * step, n);
      }
      return;
    }
  }
  alignas(64) char raw[kScratchElements * 8];
  void* packed = src_dtype == dst_dtype ? dst : raw;
  by_size(size, [&](auto tag) {
    using T = decltype(tag);
    const T* in = static_cast<const T*>(src);
    T* out = static_cast<T*>(packed);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < n; ++i) out[r * n + i] = in[r * row_stride + i * stride];
    }
  });
  if (packed == raw) convert(src_dtype, raw, dst_dtype, dst, rows * n);
}

void scatter_rows(const void* src, Dtype src_dtype, int64_t rows, int64_t row_stride, int64_t n,
                  int64_t stride, Dtype dst_dtype, void* dst) {
  const int64_t from_size = static_cast<int64_t>(itemsize(src_dtype));
  const int64_t to_size = static_cast<int64_t>(itemsize(dst_dtype));
  if (stride == 1 || n == 1) {
    if (row_stride == n || rows == 1)
      return convert_or_copy(src_dtype, src, dst_dtype, dst, rows * n);
    if (n >= 8) {
      for (int64_t r = 0; r < rows; ++r) {
        convert_or_copy(src_dtype, static_cast<const char*>(src) + r * n * from_size, dst_dtype,
                        static_cast<char*>(dst) + r * row_stride * to_size, n);
      }
      return;
    }
  }
  // Piece by piece through scratch; a piece never crosses a row.
  alignas(64) char raw[kScratchElements * 8];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; i += kScratchElements) {
      const int64_t length = std::min(kScratchElements, n - i);
      const void* piece = static_cast<const char*>(src) + (r * n + i) * from_size;
      if (src_dtype != dst_dtype) {
        convert(src_dtype, piece, dst_dtype, raw, length);
        piece = raw;
      }
      by_size(static_cast<size_t>(to_size), [&](auto tag) {
        using T = decltype(tag);
        T* out = static_cast<T*>(dst) + r * row_stride + i * stride;
        for (int64_t k = 0; k < length; ++k) out[k * stride] = static_cast<const T*>(piece)[k];
      });
    }
  }
}

}  // namespace hologram::cpu
