// SPDX-License-Identifier: MIT
// What the recurrences of layers share: how threads divide the units, and the products of a step.
//
// The weight is packed once. Threads divide the units, so that each reads its part of the weight
// from its own cache at every step, and meet after each, as h of all units is what the next needs.
//
// Of packed sequences, longest first, each step handles those that have it: its first rows.
#pragma once

#include <algorithm>
#include <vector>

#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/block_product.h"

namespace hologram::cpu {

// So few rows in all read the weight where it lies: each of its elements is used too rarely to pay
// for packing it.
inline constexpr int64_t kFewRecurrentRows = 4;
// The widest panel of any instruction set: units are divided at its multiples.
inline constexpr int64_t kUnitBlock = 64;

constexpr int64_t padded_units(int64_t units) { return ceil_div(units, kUnitBlock) * kUnitBlock; }

// Elements that a packed weight (gates units, inner) takes.
constexpr int64_t packed_weight_size(int64_t gates, int64_t units, int64_t inner) {
  return gates * padded_units(units) * inner;
}

// Units [begin, end) of a layer.
struct Units {
  int64_t begin, end;
};

// How threads share the units of each step.
class UnitShares {
 public:
  // work: multiply-adds of a step.
  UnitShares(int64_t work, int64_t units, int max_threads) : units_(units) {
    // From which threads share them.
    constexpr int64_t kWorthThreads = int64_t{1} << 19;
    const int64_t wish = threads_of(max_threads);
    chunks_ = work < kWorthThreads ? 1 : std::min(wish, ceil_div(units, kUnitBlock));
  }
  // part(units) for each share; returns when all are done.
  template <class Part>
  void run(Part&& part) const {
    parallel_for(chunks_, static_cast<int>(chunks_), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) part(share(i));
    });
  }

 private:
  Units share(int64_t chunk) const {
    const int64_t blocks = ceil_div(units_, kUnitBlock);
    return {std::min(units_, blocks * chunk / chunks_ * kUnitBlock),
            std::min(units_, blocks * (chunk + 1) / chunks_ * kUnitBlock)};
  }
  int64_t units_, chunks_;
};

// A weight (gates units, inner), which each step multiplies with rows of `inner` elements.
template <class T>
struct GateWeight {
  const GemmKernel<T>& product;
  const T* weight;
  T* workspace;  // packed_weight_size() elements
  int64_t gates, units, inner;
  bool packs;

  void pack(Units u) const {
    for (int64_t g = 0; g < gates && packs; ++g) {
      pack_transposed(product, rows_of(g, u), inner, inner, u.end - u.begin, packed(g, u));
    }
  }

  // to = beta to + h weight^T of gate g for the units; rows of h and `to` lie h_row and to_row
  // apart.
  void multiply_gate(int64_t g, int64_t rows, const T* h, int64_t h_row, Units u, T* to,
                     int64_t to_row, T beta) const {
    const int64_t count = u.end - u.begin;
    if (packs) {
      const RightOperand<T> right{packed(g, u), product.cols * inner, product.cols, nullptr};
      multiply(product, rows, count, inner, h, h_row, int64_t{1}, right, to, to_row, T(1), beta);
      return;
    }
    product.dots({count, rows, inner, rows_of(g, u), inner, h, h_row, to, 1, to_row, T(1), beta});
  }

 private:
  const T* rows_of(int64_t g, Units u) const { return weight + (g * units + u.begin) * inner; }
  // The units of a gate lie together.
  T* packed(int64_t g, Units u) const {
    return workspace + (g * padded_units(units) + u.begin) * inner;
  }
};

// A weight (wide, units) on the way back, which each step multiplies with the gradient of what it
// made.
template <class T>
struct StateWeight {
  const GemmKernel<T>& product;
  const T* weight;
  T* workspace;  // packed_weight_size(1, units, wide) elements
  int64_t wide, units;

  void pack(Units u) const {
    product.pack_b(weight + u.begin, units, 1, wide, u.end - u.begin, workspace + u.begin * wide);
  }
  // to = beta to + grad weight for the units; grad (rows, wide), to (rows, units).
  void multiply_grad(int64_t rows, const T* grad, Units u, T* to, T beta) const {
    const RightOperand<T> right{workspace + u.begin * wide, product.cols * wide, product.cols,
                                nullptr};
    multiply(product, rows, u.end - u.begin, wide, grad, wide, int64_t{1}, right, to + u.begin,
             units, T(1), beta);
  }
};

template <class T>
void copy_rows(int64_t rows, int64_t width, const T* from, int64_t from_row, T* to) {
  if (from == to) return;
  for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * from_row, width, to + r * width);
}

// to = from, or zeros.
template <class T>
void copy_or_zero(int64_t count, const T* from, T* to) {
  from != nullptr ? std::copy_n(from, count, to) : std::fill_n(to, count, T(0));
}

// Rows that a step handles, of all steps' rows.
struct StepRows {
  int64_t first, count;
};

// The rows of each step: `batch` or, of packed sequences, as many as batch_sizes says.
class Steps {
 public:
  // all: (steps, batch, n) or, where there are batch_sizes, (rows of all steps, n).
  Steps(const char* name, const View& all, const calls::CallView& batch_sizes, int64_t batch,
        bool reverse = false)
      : steps_(batch_sizes.is_given ? batch_sizes.shape[0] : all.shape[0]),
        batch_(batch),
        reverse_(reverse) {
    if (!batch_sizes.is_given) return;
    const auto* sizes = static_cast<const int64_t*>(batch_sizes.data);
    int64_t most = batch, first = 0;
    for (int64_t t = 0; t < steps_; ++t) {
      const int64_t rows = sizes[t];
      if (rows > most || rows < 1 || (t == 0 && rows != batch)) {
        fail(ErrorKind::kInvalidArgument, name, ": batch_sizes holds ", rows, " at step ", t,
             "; it has to begin with the batch ", batch, " and never to increase or be below 1");
      }
      firsts_.push_back(first);
      first += rows, most = rows;
    }
    firsts_.push_back(first);
    if (first != all.shape[0]) {
      fail(ErrorKind::kInvalidArgument, name, ": batch_sizes adds up to ", first,
           " rows, given were ", all.shape[0]);
    }
  }

  int64_t count() const { return steps_; }
  int64_t total() const { return firsts_.empty() ? steps_ * batch_ : firsts_.back(); }
  // Of a step, counted in the order in which the forward pass goes.
  StepRows operator[](int64_t step) const {
    const int64_t t = reverse_ ? steps_ - 1 - step : step;
    if (firsts_.empty()) return {t * batch_, batch_};
    const auto at = static_cast<size_t>(t);
    return {firsts_[at], firsts_[at + 1] - firsts_[at]};
  }
  // Of a step, how many go on from the step before; the others from the first state.
  int64_t continued(int64_t step) const {
    return step == 0 ? 0 : std::min((*this)[step].count, (*this)[step - 1].count);
  }

 private:
  int64_t steps_, batch_;
  bool reverse_;
  std::vector<int64_t> firsts_;  // empty where all have the batch
};

// The state that a step goes on from: what the step before left, or the first state (batch, width).
// The last state gets the rows of sequences as they end; it may be the first.
template <class T>
class RunningState {
 public:
  RunningState(const T* first, T* last, int64_t batch, int64_t width)
      : first_(first), last_(last), rows_(batch), width_(width), data_(first), row_(width) {}

  const T* data() const { return data_; }
  int64_t row() const { return row_; }
  // Before a step of `rows` rows: the others have ended, or go on from the first state.
  void begin(int64_t rows) {
    if (rows < rows_) {
      copy_rows(rows_ - rows, width_, data_ + rows * row_, row_, last_ + rows * width_);
    } else if (rows > rows_) {
      copy_rows(rows_, width_, data_, row_, last_);
      copy_rows(rows - rows_, width_, first_ + rows_ * width_, width_, last_ + rows_ * width_);
      data_ = last_, row_ = width_;
    }
    rows_ = rows;
  }
  // After it: where it left its rows.
  void end(const T* next, int64_t row) { data_ = next, row_ = row; }
  void finish() { begin(0); }

 private:
  const T* first_;
  T* last_;
  int64_t rows_, width_;
  const T* data_;
  int64_t row_;
};

// The address of an element of an operand whose elements lie together; null where it is absent.
template <class T>
T* element_of(const View& view, int64_t element) {
  return view.data != nullptr ? static_cast<T*>(view.data) + element : nullptr;
}
template <class T>
T* data_of(const View& view) {
  return static_cast<T*>(view.data);
}
// Elements between the rows of an operand.
inline int64_t row_of(const View& rows) {
  return rows.data != nullptr ? rows.strides[rows.ndim - 2] : 0;
}

}  // namespace hologram::cpu
