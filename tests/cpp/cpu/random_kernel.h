// SPDX-License-Identifier: MIT
// Kernels of random instructions over random layouts.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/cpp/cpu/plan_support.h"

namespace hologram::plans {

inline const std::vector<Dtype> kStored = {
    Dtype::kBool,     Dtype::kUInt8,   Dtype::kInt32,   Dtype::kInt64,   Dtype::kFloat16,
    Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat32, Dtype::kFloat32, Dtype::kFloat64};
inline const std::vector<OpId> kOps = {
    OpId::neg,  OpId::abs,         OpId::sqrt,        OpId::exp,     OpId::tanh,
    OpId::relu, OpId::square,      OpId::logical_not, OpId::add,     OpId::sub,
    OpId::mul,  OpId::div,         OpId::minimum,     OpId::maximum, OpId::lt,
    OpId::eq,   OpId::logical_and, OpId::bitwise_xor, OpId::clamp,   OpId::where,
    OpId::fma,  OpId::add_scaled,  OpId::leaky_relu,  OpId::addcmul, OpId::threshold};

inline std::vector<int64_t> random_shape(Random& random, bool whole_rows) {
  const int kind = pick(random, 0, 9);
  if (whole_rows || kind < 4) {
    const std::vector<int64_t> cols = {1, 2, 5, 17, 31, 32, 33, 64, 100, 300, 768, 1500};
    const std::vector<int64_t> rows = {1, 2, 7, 40, 130};
    if (kind == 0)
      return {pick(random, 1, 4), pick_of(random, rows) / 2 + 1, pick_of(random, cols)};
    return {pick_of(random, rows), pick_of(random, cols)};
  }
  if (kind < 7) {
    const std::vector<int64_t> sizes = {0, 1, 3, 63, 64, 65, 1000, 2048, 5000, 40000};
    return {pick_of(random, sizes)};
  }
  std::vector<int64_t> shape(static_cast<size_t>(pick(random, 2, 5)));
  for (int64_t& size : shape)
    size = pick(random, 0, 3) == 0 ? pick(random, 20, 50) : pick(random, 1, 7);
  return shape;
}

// Strides for every dimension but those in `repeated`, in some order, with gaps at times.
inline Strides random_strides(Random& random, const std::vector<int64_t>& shape,
                              const std::vector<bool>& repeated, int64_t& extent) {
  const size_t ndim = shape.size();
  std::vector<size_t> order(ndim);
  std::iota(order.begin(), order.end(), 0);
  if (pick(random, 0, 3) == 0) std::shuffle(order.begin(), order.end(), random);
  Strides strides(ndim, 0);
  extent = pick(random, 0, 7) == 0 ? 2 : 1;
  const bool gaps = pick(random, 0, 3) == 0;
  for (size_t i = ndim; i-- > 0;) {
    if (repeated[order[i]]) continue;
    strides[order[i]] = extent;
    extent *= std::max<int64_t>(shape[order[i]], 1) + (gaps && pick(random, 0, 1) ? 3 : 0);
  }
  return strides;
}

class RandomKernel {
 public:
  // Of these ops beside folds and row functions.
  RandomKernel(Random& random, Case& test, const std::vector<OpId>& ops = kOps)
      : random_(random),
        test_(test),
        ops_(ops),
        whole_rows_(pick(random, 0, 2) == 0),
        shape_(random_shape(random, whole_rows_)),
        builder_(shape_, whole_rows_) {}

  Builder make() {
    const int loads = pick(random_, 1, 4);
    for (int i = 0; i < loads; ++i) values_.push_back(load());
    const int steps = pick(random_, 1, 12);
    for (int i = 0; i < steps; ++i) add_step(i + 1 == steps);
    return builder_;
  }

 private:
  int64_t numel() const { return builder_.kernel.numel(); }

  Ref load() {
    const Dtype dtype = pick_of(random_, kStored);
    std::vector<bool> repeated(shape_.size(), false);
    Rank rank = Rank::kFull;
    const int kind = numel() > 1 ? pick(random_, 0, 7) : 0;
    if (kind == 1) {
      rank = Rank::kOne;
      repeated.assign(shape_.size(), true);
    } else if (kind == 2 && shape_.back() > 1) {
      rank = Rank::kRow;
      repeated.back() = true;
    } else if (kind == 3) {
      for (size_t d = 0; d + 1 < shape_.size(); ++d) repeated[d] = pick(random_, 0, 2) > 0;
    }
    int64_t extent = 1;
    const Strides strides = random_strides(random_, shape_, repeated, extent);
    if (rank == Rank::kRow &&
        std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s == 0; })) {
      rank = Rank::kOne;
    }
    const int64_t lead = pick(random_, 0, 4) == 0 ? 3 : 0;
    const uint32_t slot = test_.slot(random_, dtype, extent + lead);
    return builder_.access(slot, dtype, strides, rank,
                           lead * static_cast<int64_t>(itemsize(dtype)));
  }

  // A new place for a result of this rank; a temp, where it is not to be seen.
  Ref result(Dtype dtype, Rank rank, bool seen) {
    const bool in_memory = seen || (pick(random_, 0, 4) == 0 && rank == Rank::kFull);
    if (!in_memory) return builder_.temp(dtype, rank);
    // At times where something was loaded.
    for (size_t i = 0; i < builder_.kernel.accesses.size(); ++i) {
      const MemoryAccess& access = builder_.kernel.accesses[i];
      if (rank == Rank::kFull && access.rank == rank && access.dtype == dtype && access.loaded &&
          pick(random_, 0, 2) == 0 && covers(access)) {
        return {Ref::kAccess, static_cast<uint32_t>(i)};
      }
    }
    std::vector<bool> repeated(shape_.size(), rank == Rank::kOne);
    if (rank == Rank::kRow) repeated.back() = true;
    int64_t extent = 1;
    const Strides strides = random_strides(random_, shape_, repeated, extent);
    return builder_.access(test_.slot(random_, dtype, extent), dtype, strides, rank);
  }

  // Whether no two elements of the domain share one of memory.
  bool covers(const MemoryAccess& access) const {
    for (size_t d = 0; d < shape_.size(); ++d) {
      if (shape_[d] > 1 && access.strides[d] == 0) return false;
    }
    return true;
  }

  Ref as(Ref value, Dtype dtype) {
    return builder_.dtype_of(value) == dtype ? value : builder_.convert_temp(value, dtype);
  }

  void add_step(bool last) {
    const Ref first = pick_of(random_, values_);
    const Dtype own = builder_.dtype_of(first);
    const bool row_domain = whole_rows_ && numel() > 0;
    const int kind = pick(random_, 0, 9);
    if (row_domain && kind <= 1 && builder_.rank_of(first) == Rank::kFull) {
      const std::vector<Reduction> folds =
          is_floating(own)
              ? std::vector<Reduction>{Reduction::sum,      Reduction::mean, Reduction::norm,
                                       Reduction::sum,      Reduction::amax, Reduction::var,
                                       Reduction::logsumexp}
              : std::vector<Reduction>{Reduction::amin, Reduction::any};
      const Reduction op = pick_of(random_, folds);
      const Dtype to = op == Reduction::any ? Dtype::kBool : own;
      const Ref out = result(to, Rank::kRow, last);
      builder_.fold(op, first, out, 1);
      values_.push_back(out);
      return;
    }
    if (row_domain && kind == 2) {
      const Ref x = as(first, Dtype::kFloat32);
      const Ref out = result(Dtype::kFloat32, Rank::kFull, last);
      builder_.rows(pick(random_, 0, 1) ? circuit::RowOp::kSoftmax : circuit::RowOp::kLogSoftmax,
                    Dtype::kFloat32, {x}, out);
      values_.push_back(out);
      return;
    }
    OpId op = pick_of(random_, ops_);
    const Dtype compute = compute_dtype(own);
    while (!op_info(op).supports(compute)) op = pick_of(random_, ops_);
    std::vector<Ref> in{as(first, compute)};
    Rank rank = builder_.rank_of(first);
    while (static_cast<int>(in.size()) < op_info(op).arity) {
      if (pick(random_, 0, 3) == 0) {
        in.push_back(Builder::immediate(test_.immediate(
            compute, compute == Dtype::kBool ? pick(random_, 0, 1) : pick(random_, -2, 3))));
        continue;
      }
      const Ref other = pick_of(random_, values_);
      rank = std::min(rank, builder_.rank_of(other));
      in.push_back(as(other, compute));
    }
    if (pick(random_, 0, 3) == 0) std::reverse(in.begin(), in.end());
    // What is the same along rows, or everywhere, may be asked for element by element.
    if (pick(random_, 0, 7) == 0) rank = Rank::kFull;
    // Values of rows are stored by kernels of whole rows only, those of one element by none.
    const bool may_store =
        rank == Rank::kFull || (rank == Rank::kRow && whole_rows_) || rank == Rank::kOne;
    const Dtype natural = op_info(op).result_is_bool ? Dtype::kBool : compute;
    const Ref out = result(natural, rank, last && may_store);
    builder_.op(op, compute, in, out);
    values_.push_back(out);
  }

  Random& random_;
  Case& test_;
  const std::vector<OpId>& ops_;
  bool whole_rows_;
  std::vector<int64_t> shape_;
  Builder builder_;
  std::vector<Ref> values_;
};

}  // namespace hologram::plans
