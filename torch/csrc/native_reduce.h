// SPDX-License-Identifier: MIT
// From PyTorch's dim and keepdim to the library's reductions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <array>
#include <span>

#include "hologram/reduction.h"
#include "native_common.h"
#include "record.h"

namespace hologram_torch {

// The dimensions to reduce and the shape that results. Arguments PyTorch would refuse, and rare
// ones, leave ok false: then the fallback answers, or raises.
struct ReducePlan {
  static constexpr int kMaxDims = 16;

  bool ok = false;
  int reduced = 0;  // 0: all
  int kept = 0;
  std::array<int, kMaxDims> dims;
  std::array<int64_t, kMaxDims> sizes;
  int64_t count = 1;  // elements that become one

  std::span<const int> dim_span() const { return {dims.data(), static_cast<size_t>(reduced)}; }
  c10::IntArrayRef shape() const { return {sizes.data(), static_cast<size_t>(kept)}; }
};

inline ReducePlan plan_all(const at::Tensor& t) {
  ReducePlan plan;
  plan.count = t.numel();
  plan.ok = plan.count > 0;
  return plan;
}

ReducePlan plan_dims(const at::Tensor& t, at::OptionalIntArrayRef dim, bool keepdim);
ReducePlan plan_dim(const at::Tensor& t, int64_t dim, bool keepdim);

inline hologram::ReduceOptions reduce_options(const at::Tensor& t) {
  hologram::ReduceOptions options;
  options.max_threads = threads_for(t.numel());
  return options;
}

// How many dimensions the plan reduces when those are the last ones, else -1.
inline int trailing_dims(const at::Tensor& in, const ReducePlan& plan) {
  const int ndim = static_cast<int>(in.dim());
  if (plan.reduced == 0) return ndim;
  for (int k = 0; k < plan.reduced; ++k) {
    if (plan.dims[static_cast<size_t>(k)] < ndim - plan.reduced) return -1;
  }
  return plan.reduced;
}

inline double reduction_parameter(hologram::Reduction op, const hologram::ReduceOptions& options) {
  using hologram::Reduction;
  if (op == Reduction::norm) return options.p;
  return op == Reduction::var || op == Reduction::std ? options.correction : 0;
}

inline void reduce_into(hologram::Reduction op, const at::Tensor& in, const ReducePlan& plan,
                        const at::Tensor& out, const hologram::ReduceOptions& options) {
  if (is_deferring() && op <= hologram::Reduction::std) {
    const int reduced = trailing_dims(in, plan);
    if (reduced >= 0 &&
        record_reduction(op, in.unsafeGetTensorImpl(), reduced, out.unsafeGetTensorImpl(),
                         reduction_parameter(op, options))) {
      return;
    }
  }
  // Fully reduced, any shape of one element will do: the library wants one of the two it states.
  hologram::View to = write_view(out);
  if (plan.reduced == 0 && to.ndim > 0) to.ndim = 0;
  hologram::reduce(op, read_view(in), plan.dim_span(), to, options);
}

inline at::Tensor reduced(hologram::Reduction op, const at::Tensor& in, const ReducePlan& plan,
                          at::ScalarType type, const hologram::ReduceOptions& options) {
  at::Tensor out = make_tensor(plan.shape(), type);
  reduce_into(op, in, plan, out, options);
  return out;
}

// Whether `out` can take the result as it is.
inline bool takes(const at::Tensor& out, const at::Tensor& in, const ReducePlan& plan,
                  at::ScalarType type) {
  return plan.ok && is_plain(out) && out.scalar_type() == type && out.sizes() == plan.shape() &&
         !may_overlap_itself(out.unsafeGetTensorImpl()) &&
         out.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() !=
             in.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

inline bool is_real_plain(const at::Tensor& t) { return is_plain(t) && is_real(t.scalar_type()); }
inline bool is_float_plain(const at::Tensor& t) {
  return is_plain(t) && is_real(t.scalar_type()) && at::isFloatingType(t.scalar_type());
}

}  // namespace hologram_torch
