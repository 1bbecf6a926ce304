// SPDX-License-Identifier: MIT
// How products are cut, those of matrices and of convolutions.
#pragma once

#include <cstdint>

namespace hologram::cpu {

// Depth of a panel of B that stays in L1; longer products add up such pieces in C.
inline constexpr int64_t kPanelDepth = 256;
// Rows of A that stay in L2 while the panels of B pass by.
inline constexpr int64_t kStripRows = 126;
// Multiplications of a task: about five microseconds.
inline constexpr int64_t kTaskWork = int64_t{1} << 19;
// Products with fewer multiplications finish before another thread has begun.
inline constexpr int64_t kSharedWork = int64_t{1} << 21;
// Rows whose dot products with one other row are computed while that is read once.
inline constexpr int kDotFactors = 3;

}  // namespace hologram::cpu
