// SPDX-License-Identifier: MIT
// What attention does to rows of scores between its products.
#pragma once

#include <cstdint>

#include "hologram/cpu_info.h"

namespace hologram::cpu {

// A block of scores, changed in place. Row r takes part with its first `seen` + r * `more` columns,
// at least none and at most `cols`.
template <class T>
struct AttentionScores {
  T* scores = nullptr;
  int64_t ld = 0;
  int64_t rows = 0, cols = 0;
  int64_t seen = 0, more = 0;
  const T* mask = nullptr;
  int64_t mask_row = 0, mask_col = 0;
};

template <class T>
struct AttentionKernel {
  // Scores become exp(score + mask - max), zero beyond what is seen, where max is the largest so
  // far. max, sum and factor have an element per row: the maximum and the sum of exponentials so
  // far, both replaced (`first`: there are none yet), and what earlier exponentials shrink by.
  void (*softmax)(const AttentionScores<T>& s, bool first, T* max, T* sum, T* factor) = nullptr;
  // Row r of x is multiplied by factor[r].
  void (*shrink)(T* x, int64_t ld, int64_t rows, int64_t n, const T* factor) = nullptr;
  // Row r of out is divided by sum[r], and its logsumexp written.
  void (*finish)(T* out, int64_t ld, int64_t rows, int64_t n, const T* max, const T* sum,
                 T* logsumexp, int64_t step) = nullptr;
  // dots[r] = row r of x . row r of y.
  void (*dots)(const T* x, int64_t ldx, const T* y, int64_t ldy, int64_t rows, int64_t n,
               T* dots) = nullptr;
  // True where rows of n elements hold neither infinities nor NaN.
  bool (*finite)(const T* x, int64_t ld, int64_t rows, int64_t n) = nullptr;
  // Replaces scores by probabilities p = exp(score + mask - logsumexp), and the gradients of
  // probabilities, in the same layout, by those of the unscaled scores: scale p (gradient - dot).
  void (*gradient)(const AttentionScores<T>& s, T* gradients, const T* logsumexp, const T* dots,
                   T scale) = nullptr;
};

const AttentionKernel<float>& attention_kernel(Isa isa, float);
const AttentionKernel<double>& attention_kernel(Isa isa, double);

}  // namespace hologram::cpu
