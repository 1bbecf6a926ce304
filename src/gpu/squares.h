// SPDX-License-Identifier: MIT
// Squares of huge and tiny float32: rows whose largest magnitude lies beyond these bounds are
// multiplied by a power of two, or its inverse, before they are squared.
#pragma once

namespace hologram::gpu {

inline constexpr double kHugeToSquare = 0x1p50, kTinyToSquare = 0x1p-40, kPowerForSquares = 0x1p80;

}  // namespace hologram::gpu
