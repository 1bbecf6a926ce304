// SPDX-License-Identifier: MIT
// Random numbers from a counter: Philox 4x32-10 behind uniform, normal, bernoulli, integers,
// dropout.
#pragma once

#include <cstdint>

#include "hologram/api.h"
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

// Every function writes n contiguous elements of dtype. Errors: kNotSupported for a dtype it does
// not serve.

// Even spread over [from, to): steps of 2^-24 (float32), 2^-53, 2^-11 (float16), 2^-8 (bfloat16)
// times to - from. Floating dtypes.
HOLOGRAM_API void fill_uniform(PhiloxStream stream, double from, double to, Dtype dtype, void* out,
                               int64_t n, int max_threads = 0);

// Normal by Box and Muller: an element of the first half of its words (word 0 or 2 of a block, the
// low 64 bits) shares radius and angle with its partner in the next. Floating dtypes; the half
// types round float32.
HOLOGRAM_API void fill_normal(PhiloxStream stream, double mean, double std, Dtype dtype, void* out,
                              int64_t n, int max_threads = 0);

// 1 with probability p (to 2^-32), else 0. All dtypes but complex.
HOLOGRAM_API void fill_bernoulli(PhiloxStream stream, double p, Dtype dtype, void* out, int64_t n,
                                 int max_threads = 0);

// base + an even choice among `range` integers (0: all 2^64), wrapping in int64, then converted.
// All dtypes but complex.
HOLOGRAM_API void fill_integers(PhiloxStream stream, int64_t base, uint64_t range, Dtype dtype,
                                void* out, int64_t n, int max_threads = 0);

// mask = bernoulli(keep), out = in * mask * scale. mask is one byte an element, 0 or 1; out may be
// in. Floating dtypes.
HOLOGRAM_API void dropout(PhiloxStream stream, double keep, double scale, Dtype dtype,
                          const void* in, void* out, uint8_t* mask, int64_t n, int max_threads = 0);

// out = in * mask * scale, the derivative of dropout. out may be in.
HOLOGRAM_API void apply_dropout(Dtype dtype, const void* in, const uint8_t* mask, double scale,
                                void* out, int64_t n, int max_threads = 0);

}  // namespace hologram
