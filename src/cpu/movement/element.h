// SPDX-License-Identifier: MIT
// Elements that are moved one by one, as unsigned numbers of their size.
#pragma once

#include <cstdint>

#include "hologram/error.h"

namespace hologram::cpu {

// An element of 16 bytes.
struct SixteenBytes {
  uint64_t words[2];
};

// Calls f(a value of the unsigned type that has `bytes` bytes).
template <class F>
bool with_element(const char* what, int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    case 16:
      return f(SixteenBytes{});
    default:
      fail(ErrorKind::kNotSupported, what, ": no element has ", bytes, " bytes");
  }
}

// What lies outside is left out and reported.
inline bool inside(int64_t at, int64_t size) {
  return static_cast<uint64_t>(at) < static_cast<uint64_t>(size);
}

}  // namespace hologram::cpu
