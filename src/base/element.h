// SPDX-License-Identifier: MIT
// Elements that are moved one by one, as unsigned numbers of their size, and integers as numbers of
// their type.
#pragma once

#include <cstdint>

#include "hologram/dtype.h"
#include "hologram/error.h"

namespace hologram {

// An element of 16 bytes.
struct SixteenBytes {
  uint64_t words[2];
};

// Calls f(a value of the unsigned type that has `bytes` bytes).
template <class F>
decltype(auto) with_element(const char* what, int64_t bytes, F&& f) {
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

// Calls f(a value of the integer type); bool counts as uint8.
template <class F>
decltype(auto) with_integer(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::kBool:
    case Dtype::kUInt8:
      return f(uint8_t{});
    case Dtype::kInt8:
      return f(int8_t{});
    case Dtype::kInt16:
      return f(int16_t{});
    case Dtype::kUInt16:
      return f(uint16_t{});
    case Dtype::kInt32:
      return f(int32_t{});
    case Dtype::kUInt32:
      return f(uint32_t{});
    case Dtype::kUInt64:
      return f(uint64_t{});
    default:
      return f(int64_t{});
  }
}

// True for a position in a dimension of this size.
inline bool inside(int64_t at, int64_t size) {
  return static_cast<uint64_t>(at) < static_cast<uint64_t>(size);
}

}  // namespace hologram
