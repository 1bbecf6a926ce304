// SPDX-License-Identifier: MIT
// The building blocks of a row times an int4 weight, for one instruction set.
//
// Float32 elements become whole numbers of three signed bytes, so that a processor multiplies 32 to
// 64 of them by weights at once. Their sums are exact; an element is rounded by at most 2^-23 of
// the largest of its group, which is about what a sum in float32 does to it.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"
#include "hologram/dtype.h"

namespace hologram::cpu {

// Rows of a weight that lie together. For each of their columns there are half as many bytes: byte
// b has row b in its low bits, and row b + half in its high ones. 32 or 64.
inline constexpr int64_t kSmallInt4Block = 32, kLargeInt4Block = 64;
// Columns with a scale of their own come in multiples of this, up to as many as 32 bits can add up,
// or the kernels do not take them.
inline constexpr int64_t kInt4Columns = 16, kMostInt4Columns = int64_t{1} << 19;

// Elements of bfloat16 whose size is at least 2^-7 of the largest of their group have d0 = 0, which
// are most of them. Where few others are in a group, their columns are listed, and d0 is multiplied
// for these only. The sums, of whole numbers, are the same.
inline constexpr int kMostListed = 16;

// One group of columns of a row: x[i] = unit * (65536 d2[i] + 256 d1[i] + d0[i]).
struct Int4Group {
  float unit;
  float sum;         // of its elements
  int32_t start[3];  // -8 times the sum of each digit
  int32_t listed;    // columns in the list, or -1: d0 is to be multiplied for all
  int32_t column[kMostListed];
  int8_t digit[kMostListed];  // d0 of the listed columns
};

// `count` rows, at most kInt4Rows, of `groups` groups of `columns` elements. digits: three runs of
// `columns` for each group of each row, in the order in which that kernel reads them for a block
// size.
inline constexpr int64_t kInt4Rows = 2;
struct Int4Rows {
  int64_t count, groups, columns;
  const int8_t* digits;
  const Int4Group* group;
};

struct Int4Kernel {
  // A group's digits, for blocks of `block` rows. False, and nothing of use is written, where
  // elements are not finite, too large or too small.
  bool (*split)(const float* x, int64_t columns, int64_t block, int8_t* digits, Int4Group* group);
  // y[r * block + j] = the sum over all groups of ((w[j] - 8) * scale[j] + zero[j]) x[r], for the
  // rows of a whole block at `weight`. pairs: {scale, zero} of each row in the kernel's dtype;
  // those of the next group lie `pitch` elements further on.
  void (*dot_block)(const uint8_t* weight, int64_t block, const Int4Rows& x, const void* pairs,
                    int64_t pitch, float* y);
  // to[c * pitch + j] = (w[j] - 8) * scale[j] + zero[j] for `columns` columns of a whole block.
  void (*widen)(const uint8_t* weight, int64_t block, int64_t columns, const void* pairs, float* to,
                int64_t pitch);
  // to[c * pitch + j] = w[j] - 8, in the bits of bfloat16.
  void (*numbers)(const uint8_t* weight, int64_t block, int64_t columns, uint16_t* to,
                  int64_t pitch);
  // sums[i * cols + j] += products[i * cols + j] * scale[j] + x[i * step] * zero[j]
  void (*add_group)(const float* products, const float* scale, const float* zero, const float* x,
                    int64_t step, int64_t rows, int64_t cols, float* sums);
};

// dtype: float32 or a half type. With VNNI where the processor has it and `vnni` is asked for: the
// bits are the same.
const Int4Kernel& int4_kernel(Isa isa, Dtype dtype, bool vnni = true);

}  // namespace hologram::cpu
