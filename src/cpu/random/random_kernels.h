// SPDX-License-Identifier: MIT
// The inner loops of random numbers: whole groups of blocks into contiguous float32, float64,
// words.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"
#include "hologram/random.h"

namespace hologram::cpu {

// A group is what one step of a kernel makes, whatever the vector width: see random.h.
inline constexpr int64_t kGroup32 = 64;  // 16 blocks
inline constexpr int64_t kGroup64 = 16;  // 8 blocks

// Each writes n elements, n any, beginning with the group at `stream`.
struct RandomKernels {
  void (*words32)(PhiloxStream stream, uint32_t* out, int64_t n);
  void (*words64)(PhiloxStream stream, uint64_t* out, int64_t n);
  // from + (to - from) u, u of the given number of bits.
  void (*uniform32)(PhiloxStream stream, float from, float to, int bits, float* out, int64_t n);
  void (*uniform64)(PhiloxStream stream, double from, double to, double* out, int64_t n);
  void (*normal32)(PhiloxStream stream, float mean, float std, float* out, int64_t n);
  void (*normal64)(PhiloxStream stream, double mean, double std, double* out, int64_t n);
  // 1 where the word is below `limit`, a number up to 2^32.
  void (*bernoulli)(PhiloxStream stream, uint64_t limit, uint8_t* out, int64_t n);
  void (*dropout)(PhiloxStream stream, uint64_t limit, float scale, const float* in, float* out,
                  uint8_t* mask, int64_t n);
  void (*apply_mask32)(const float* in, const uint8_t* mask, float scale, float* out, int64_t n);
  void (*apply_mask64)(const double* in, const uint8_t* mask, double scale, double* out, int64_t n);
};

const RandomKernels& random_kernels(Isa isa);

}  // namespace hologram::cpu
