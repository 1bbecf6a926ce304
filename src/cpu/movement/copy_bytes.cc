// SPDX-License-Identifier: MIT
// Copies of short rows by moves whose size the compiler knows.
#include "src/cpu/movement/copy_bytes.h"

#include <algorithm>
#include <cstddef>

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
