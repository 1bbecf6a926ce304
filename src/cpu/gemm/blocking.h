// SPDX-License-Identifier: MIT
// How products are cut, those of matrices and of convolutions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hologram::cpu {

// Depth of a panel of B that stays in L1; longer products add up such pieces in C.
inline constexpr int64_t kPanelDepth = 256;
// Rows of A that stay in L2 while the panels of B pass by.
inline constexpr int64_t kStripRows = 168;
// The height of strips that `rows` rows are cut into, whole tiles of `tile` rows, nearly the same
// for each: a low strip computes little of every panel that it reads.
inline int64_t strip_height(int64_t rows, int64_t tile) {
  const int64_t strips = (rows + kStripRows - 1) / kStripRows;
  const int64_t each = (rows + strips - 1) / strips;
  return std::min(rows, (each + tile - 1) / tile * tile);
}
// Whether `few` rows of k elements are worth a packed copy for their dot products with `count`
// others: small products are over before, and long rows do not stay in a cache anyway.
inline bool pays_to_pack_factors(int64_t count, int64_t few, int64_t k) {
  constexpr int64_t kLeastElements = int64_t{1} << 16, kMostElements = int64_t{1} << 20;
  return count * k >= kLeastElements && few * k <= kMostElements;
}
// Multiplications of a task: about five microseconds.
inline constexpr int64_t kTaskWork = int64_t{1} << 19;
// Products with fewer multiplications finish before another thread has begun.
inline constexpr int64_t kSharedWork = int64_t{1} << 21;

}  // namespace hologram::cpu
