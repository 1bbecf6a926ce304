// SPDX-License-Identifier: MIT
// Random numbers from a counter: Philox 4x32-10 behind the calls uniform, normal, bernoulli,
// integers and dropout.
#pragma once

#include <cstdint>

#include "hologram/dtype.h"

namespace hologram {

// A place in a stream of 2^64 blocks of 128 random bits. Block b is Philox 4x32-10 of the key
// `seed` and the 128-bit counter offset + b, so any block can be made without those before it and
// results do not depend on threads or instruction sets' widths.
//
// Elements take their bits like this, i the element's position:
//   32 bits each: block 16 (i / 64) + i % 16, word (i % 64) / 16
//   64 bits each: block  8 (i / 16) + i %  8, words 2 h (low) and 2 h + 1 with h = (i % 16) / 8
// float64 and integers() with a range of 2^28 or more take 64 bits, everything else 32.
struct PhiloxStream {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

// Blocks that n elements of 32 or 64 bits use up: what to add to offset afterwards.
constexpr uint64_t philox_blocks(int64_t n, int bits) {
  const auto count = static_cast<uint64_t>(n);
  return bits == 64 ? (count + 15) / 16 * 8 : (count + 63) / 64 * 16;
}
// The bits an element takes: of float_random_bits for uniform and normal, 32 for bernoulli and
// dropout.
constexpr int float_random_bits(Dtype dtype) { return dtype == Dtype::kFloat64 ? 64 : 32; }
constexpr int integer_random_bits(uint64_t range) {
  return range - 1 < (uint64_t{1} << 28) - 1 ? 32 : 64;
}

}  // namespace hologram
