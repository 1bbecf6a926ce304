// SPDX-License-Identifier: MIT
// What ATen's ops of several operands do in terms of rows; shared by the ops and their _foreach_
// forms.
#pragma once

#include <limits>

#include "ops/elementwise/elementwise.h"

namespace hologram_torch {

// --- The plain forms -------------------------------------------------------------------------

template <hologram::OpId kOp, int kTraits = kPlainTraits>
inline bool unary(Target& target, const at::Tensor& x) {
  return run_row<kOp, kTraits>(target, x);
}
template <hologram::OpId kOp, int kTraits = kPlainTraits>
inline bool tensors(Target& target, const at::Tensor& x, const at::Tensor& y) {
  return run_row<kOp, kTraits>(target, x, y);
}
template <hologram::OpId kOp, int kTraits = kPlainTraits>
inline bool tensor_number(Target& target, const at::Tensor& x, const at::Scalar& y) {
  return run_row<kOp, kTraits>(target, x, Num{y});
}
template <hologram::OpId kOp, int kTraits = kPlainTraits>
inline bool number_tensor(Target& target, const at::Scalar& x, const at::Tensor& y) {
  return run_row<kOp, kTraits>(target, Num{x}, y);
}

// The largest number of a floating dtype.
inline double largest_of(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return 65504.0;
    case at::kBFloat16:
      return 0x1.fep127;
    case at::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

// --- Arithmetic ------------------------------------------------------------------------------

inline bool is_bool(const at::Tensor& t) { return t.scalar_type() == at::kBool; }

// A floating factor of integers is an error even where it is 1.
inline bool is_one(const at::Scalar& alpha, const at::Tensor& x) {
  if (C10_LIKELY(alpha.isIntegral(false))) return alpha.toLong() == 1;
  return alpha.isFloatingPoint() && x.is_floating_point() && alpha.toDouble() == 1.0;
}

inline bool add_tensor(Target& target, const at::Tensor& x, const at::Tensor& y,
                       const at::Scalar& alpha) {
  using hologram::OpId;
  if (C10_LIKELY(is_one(alpha, x))) {
    if (C10_UNLIKELY(is_bool(x) && is_bool(y))) return run_row<OpId::bitwise_or>(target, x, y);
    return run_row<OpId::add>(target, x, y);
  }
  return !alpha.isBoolean() && run_row<OpId::add_scaled>(target, x, y, Param{alpha});
}
inline bool add_number(Target& target, const at::Tensor& x, const at::Scalar& y,
                       const at::Scalar& alpha) {
  return is_one(alpha, x) && run_row<hologram::OpId::add>(target, x, Num{y});
}
inline bool sub_tensor(Target& target, const at::Tensor& x, const at::Tensor& y,
                       const at::Scalar& alpha) {
  using hologram::OpId;
  if (C10_UNLIKELY(is_bool(x) || is_bool(y))) return false;
  if (C10_LIKELY(is_one(alpha, x))) return run_row<OpId::sub>(target, x, y);
  if (alpha.isBoolean() || alpha.isComplex() || alpha.isSymbolic()) return false;
  const at::Scalar factor = -alpha;
  return run_row<OpId::add_scaled>(target, x, y, Param{factor});
}
inline bool sub_number(Target& target, const at::Tensor& x, const at::Scalar& y,
                       const at::Scalar& alpha) {
  return is_one(alpha, x) && !y.isBoolean() && !is_bool(x) &&
         run_row<hologram::OpId::sub>(target, x, Num{y});
}
inline bool mul_tensor(Target& target, const at::Tensor& x, const at::Tensor& y) {
  using hologram::OpId;
  if (C10_UNLIKELY(is_bool(x) && is_bool(y))) return run_row<OpId::bitwise_and>(target, x, y);
  return run_row<OpId::mul>(target, x, y);
}

// Squares, cubes and roots go to rows of their own, as PyTorch's kernels do.
bool pow_number(Target& target, const at::Tensor& x, const at::Scalar& exponent);

// --- Bounds ----------------------------------------------------------------------------------

template <hologram::OpId kOp>
inline bool bound_number(Target& target, const at::Tensor& x, const at::Scalar& bound) {
  return !is_bool(x) && run_row<kOp>(target, x, Num{bound});
}
template <hologram::OpId kOp>
inline bool bound_tensor(Target& target, const at::Tensor& x, const at::Tensor& bound) {
  return !is_bool(x) && run_row<kOp>(target, x, bound);
}

// --- Blends ----------------------------------------------------------------------------------

inline bool lerp_number(Target& target, const at::Tensor& x, const at::Tensor& end,
                        const at::Scalar& weight) {
  return run_row<hologram::OpId::lerp>(target, x, end, Param{weight});
}
inline bool lerp_tensor(Target& target, const at::Tensor& x, const at::Tensor& end,
                        const at::Tensor& weight) {
  return run_row<hologram::OpId::lerp>(target, x, end, weight);
}
inline bool addcmul(Target& target, const at::Tensor& x, const at::Tensor& y, const at::Tensor& z,
                    const at::Scalar& value) {
  return run_row<hologram::OpId::addcmul>(target, x, y, z, Param{value});
}
inline bool addcdiv(Target& target, const at::Tensor& x, const at::Tensor& y, const at::Tensor& z,
                    const at::Scalar& value) {
  // PyTorch refuses to divide integers here.
  if (c10::isIntegralType(y.scalar_type(), true) && c10::isIntegralType(z.scalar_type(), true)) {
    return false;
  }
  return run_row<hologram::OpId::addcdiv>(target, x, y, z, Param{value});
}

}  // namespace hologram_torch
