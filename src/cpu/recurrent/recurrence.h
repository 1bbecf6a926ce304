// SPDX-License-Identifier: MIT
// What the recurrences of layers share: how threads divide the units, and the products of a step.
//
// The weight is packed once. Threads divide the units, so that each reads its part of the weight
// from its own cache at every step, and meet after each, as h of all units is what the next needs.
#pragma once

#include <algorithm>

#include "hologram/dtype.h"
#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/block_product.h"

namespace hologram::cpu {

// So few rows in all read the weight where it lies: each of its elements is used too rarely to pay
// for packing it.
inline constexpr int64_t kFewRecurrentRows = 4;
// The widest panel of any instruction set: units are divided at its multiples.
inline constexpr int64_t kUnitBlock = 64;

constexpr int64_t padded_units(int64_t hidden) { return ceil_div(hidden, kUnitBlock) * kUnitBlock; }

// Elements that the packed weight of `gates` gates takes.
constexpr int64_t packed_weight_size(int64_t gates, int64_t hidden) {
  return gates * padded_units(hidden) * hidden;
}

// Units [begin, end) of a layer.
struct Units {
  int64_t begin, end;
};

// How threads share the units of each step.
class UnitShares {
 public:
  UnitShares(int64_t gates, int64_t batch, int64_t hidden, int max_threads) : hidden_(hidden) {
    // Multiply-adds of a step from which threads share them.
    constexpr int64_t kWorthThreads = int64_t{1} << 19;
    const int64_t wish = threads_of(max_threads);
    chunks_ = batch * gates * hidden * hidden < kWorthThreads
                  ? 1
                  : std::min(wish, ceil_div(hidden, kUnitBlock));
  }
  // part(units) for each share; returns when all are done.
  template <class Part>
  void run(Part&& part) const {
    parallel_for(chunks_, static_cast<int>(chunks_), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) part(units(i));
    });
  }

 private:
  Units units(int64_t chunk) const {
    const int64_t blocks = ceil_div(hidden_, kUnitBlock);
    return {std::min(hidden_, blocks * chunk / chunks_ * kUnitBlock),
            std::min(hidden_, blocks * (chunk + 1) / chunks_ * kUnitBlock)};
  }
  int64_t hidden_, chunks_;
};

// The weight (gates hidden, hidden) of a layer, which each step multiplies with h.
template <class T>
struct GateWeight {
  const GemmKernel<T>& product;
  const T* weight;
  T* workspace;  // packed_weight_size() elements
  int64_t gates, hidden, batch;
  bool packs;

  void pack(Units u) const {
    for (int64_t g = 0; g < gates && packs; ++g) {
      pack_transposed(product, rows(g, u), hidden, hidden, u.end - u.begin, packed(g, u));
    }
  }

  // to = beta to + h weight^T of gate g for the units; rows of h and `to` lie h_row and to_row
  // apart.
  void multiply_gate(int64_t g, const T* h, int64_t h_row, Units u, T* to, int64_t to_row,
                     T beta) const {
    const int64_t count = u.end - u.begin;
    if (packs) {
      const RightOperand<T> right{packed(g, u), product.cols * hidden, product.cols, nullptr};
      multiply(product, batch, count, hidden, h, h_row, int64_t{1}, right, to, to_row, T(1), beta);
      return;
    }
    product.dots({count, batch, hidden, rows(g, u), hidden, h, h_row, to, 1, to_row, T(1), beta});
  }

 private:
  const T* rows(int64_t g, Units u) const { return weight + (g * hidden + u.begin) * hidden; }
  // The units of a gate lie together.
  T* packed(int64_t g, Units u) const {
    return workspace + (g * padded_units(hidden) + u.begin) * hidden;
  }
};

// The same weight on the way back, which each step multiplies with the gradient of its gates.
template <class T>
struct StateWeight {
  const GemmKernel<T>& product;
  const T* weight;
  T* workspace;                 // packed_weight_size() elements
  int64_t wide, hidden, batch;  // wide: gates hidden

  void pack(Units u) const {
    product.pack_b(weight + u.begin, hidden, 1, wide, u.end - u.begin, workspace + u.begin * wide);
  }
  // to = beta to + grad weight for the units; grad (batch, wide), to (batch, hidden).
  void multiply_grad(const T* grad, Units u, T* to, T beta) const {
    const RightOperand<T> right{workspace + u.begin * wide, product.cols * wide, product.cols,
                                nullptr};
    multiply(product, batch, u.end - u.begin, wide, grad, wide, int64_t{1}, right, to + u.begin,
             hidden, T(1), beta);
  }
};

template <class T>
void copy_rows(int64_t rows, int64_t width, const T* from, int64_t from_row, T* to) {
  if (from == to) return;
  for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * from_row, width, to + r * width);
}

// What all recurrences refuse.
inline void check_recurrence(const char* name, Dtype dtype, int64_t steps, int64_t batch,
                             int64_t hidden, int64_t row) {
  if (dtype != Dtype::kFloat32 && dtype != Dtype::kFloat64) {
    fail(ErrorKind::kNotSupported, name, " is for float32 and float64, not ", dtype_name(dtype));
  }
  if (std::min({steps, batch, hidden}) < 0) {
    fail(ErrorKind::kInvalidArgument, name, ": a size is negative: steps ", steps, ", batch ",
         batch, ", hidden ", hidden);
  }
  if (row < hidden) {
    fail(ErrorKind::kInvalidArgument, name, ": rows of the output are ", row,
         " elements apart but ", hidden, " wide");
  }
}

[[noreturn]] inline void fail_null_operand(const char* name) {
  fail(ErrorKind::kInvalidArgument, name, ": an operand that has elements is null");
}

}  // namespace hologram::cpu
