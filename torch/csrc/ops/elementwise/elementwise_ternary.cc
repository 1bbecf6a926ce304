// SPDX-License-Identifier: MIT
// ATen's selections, bounds and blends: where, masked_fill, clamp, lerp, addcmul, addcdiv.
#include "ops/elementwise/elementwise_forms.h"

namespace hologram_torch {
namespace {

using at::Scalar;
using at::Tensor;
using hologram::OpId;
using MaybeScalar = std::optional<Scalar>;
using MaybeTensor = std::optional<Tensor>;

bool where(Target& target, const Tensor& condition, const Tensor& x, const Tensor& y) {
  return run_row<OpId::where>(target, Mask{condition}, x, y);
}

bool masked_fill(Target& target, const Tensor& self, const Tensor& mask, const Scalar& value) {
  return run_row<OpId::where, kRoundNumbers | kContiguousResult>(target, Mask{mask}, Param{value},
                                                                 self);
}
bool masked_fill_tensor(Target& target, const Tensor& self, const Tensor& mask,
                        const Tensor& value) {
  if (!value.defined() || value.dim() != 0 || value.requires_grad()) return false;
  if (!is_dense(value) && !is_cpu_number(value.unsafeGetTensorImpl())) return false;
  return masked_fill(target, self, mask, value.item());
}

// --- Bounds ----------------------------------------------------------------------------------

bool clamp_number(Target& target, const Tensor& x, const MaybeScalar& low,
                  const MaybeScalar& high) {
  if (is_bool(x)) return false;
  if (low.has_value() && high.has_value()) {
    return run_row<OpId::clamp>(target, x, Num{*low}, Num{*high});
  }
  if (low.has_value()) return run_row<OpId::maximum>(target, x, Num{*low});
  return high.has_value() && run_row<OpId::minimum>(target, x, Num{*high});
}
bool clamp_tensor(Target& target, const Tensor& x, const MaybeTensor& low,
                  const MaybeTensor& high) {
  if (is_bool(x)) return false;
  const bool has_low = low.has_value() && low->defined();
  const bool has_high = high.has_value() && high->defined();
  if (has_low && has_high) return run_row<OpId::clamp>(target, x, *low, *high);
  if (has_low) return run_row<OpId::maximum>(target, x, *low);
  return has_high && run_row<OpId::minimum>(target, x, *high);
}

// --- Numbers for NaN and infinities ------------------------------------------------------------

bool nan_to_num(Target& target, const Tensor& x, std::optional<double> nan,
                std::optional<double> infinity, std::optional<double> minus_infinity) {
  if (!x.is_floating_point()) return false;
  const double most = largest_of(x.scalar_type());
  const Scalar for_nan(nan.value_or(0.0)), above(infinity.value_or(most)),
      below(minus_infinity.value_or(-most));
  return run_row<OpId::finite_or>(target, x, Param{for_nan}, Param{above}, Param{below});
}

}  // namespace

void register_ternary(torch::Library& m) {
  Ops<&where>{m}.functional<"where.self">().out<"where.self_out">();
  Ops<&masked_fill>{m}
      .functional<"masked_fill.Scalar">()
      .in_place<"masked_fill_.Scalar">()
      .out<"masked_fill.Scalar_out">();
  Ops<&masked_fill_tensor>{m}
      .functional<"masked_fill.Tensor">()
      .in_place<"masked_fill_.Tensor">()
      .out<"masked_fill.Tensor_out">();

  add_all<"clamp", &clamp_number>(m);
  add_all<"clamp", &clamp_tensor, "Tensor", "Tensor_out">(m);
  add_all<"clamp_min", &bound_number<OpId::maximum>>(m);
  add_all<"clamp_min", &bound_tensor<OpId::maximum>, "Tensor", "Tensor_out">(m);
  add_all<"clamp_max", &bound_number<OpId::minimum>>(m);
  add_all<"clamp_max", &bound_tensor<OpId::minimum>, "Tensor", "Tensor_out">(m);

  add_all<"nan_to_num", &nan_to_num>(m);

  add_all<"lerp", &lerp_number, "Scalar", "Scalar_out">(m);
  add_all<"lerp", &lerp_tensor, "Tensor", "Tensor_out">(m);
  add_all<"addcdiv", &addcdiv>(m);
}

}  // namespace hologram_torch
