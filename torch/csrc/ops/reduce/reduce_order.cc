// SPDX-License-Identifier: MIT
// Reductions by order and spread: amin, amax, min, max, argmin, argmax, var, std.
#include "ops/reduce/reduce.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::OptionalIntArrayRef;
using at::Tensor;
using hologram::Reduction;

// --- amin, amax ---------------------------------------------------------------------------------

template <Reduction kOp, Name kName>
Tensor extreme_dims(const Tensor& self, at::IntArrayRef dim, bool keepdim) {
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (C10_LIKELY(plan.ok && is_dense_real(self))) {
    return reduced(kOp, self, plan, self.scalar_type());
  }
  return call_fallback<kName>(self, dim, keepdim).back().toTensor();
}

template <Reduction kOp, Name kName>
Tensor& extreme_out(const Tensor& self, at::IntArrayRef dim, bool keepdim, Tensor& out) {
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (takes(out, self, plan, self.scalar_type()) && is_dense_real(self)) {
    reduce_into(kOp, self, plan, out);
    return out;
  }
  call_fallback<kName>(self, dim, keepdim, out);
  return out;
}

template <Reduction kOp, Name kName>
Tensor extreme(const Tensor& self) {
  const ReducePlan plan = plan_all(self);
  if (C10_LIKELY(plan.ok && is_dense_real(self))) {
    return reduced(kOp, self, plan, self.scalar_type());
  }
  return call_fallback<kName>(self).back().toTensor();
}

std::tuple<Tensor, Tensor> aminmax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  const ReducePlan plan =
      dim.has_value() ? plan_dim(self, *dim, keepdim) : plan_dims(self, std::nullopt, keepdim);
  if (C10_LIKELY(plan.ok && is_dense_real(self))) {
    return {reduced(Reduction::amin, self, plan, self.scalar_type()),
            reduced(Reduction::amax, self, plan, self.scalar_type())};
  }
  auto stack = call_fallback<"aminmax">(self, dim, keepdim);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

// --- positions ----------------------------------------------------------------------------------

bool has_positions(const Tensor& self) {
  return is_dense_real(self) && self.scalar_type() != at::kBool;
}

void reduce_with_index(Reduction op, const Tensor& in, const ReducePlan& plan, const Tensor& values,
                       const Tensor& indices) {
  record(calls::ReduceWithIndex<Arg>{.input = in,
                                     .op = static_cast<int64_t>(op),
                                     .dim = plan.dims[0],
                                     .out = written(values),
                                     .indices = written(indices)});
}

template <Reduction kOp, Name kName>
std::tuple<Tensor, Tensor> extreme_dim(const Tensor& self, int64_t dim, bool keepdim) {
  const ReducePlan plan = plan_dim(self, dim, keepdim);
  if (C10_LIKELY(plan.ok && has_positions(self))) {
    Tensor values = new_empty(self, plan.shape());
    Tensor indices = new_empty(self, plan.shape(), at::kLong);
    reduce_with_index(kOp, self, plan, values, indices);
    return {std::move(values), std::move(indices)};
  }
  auto stack = call_fallback<kName>(self, dim, keepdim);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

template <Reduction kOp, Name kName>
std::tuple<Tensor&, Tensor&> extreme_dim_out(const Tensor& self, int64_t dim, bool keepdim,
                                             Tensor& values, Tensor& indices) {
  const ReducePlan plan = plan_dim(self, dim, keepdim);
  if (takes(values, self, plan, self.scalar_type()) && takes(indices, self, plan, at::kLong) &&
      has_positions(self)) {
    reduce_with_index(kOp, self, plan, values, indices);
  } else {
    call_fallback<kName>(self, dim, keepdim, values, indices);
  }
  return {values, indices};
}

ReducePlan plan_position(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return dim.has_value() ? plan_dim(self, *dim, keepdim) : plan_dims(self, std::nullopt, keepdim);
}

template <Reduction kOp, Name kName>
Tensor position(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  const ReducePlan plan = plan_position(self, dim, keepdim);
  if (C10_LIKELY(plan.ok && has_positions(self))) {
    return reduced(kOp, self, plan, at::kLong);
  }
  return call_fallback<kName>(self, dim, keepdim).back().toTensor();
}

template <Reduction kOp, Name kName>
Tensor& position_out(const Tensor& self, std::optional<int64_t> dim, bool keepdim, Tensor& out) {
  const ReducePlan plan = plan_position(self, dim, keepdim);
  if (takes(out, self, plan, at::kLong) && has_positions(self)) {
    reduce_into(kOp, self, plan, out);
    return out;
  }
  call_fallback<kName>(self, dim, keepdim, out);
  return out;
}

// --- var, std -----------------------------------------------------------------------------------

using Correction = std::optional<c10::Scalar>;

double value_of(const Correction& correction) {
  return correction.has_value() ? correction->toDouble() : 1.0;
}

// Fewer elements than the correction leave nothing to divide by: PyTorch warns.
bool spreads(const Tensor& self, const ReducePlan& plan, const Correction& correction) {
  return plan.ok && is_dense_float(self) &&
         (!correction.has_value() || (!correction->isComplex() && !correction->isSymbolic())) &&
         static_cast<double>(plan.count) > value_of(correction);
}

template <Reduction kOp, Name kName>
Tensor spread(const Tensor& self, OptionalIntArrayRef dim, const Correction& correction,
              bool keepdim) {
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (C10_LIKELY(spreads(self, plan, correction))) {
    return reduced(kOp, self, plan, self.scalar_type(), value_of(correction));
  }
  return call_fallback<kName>(self, dim, correction, keepdim).back().toTensor();
}

template <Reduction kOp, Name kName>
Tensor& spread_out(const Tensor& self, OptionalIntArrayRef dim, const Correction& correction,
                   bool keepdim, Tensor& out) {
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (spreads(self, plan, correction) && takes(out, self, plan, self.scalar_type())) {
    reduce_into(kOp, self, plan, out, value_of(correction));
    return out;
  }
  call_fallback<kName>(self, dim, correction, keepdim, out);
  return out;
}

template <Reduction kOp, Name kName>
std::tuple<Tensor, Tensor> spread_mean(const Tensor& self, OptionalIntArrayRef dim,
                                       const Correction& correction, bool keepdim) {
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (C10_LIKELY(spreads(self, plan, correction))) {
    Tensor out = new_empty(self, plan.shape());
    Tensor mean = new_empty(self, plan.shape());
    record(calls::ReduceWithMean<Arg>{.input = self,
                                      .op = static_cast<int64_t>(kOp),
                                      .dims = plan.mask(),
                                      .parameter = value_of(correction),
                                      .out = out,
                                      .mean = mean});
    return {std::move(out), std::move(mean)};
  }
  auto stack = call_fallback<kName>(self, dim, correction, keepdim);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&extreme_dims<Reduction::amin, "amin">>(m, "amin");
  register_native<&extreme_dims<Reduction::amax, "amax">>(m, "amax");
  register_native<&extreme_out<Reduction::amin, "amin.out">>(m, "amin.out");
  register_native<&extreme_out<Reduction::amax, "amax.out">>(m, "amax.out");
  register_native<&extreme<Reduction::amin, "min">>(m, "min");
  register_native<&extreme<Reduction::amax, "max">>(m, "max");
  register_native<&aminmax>(m, "aminmax");
  register_native<&extreme_dim<Reduction::amin, "min.dim">>(m, "min.dim");
  register_native<&extreme_dim<Reduction::amax, "max.dim">>(m, "max.dim");
  register_native<&extreme_dim_out<Reduction::amin, "min.dim_min">>(m, "min.dim_min");
  register_native<&extreme_dim_out<Reduction::amax, "max.dim_max">>(m, "max.dim_max");
  register_native<&position<Reduction::argmin, "argmin">>(m, "argmin");
  register_native<&position<Reduction::argmax, "argmax">>(m, "argmax");
  register_native<&position_out<Reduction::argmin, "argmin.out">>(m, "argmin.out");
  register_native<&position_out<Reduction::argmax, "argmax.out">>(m, "argmax.out");
  register_native<&spread<Reduction::var, "var.correction">>(m, "var.correction");
  register_native<&spread<Reduction::std, "std.correction">>(m, "std.correction");
  register_native<&spread_out<Reduction::var, "var.correction_out">>(m, "var.correction_out");
  register_native<&spread_out<Reduction::std, "std.correction_out">>(m, "std.correction_out");
  register_native<&spread_mean<Reduction::var, "var_mean.correction">>(m, "var_mean.correction");
  register_native<&spread_mean<Reduction::std, "std_mean.correction">>(m, "std_mean.correction");
}
