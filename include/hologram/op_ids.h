// SPDX-License-Identifier: MIT
// Numbers the elementwise ops as the op table does. The numbers are part of the C ABI.
#pragma once

#include <cstdint>

namespace hologram {

enum class OpId : uint16_t {
#define HOLOGRAM_OP(name, id, ...) name = id,
#include "hologram/elementwise.def"
};

// One past the largest id; ids are sparse below it.
inline constexpr int kOpIdEnd = [] {
  int end = 0;
#define HOLOGRAM_OP(name, id, ...) end = end > id ? end : id + 1;
#include "hologram/elementwise.def"
  return end;
}();

}  // namespace hologram
