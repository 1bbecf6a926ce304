// SPDX-License-Identifier: MIT
// The two kernels of torch.amp.GradScaler: unscale with a look for infinities, and the scale's
// update. Both are written as other ops and recorded, so that nothing waits for the gradients.
#include <ATen/Functions.h>

#include <vector>

#include "host/alias.h"
#include "ops/reduce/reduce.h"
#include "recording/autograd_bypass.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using at::TensorList;

bool is_float_number(const Tensor& t) {
  return is_dense(t) && t.numel() == 1 && t.scalar_type() == at::kFloat;
}

void check_and_unscale(TensorList self, Tensor& found_inf, const Tensor& inv_scale) {
  bool native = is_float_number(found_inf) && is_float_number(inv_scale);
  for (const Tensor& t : self) native = native && is_dense_float(t);
  if (C10_UNLIKELY(!native)) {
    call_fallback<"_amp_foreach_non_finite_check_and_unscale_">(self, found_inf, inv_scale);
    return;
  }
  BelowAutograd guard;
  const Tensor factor = inv_scale.reshape({});
  // NaN where an element is infinite or NaN, else 0.
  std::vector<Tensor> sums;
  for (const Tensor& t : self) {
    if (t.numel() == 0) continue;
    sums.push_back(at::sum(at::mul(t, 0), at::kFloat));
    if (is_half_type(t.scalar_type())) {
      t.copy_(at::mul(t.to(at::kFloat), factor));
    } else {
      t.mul_(factor.to(t.scalar_type()));
    }
  }
  if (sums.empty()) return;
  const Tensor bad = at::isnan(at::sum(at::stack(sums)));
  found_inf.masked_fill_(bad.expand(found_inf.sizes()), 1);
}

Tensor& update_scale(Tensor& self, Tensor& growth_tracker, const Tensor& found_inf, double growth,
                     double backoff, int64_t interval) {
  if (C10_UNLIKELY(!is_float_number(self) || !is_float_number(found_inf) ||
                   !is_dense(growth_tracker) || growth_tracker.numel() != 1 ||
                   growth_tracker.scalar_type() != at::kInt)) {
    call_fallback<"_amp_update_scale_">(self, growth_tracker, found_inf, growth, backoff, interval);
    return self;
  }
  BelowAutograd guard;
  const Tensor scale = self.reshape({}), wide = scale.to(at::kDouble);
  const Tensor bad = at::ne(found_inf.reshape({}), 0);
  const Tensor steps = at::add(growth_tracker.reshape({}), 1);
  const Tensor full = at::eq(steps, interval);
  const Tensor smaller = at::mul(wide, backoff).to(at::kFloat);
  const Tensor larger = at::mul(wide, growth).to(at::kFloat);
  // As long as the larger one is finite.
  const Tensor grows = at::logical_and(full, at::isfinite(larger));
  const Tensor kept = at::where(grows, larger, scale);
  const Tensor left = at::masked_fill(steps, at::logical_or(bad, full), 0);
  self.copy_(at::where(bad, smaller, kept).expand(self.sizes()));
  growth_tracker.copy_(left.expand(growth_tracker.sizes()));
  return self;
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&check_and_unscale>(m, "_amp_foreach_non_finite_check_and_unscale_");
  register_native<&update_scale>(m, "_amp_update_scale_");
}
