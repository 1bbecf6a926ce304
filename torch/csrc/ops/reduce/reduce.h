// SPDX-License-Identifier: MIT
// From PyTorch's dim and keepdim to the library's reductions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <array>
#include <span>

#include "hologram/reduction.h"
#include "recording/native_common.h"

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

  c10::IntArrayRef shape() const { return {sizes.data(), static_cast<size_t>(kept)}; }
  // The dimensions as bits, as calls take them; 0: all.
  int64_t mask() const {
    int64_t bits = 0;
    for (int k = 0; k < reduced; ++k) bits |= int64_t{1} << dims[static_cast<size_t>(k)];
    return bits;
  }
};

inline ReducePlan plan_all(const at::Tensor& t) {
  ReducePlan plan;
  plan.count = t.numel();
  plan.ok = plan.count > 0;
  return plan;
}

ReducePlan plan_dims(const at::Tensor& t, at::OptionalIntArrayRef dim, bool keepdim);
ReducePlan plan_dim(const at::Tensor& t, int64_t dim, bool keepdim);

// out = op over the dimensions of the plan. parameter: norm's p, var's and std's correction.
void reduce_into(hologram::Reduction op, const at::Tensor& in, const ReducePlan& plan,
                 const at::Tensor& out, double parameter = 0);

inline at::Tensor reduced(hologram::Reduction op, const at::Tensor& in, const ReducePlan& plan,
                          at::ScalarType type, double parameter = 0) {
  at::Tensor out = new_empty(in, plan.shape(), type);
  reduce_into(op, in, plan, out, parameter);
  return out;
}

// Whether `out` can take the result as it is.
inline bool takes(const at::Tensor& out, const at::Tensor& in, const ReducePlan& plan,
                  at::ScalarType type) {
  return plan.ok && is_dense(out) && same_device(out, in) && out.scalar_type() == type &&
         out.sizes() == plan.shape() && !may_overlap_itself(out.unsafeGetTensorImpl()) &&
         out.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() !=
             in.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

inline bool is_dense_real(const at::Tensor& t) { return is_dense(t) && is_real(t.scalar_type()); }
inline bool is_dense_float(const at::Tensor& t) {
  return is_dense(t) && is_real(t.scalar_type()) && at::isFloatingType(t.scalar_type());
}

}  // namespace hologram_torch
