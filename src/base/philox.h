// SPDX-License-Identifier: MIT
// Philox 4x32-10, one block at a time, and even choices among integers made of its words.
//
// Source: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011. The choice is D. Lemire's, "Fast random integer generation in an interval", 2019.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "hologram/random.h"

namespace hologram {

// The words of the counter {block, attempt} under the key `seed`. Streams have attempt 0.
constexpr std::array<uint32_t, 4> philox_block(uint64_t seed, uint64_t block,
                                               uint32_t attempt = 0) {
  std::array<uint32_t, 4> c{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                            attempt, 0};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

constexpr uint64_t high_product(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}

// A word w chooses the high half of w * count. It is refused where the low half is below this:
// 2^32 or 2^64 modulo count, the number of words that are too many for an even choice.
constexpr uint32_t refused_below(uint32_t count) { return (0u - count) % count; }
constexpr uint64_t refused_below(uint64_t count) { return (uint64_t{0} - count) % count; }

// The first word of 32 bits that is not refused among those of later attempts for an element.
inline uint32_t drawn_again32(PhiloxStream stream, uint64_t element, uint32_t count) {
  const uint64_t block = stream.offset + 16 * (element / 64) + element % 16;
  const uint32_t least = refused_below(count);
  for (uint32_t attempt = 1;; ++attempt) {
    const uint32_t word = philox_block(stream.seed, block, attempt)[element % 64 / 16];
    if (word * count >= least) return word;
  }
}

// The same with 64 bits.
inline uint64_t drawn_again64(PhiloxStream stream, uint64_t element, uint64_t count) {
  const uint64_t block = stream.offset + 8 * (element / 16) + element % 8;
  const uint64_t least = refused_below(count);
  for (uint32_t attempt = 1;; ++attempt) {
    const auto words = philox_block(stream.seed, block, attempt);
    const size_t first = element % 16 / 8 * 2;
    const uint64_t word = words[first] | static_cast<uint64_t>(words[first + 1]) << 32;
    if (word * count >= least) return word;
  }
}

// An even choice in [0, count) by an element's word of 64 bits; 0 stands for 2^64.
inline uint64_t choose64(PhiloxStream stream, uint64_t element, uint64_t word, uint64_t count) {
  if (count == 0) return word;
  // What is refused is below count in any case, which saves the division.
  if (word * count < count && word * count < refused_below(count)) {
    word = drawn_again64(stream, element, count);
  }
  return high_product(word, count);
}

}  // namespace hologram
