// SPDX-License-Identifier: MIT
// Copies of short rows by moves whose size the compiler knows.
#include "src/cpu/movement/copy_bytes.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

namespace hologram::cpu {
namespace {

// Rows of more than kHalf bytes, to twice as many: their beginning and their end, which may
// overlap. With kWhole they have kHalf.
template <size_t kHalf, bool kWhole = false>
void copy_short_rows(const char* source, int64_t row, char* target, int64_t to_row, int64_t rows,
                     size_t bytes) {
  constexpr size_t kPiece = std::min<size_t>(kHalf, 16);
  for (int64_t r = 0; r < rows; ++r) {
    const char* const source_end = source + bytes - kHalf;
    char* const target_end = target + bytes - kHalf;
#pragma GCC unroll 4
    for (size_t i = 0; i < kHalf; i += kPiece) {
      std::memcpy(target + i, source + i, kPiece);
      if constexpr (!kWhole) std::memcpy(target_end + i, source_end + i, kPiece);
    }
    source += row;
    target += to_row;
  }
}

// Rows of more than kBytes / 2 bytes, to kBytes, side by side in the target, by moves of kBytes:
// what is too much of a row is overwritten by the next. The first and the last row are copied as
// they are, because what lies beyond them belongs to others.
template <size_t kBytes>
void copy_adjacent_rows(const char* source, int64_t row, char* target, int64_t to_row, int64_t rows,
                        size_t bytes) {
  const auto copy_one = [&](int64_t r) {
    copy_short_rows<kBytes / 2>(source + r * row, row, target + r * to_row, to_row, 1, bytes);
  };
  copy_one(0);
  const auto width = static_cast<int64_t>(bytes);
  const char* from = source + row;
  char* to = target + width;
#pragma GCC unroll 4
  for (int64_t r = 1; r < rows - 1; ++r) {
    std::memcpy(to, from, kBytes);
    from += row;
    to += width;
  }
  copy_one(rows - 1);
}

}  // namespace

void copy_rows(const char* from, int64_t step, char* to, int64_t to_step, int64_t rows,
               int64_t bytes) {
  const auto copy = [&](auto function) {
    function(from, step, to, to_step, rows, static_cast<size_t>(bytes));
  };
  switch (bytes) {
    case 1:
      return copy(copy_short_rows<1, true>);
    case 2:
      return copy(copy_short_rows<2, true>);
    case 4:
      return copy(copy_short_rows<4, true>);
    case 8:
      return copy(copy_short_rows<8, true>);
    case 16:
      return copy(copy_short_rows<16, true>);
    default:
      break;
  }
  // Where a move ends before the end of the row that lies next in the source.
  const auto can_pass = [&](int64_t move) {
    return to_step == bytes && rows > 2 && std::abs(step) + bytes >= move;
  };
  if (bytes > 8 && bytes < 16 && can_pass(16)) return copy(copy_adjacent_rows<16>);
  if (bytes > 4 && bytes < 8 && can_pass(8)) return copy(copy_adjacent_rows<8>);
  if (bytes == 3 && can_pass(4)) return copy(copy_adjacent_rows<4>);
  if (bytes > 128) {
    for (int64_t r = 0; r < rows; ++r) copy_bytes(to + r * to_step, from + r * step, bytes);
  } else if (bytes > 64) {
    copy(copy_short_rows<64>);
  } else if (bytes > 32) {
    copy(copy_short_rows<32>);
  } else if (bytes > 16) {
    copy(copy_short_rows<16>);
  } else if (bytes > 8) {
    copy(copy_short_rows<8>);
  } else if (bytes > 4) {
    copy(copy_short_rows<4>);
  } else if (bytes == 3) {
    copy(copy_short_rows<2>);
  }
}

}  // namespace hologram::cpu
