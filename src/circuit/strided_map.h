// SPDX-License-Identifier: MIT
// Map: where the elements of an operand, in their linear order, lie in memory.
#pragma once

#include <array>
#include <cstdint>

#include "src/circuit/size.h"
#include "src/circuit/tape.h"

namespace hologram::circuit {

// Element i of n is at the sum of stride * (its index in each part), parts innermost first. Parts
// are merged where they continue each other, so equal maps are equal data.
struct Map {
  struct Part {
    Size size;
    Size stride;
    bool operator==(const Part&) const = default;
  };
  int count = 0;
  std::array<Part, kTapeDims + 1> parts{};

  static Map flat(Size n);
  // Dimensions of a record, the innermost last, as the tape has them.
  static Map from_dims(int ndim, const int64_t* shape, const int64_t* strides);

  // Adds a part outside the others.
  void push(Size size, Size stride);
  Size numel() const;
  bool is_flat() const { return count == 0 || (count == 1 && parts[0].stride == 1); }
  // Every element in the same place.
  bool is_one() const { return count == 0 || (count == 1 && parts[0].stride == 0); }
  // Whether this is `inner` repeated `times` times an element: along rows of that length.
  bool repeats(const Map& inner, Size times) const;
  // Lowest and highest element reached, relative to the first.
  Size lowest() const;
  Size highest() const;
  // Elements with a place of their own, repeated ones counted once.
  Size distinct() const;

  bool operator==(const Map& other) const;
};

}  // namespace hologram::circuit
