// SPDX-License-Identifier: MIT
// Random numbers from a counter: Philox 4x32-10 behind the calls uniform, normal, bernoulli,
// integers and dropout.
#pragma once

#include <cstdint>

#include "hologram/api.h"
#include "hologram/dtype.h"

namespace hologram {

class Device;
class Tensor;

// A place in a stream of 2^64 blocks of 128 random bits. Block b is Philox 4x32-10 of the key
// `seed` and the 128-bit counter offset + b, so any block can be made without those before it and
// results do not depend on threads or instruction sets' widths.
//
// Elements take their bits like this, i the element's position:
//   32 bits each: block 16 (i / 64) + i % 16, word (i % 64) / 16
//   64 bits each: block  8 (i / 16) + i %  8, words 2 h (low) and 2 h + 1 with h = (i % 16) / 8
// float64 and integers() with a range of 2^28 or more take 64 bits, everything else 32.
//
// integers() are exactly even: the few words that would be too many for that are refused, and the
// element takes the word at the same place of its block with 1, 2, ... as the counter's third word.
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

// The calls uniform, normal and integers into a tensor of any strides, in row-major order, with the
// words from `stream` on. They are recorded. kInvalidArgument for elements that share memory,
// kTypeMismatch for dtypes: floating ones, of integers all but complex ones.
HOLOGRAM_API void fill_uniform(const Tensor& out, PhiloxStream stream, double low, double high);
HOLOGRAM_API void fill_normal(const Tensor& out, PhiloxStream stream, double mean, double std);
HOLOGRAM_API void fill_integers(const Tensor& out, PhiloxStream stream, uint64_t low,
                                uint64_t count);

// These compute at their calls, as what they give is a matter of one element after another, and
// take 64 bits for each element of the result.

// Samples without replacement: int64 [batch, k], each row k different numbers below n in an order
// in which all are equally likely; for k = n permutations. Time and memory are of the order of k
// where k is much less than n. kInvalidArgument unless 0 <= k <= n.
HOLOGRAM_API Tensor random_positions(PhiloxStream stream, int64_t batch, int64_t n, int64_t k,
                                     Device& device);
// Integers from [low, high), or with `closed` from [low, high], of the shape of both, element by
// element. They are int64 or uint64. kInvalidArgument where a range is empty or `dtype`, an integer
// dtype or bool, does not hold it.
HOLOGRAM_API Tensor random_integers(PhiloxStream stream, const Tensor& low, const Tensor& high,
                                    bool closed, Dtype dtype);

}  // namespace hologram
