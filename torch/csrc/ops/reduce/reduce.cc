// SPDX-License-Identifier: MIT
// sum, mean, prod, any, all, logsumexp, vector norms, cumsum, and what the table of
// reductions names in its column `aten`.
#include "ops/reduce/reduce.h"

#include <ATen/ops/isnan.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/sum.h>

#include "recording/autograd_bypass.h"
#include "recording/record_call.h"

namespace hologram_torch {

ReducePlan plan_dims(const at::Tensor& t, at::OptionalIntArrayRef dim, bool keepdim) {
  ReducePlan plan;
  const c10::IntArrayRef sizes = t.sizes();
  const int ndim = static_cast<int>(sizes.size());
  if (ndim > ReducePlan::kMaxDims || t.numel() == 0) return plan;
  const bool all = !dim.has_value() || dim->empty();
  uint32_t mask = 0;
  if (!all) {
    for (const int64_t d : *dim) {
      const int64_t wrapped = d < 0 ? d + ndim : d;
      if (wrapped < 0 || wrapped >= ndim || (mask >> wrapped & 1) != 0) return plan;
      mask |= 1u << wrapped;
      plan.dims[static_cast<size_t>(plan.reduced++)] = static_cast<int>(wrapped);
      plan.count *= sizes[static_cast<size_t>(wrapped)];
    }
  } else {
    mask = (1u << ndim) - 1;
    plan.count = t.numel();
  }
  for (int d = 0; d < ndim; ++d) {
    if ((mask >> d & 1) == 0) {
      plan.sizes[static_cast<size_t>(plan.kept++)] = sizes[static_cast<size_t>(d)];
    } else if (keepdim) {
      plan.sizes[static_cast<size_t>(plan.kept++)] = 1;
    }
  }
  plan.ok = true;
  return plan;
}

ReducePlan plan_dim(const at::Tensor& t, int64_t dim, bool keepdim) {
  return plan_dims(t, at::OptionalIntArrayRef(c10::IntArrayRef(&dim, 1)), keepdim);
}

// --- The reduction itself -----------------------------------------------------------------------

namespace {

// How many dimensions the plan reduces when those are the last ones, else -1.
int trailing_dims(const at::Tensor& in, const ReducePlan& plan) {
  const int ndim = static_cast<int>(in.dim());
  if (plan.reduced == 0) return ndim;
  for (int k = 0; k < plan.reduced; ++k) {
    if (plan.dims[static_cast<size_t>(k)] < ndim - plan.reduced) return -1;
  }
  return plan.reduced;
}

}  // namespace

void reduce_into(hologram::Reduction op, const at::Tensor& in, const ReducePlan& plan,
                 const at::Tensor& out, double parameter) {
  if (is_recorded(out) && !hologram::is_positional(op)) {
    const int last = trailing_dims(in, plan);
    if (last >= 0 && record_reduction(op, in.unsafeGetTensorImpl(), last, out.unsafeGetTensorImpl(),
                                      parameter)) {
      return;
    }
  }
  record(calls::Reduce<Arg>{.input = in,
                            .op = static_cast<int64_t>(op),
                            .dims = plan.mask(),
                            .parameter = parameter,
                            .out = written(out)});
}

namespace {

using at::OptionalIntArrayRef;
using at::ScalarType;
using at::Tensor;
using hologram::Reduction;

// --- sum, mean ----------------------------------------------------------------------------------

ScalarType sum_type(const Tensor& self, std::optional<ScalarType> dtype) {
  if (dtype.has_value()) return *dtype;
  return at::isIntegralType(self.scalar_type(), true) ? at::kLong : self.scalar_type();
}

bool sums(const Tensor& self, ScalarType type) {
  return is_dense_real(self) && is_real(type) && type != at::kBool;
}

Tensor sum(const Tensor& self, std::optional<ScalarType> dtype) {
  const ScalarType type = sum_type(self, dtype);
  const ReducePlan plan = plan_all(self);
  if (C10_LIKELY(plan.ok && sums(self, type))) {
    return reduced(Reduction::sum, self, plan, type);
  }
  return call_fallback<"sum">(self, dtype).back().toTensor();
}

Tensor sum_dims(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                std::optional<ScalarType> dtype) {
  const ScalarType type = sum_type(self, dtype);
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (C10_LIKELY(plan.ok && sums(self, type))) {
    return reduced(Reduction::sum, self, plan, type);
  }
  return call_fallback<"sum.dim_IntList">(self, dim, keepdim, dtype).back().toTensor();
}

Tensor& sum_out(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                std::optional<ScalarType> dtype, Tensor& out) {
  const ScalarType type = sum_type(self, dtype);
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (takes(out, self, plan, type) && sums(self, type)) {
    reduce_into(Reduction::sum, self, plan, out);
    return out;
  }
  call_fallback<"sum.IntList_out">(self, dim, keepdim, dtype, out);
  return out;
}

bool means(const Tensor& self, ScalarType type) {
  return is_dense_real(self) && is_real(type) && at::isFloatingType(type);
}

Tensor mean(const Tensor& self, std::optional<ScalarType> dtype) {
  const ScalarType type = dtype.value_or(self.scalar_type());
  const ReducePlan plan = plan_all(self);
  if (C10_LIKELY(plan.ok && means(self, type))) {
    return reduced(Reduction::mean, self, plan, type);
  }
  return call_fallback<"mean">(self, dtype).back().toTensor();
}

Tensor mean_dims(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                 std::optional<ScalarType> dtype) {
  const ScalarType type = dtype.value_or(self.scalar_type());
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (C10_LIKELY(plan.ok && means(self, type))) {
    return reduced(Reduction::mean, self, plan, type);
  }
  return call_fallback<"mean.dim">(self, dim, keepdim, dtype).back().toTensor();
}

Tensor& mean_out(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                 std::optional<ScalarType> dtype, Tensor& out) {
  const ScalarType type = dtype.value_or(self.scalar_type());
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (takes(out, self, plan, type) && means(self, type)) {
    reduce_into(Reduction::mean, self, plan, out);
    return out;
  }
  call_fallback<"mean.out">(self, dim, keepdim, dtype, out);
  return out;
}

// --- prod ---------------------------------------------------------------------------------------

Tensor prod(const Tensor& self, std::optional<ScalarType> dtype) {
  const ScalarType type = sum_type(self, dtype);
  const ReducePlan plan = plan_all(self);
  if (C10_LIKELY(plan.ok && sums(self, type))) {
    return reduced(Reduction::prod, self, plan, type);
  }
  return call_fallback<"prod">(self, dtype).back().toTensor();
}

Tensor prod_dim(const Tensor& self, int64_t dim, bool keepdim, std::optional<ScalarType> dtype) {
  const ScalarType type = sum_type(self, dtype);
  const ReducePlan plan = plan_dim(self, dim, keepdim);
  if (C10_LIKELY(plan.ok && sums(self, type))) {
    return reduced(Reduction::prod, self, plan, type);
  }
  return call_fallback<"prod.dim_int">(self, dim, keepdim, dtype).back().toTensor();
}

// --- any, all -----------------------------------------------------------------------------------

ScalarType truth_type(const Tensor& self) {
  return self.scalar_type() == at::kByte ? at::kByte : at::kBool;
}

template <Reduction kOp, Name kName>
Tensor truth(const Tensor& self) {
  const ReducePlan plan = plan_all(self);
  if (C10_LIKELY(plan.ok && is_dense_real(self))) {
    return reduced(kOp, self, plan, truth_type(self));
  }
  return call_fallback<kName>(self).back().toTensor();
}

template <Reduction kOp, Name kName>
Tensor truth_dim(const Tensor& self, int64_t dim, bool keepdim) {
  const ReducePlan plan = plan_dim(self, dim, keepdim);
  if (C10_LIKELY(plan.ok && is_dense_real(self))) {
    return reduced(kOp, self, plan, truth_type(self));
  }
  return call_fallback<kName>(self, dim, keepdim).back().toTensor();
}

template <Reduction kOp, Name kName>
Tensor truth_dims(const Tensor& self, OptionalIntArrayRef dim, bool keepdim) {
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  // An empty list is not "all" here.
  const bool none = dim.has_value() && dim->empty();
  if (C10_LIKELY(plan.ok && !none && is_dense_real(self))) {
    return reduced(kOp, self, plan, truth_type(self));
  }
  return call_fallback<kName>(self, dim, keepdim).back().toTensor();
}

// --- logsumexp, norms ---------------------------------------------------------------------------

Tensor logsumexp(const Tensor& self, at::IntArrayRef dim, bool keepdim) {
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  // What an empty list means here is left to PyTorch.
  if (C10_LIKELY(plan.ok && !dim.empty() && is_dense_float(self))) {
    return reduced(Reduction::logsumexp, self, plan, self.scalar_type());
  }
  return call_fallback<"logsumexp">(self, dim, keepdim).back().toTensor();
}

bool norms(const Tensor& self, const c10::Scalar& p, std::optional<ScalarType> dtype) {
  return is_dense_float(self) && !p.isComplex() && !p.isSymbolic() &&
         dtype.value_or(self.scalar_type()) == self.scalar_type();
}

Tensor linalg_vector_norm(const Tensor& self, const c10::Scalar& ord, OptionalIntArrayRef dim,
                          bool keepdim, std::optional<ScalarType> dtype) {
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (C10_LIKELY(plan.ok && norms(self, ord, dtype))) {
    return reduced(Reduction::norm, self, plan, self.scalar_type(), ord.toDouble());
  }
  return call_fallback<"linalg_vector_norm">(self, ord, dim, keepdim, dtype).back().toTensor();
}

Tensor& linalg_vector_norm_out(const Tensor& self, const c10::Scalar& ord, OptionalIntArrayRef dim,
                               bool keepdim, std::optional<ScalarType> dtype, Tensor& out) {
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (takes(out, self, plan, self.scalar_type()) && norms(self, ord, dtype)) {
    reduce_into(Reduction::norm, self, plan, out, ord.toDouble());
    return out;
  }
  call_fallback<"linalg_vector_norm.out">(self, ord, dim, keepdim, dtype, out);
  return out;
}

Tensor norm_dim(const Tensor& self, const std::optional<c10::Scalar>& p, at::IntArrayRef dim,
                bool keepdim) {
  const c10::Scalar power = p.value_or(2);
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (C10_LIKELY(plan.ok && norms(self, power, std::nullopt))) {
    return reduced(Reduction::norm, self, plan, self.scalar_type(), power.toDouble());
  }
  return call_fallback<"norm.ScalarOpt_dim">(self, p, dim, keepdim).back().toTensor();
}

Tensor cumsum(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  const ScalarType type = sum_type(self, dtype);
  const int64_t ndim = self.dim(), wrapped = dim < 0 ? dim + ndim : dim;
  if (C10_LIKELY(sums(self, type) && wrapped >= 0 && wrapped < ndim && self.numel() > 0)) {
    Tensor out = new_empty(self, self.sizes(), type);
    record(calls::Cumsum<Arg>{.input = self, .dim = wrapped, .out = out});
    return out;
  }
  return call_fallback<"cumsum">(self, dim, dtype).back().toTensor();
}

// --- From the table -----------------------------------------------------------------------------

// Which ATen ops belong to a row, see hologram/reductions.def.
namespace reduction_forms {
enum : int { BY_HAND, DIMS };
}

bool makes(const Tensor& self, ScalarType type) {
  return is_dense_float(self) && is_real(type) && at::isFloatingType(type);
}

// Of complex numbers, of which PyTorch's CPU has no nansum.
Tensor without_nan(const Tensor& self) { return self.masked_fill(self.isnan(), 0); }

template <Reduction kOp, Name kName>
Tensor row_of_dims(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                   std::optional<ScalarType> dtype) {
  const ScalarType type = dtype.value_or(self.scalar_type());
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (C10_LIKELY(plan.ok && makes(self, type))) return reduced(kOp, self, plan, type);
  if constexpr (kOp == Reduction::nansum) {
    if (self.is_complex()) return at::sum(without_nan(self), dim, keepdim, dtype);
  }
  return call_fallback<kName>(self, dim, keepdim, dtype).back().toTensor();
}

template <Reduction kOp, Name kName>
Tensor& row_of_dims_out(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                        std::optional<ScalarType> dtype, Tensor& out) {
  const ScalarType type = dtype.value_or(self.scalar_type());
  const ReducePlan plan = plan_dims(self, dim, keepdim);
  if (takes(out, self, plan, type) && makes(self, type)) {
    reduce_into(kOp, self, plan, out);
    return out;
  }
  if constexpr (kOp == Reduction::nansum) {
    if (self.is_complex()) return at::sum_out(out, without_nan(self), dim, keepdim, dtype);
  }
  call_fallback<kName>(self, dim, keepdim, dtype, out);
  return out;
}

template <Reduction kOp, Name kName, Name kOut, int kAten>
void add_reduction_row(torch::Library& m) {
  if constexpr (kAten == reduction_forms::DIMS) {
    register_functional<kName, &row_of_dims<kOp, kName>>(m);
    register_native<&row_of_dims_out<kOp, kOut>>(m, kOut.view());
  }
}

void register_reduction_table(torch::Library& m) {
  using namespace reduction_forms;  // NOLINT: the words of the table
#define HOLOGRAM_REDUCTION(name, id, c, inputs, result, empty, traits, python, aten, doc) \
  add_reduction_row<Reduction::name, #name, #name ".out", aten>(m);
#include "hologram/reductions.def"
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_reduction_table(m);
  register_functional<"sum", &sum>(m);
  register_functional<"sum.dim_IntList", &sum_dims>(m);
  register_native<&sum_out>(m, "sum.IntList_out");
  register_functional<"mean", &mean>(m);
  register_functional<"mean.dim", &mean_dims>(m);
  register_native<&mean_out>(m, "mean.out");
  register_native<&prod>(m, "prod");
  register_native<&prod_dim>(m, "prod.dim_int");
  register_native<&truth<Reduction::any, "any">>(m, "any");
  register_native<&truth<Reduction::all, "all">>(m, "all");
  register_native<&truth_dim<Reduction::any, "any.dim">>(m, "any.dim");
  register_native<&truth_dim<Reduction::all, "all.dim">>(m, "all.dim");
  register_native<&truth_dims<Reduction::any, "any.dims">>(m, "any.dims");
  register_native<&truth_dims<Reduction::all, "all.dims">>(m, "all.dims");
  register_native<&logsumexp>(m, "logsumexp");
  register_native<&linalg_vector_norm>(m, "linalg_vector_norm");
  register_native<&linalg_vector_norm_out>(m, "linalg_vector_norm.out");
  register_native<&norm_dim>(m, "norm.ScalarOpt_dim");
  register_native<&cumsum>(m, "cumsum");
}
