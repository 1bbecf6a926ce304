// SPDX-License-Identifier: MIT
// How a reduction walks through memory: dimensions sorted, merged and split into units of work.
#pragma once

#include <cstdint>
#include <span>

#include "hologram/view.h"

namespace hologram::cpu {

inline constexpr int kMaxNest = 64;

// A loop nest over dimensions, outermost first, with the steps of up to three operands.
struct Nest {
  int ndim = 0;
  int64_t size[kMaxNest];
  int64_t stride[3][kMaxNest];

  int64_t count() const {
    int64_t n = 1;
    for (int i = 0; i < ndim; ++i) n *= size[i];
    return n;
  }
  // Offset of the index-th position (row-major) in operand k.
  int64_t offset(int64_t index, int k) const {
    int64_t at = 0;
    for (int i = ndim - 1; i >= 0 && index > 0; --i) {
      at += index % size[i] * stride[k][i];
      index /= size[i];
    }
    return at;
  }
  void push(int64_t n, int64_t s0, int64_t s1 = 0, int64_t s2 = 0) {
    size[ndim] = n;
    stride[0][ndim] = s0, stride[1][ndim] = s1, stride[2][ndim] = s2;
    ++ndim;
  }
  // Largest steps of operand 0 outermost.
  void sort();
  // Joins neighbours that are one run in every operand.
  void merge();
};

// The dimensions a reduction keeps (operands: in, out, second out) and those it folds (operand:
// in).
struct ReducePlan {
  Nest kept;
  Nest folded;
};

// Marks the dimensions; none given means all. Errors: kIndex, kInvalidArgument for one given twice.
void mark_dims(const char* what, std::span<const int> dims, int ndim, bool (&folded)[kMaxNest]);
int wrap_dim(const char* what, int dim, int ndim);
// Checks out (and second, if not null) against in's shape and lays out the loops. keep_order leaves
// the folded dimensions in row-major order, for positions.
ReducePlan plan_reduction(const char* what, const View& in, const bool (&folded)[kMaxNest],
                          const View& out, const View* second, bool keep_order);

}  // namespace hologram::cpu
