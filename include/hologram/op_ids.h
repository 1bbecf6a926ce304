// SPDX-License-Identifier: MIT
// Numbers the elementwise ops. The numbers are part of the C ABI and equal those of the op table.
#pragma once

#include <cstdint>

#include "hologram/op_rows.h"

namespace hologram {

enum class OpId : uint16_t {
#define HOLOGRAM_ROW(name, id) name = id,
  HOLOGRAM_ELEMENTWISE_ROWS(HOLOGRAM_ROW)
#undef HOLOGRAM_ROW
};

// One past the largest id; ids are sparse below it.
inline constexpr int kOpIdEnd = 105;

}  // namespace hologram
