// SPDX-License-Identifier: MIT
// Losses: mse, smooth_l1, huber, binary cross-entropy and nll, with their gradients.
#include "hologram/loss.h"

#include <ATen/ops/aminmax.h>

#include "ops/reduce/reduce.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using hologram::PointLoss;
using hologram::View;
using OptionalTensor = std::optional<Tensor>;

bool is_reduction(int64_t reduction) { return reduction >= 0 && reduction <= 2; }
bool same_floats(const Tensor& input, const Tensor& target, int64_t reduction) {
  return is_dense_float(input) && is_dense(target) && target.scalar_type() == input.scalar_type() &&
         target.sizes() == input.sizes() && input.numel() > 0 && is_reduction(reduction);
}

bool fits_gradient(const Tensor& grad, const Tensor& input, int64_t reduction) {
  return is_dense(grad) && grad.scalar_type() == input.scalar_type() &&
         (reduction == 0 ? grad.sizes() == input.sizes() : grad.numel() == 1);
}

// A factor that broadcasts to the input without making it larger.
bool is_factor(const OptionalTensor& factor, const Tensor& input) {
  if (!is_given(factor)) return true;
  if (!is_dense(*factor) || factor->scalar_type() != input.scalar_type() ||
      factor->dim() > input.dim()) {
    return false;
  }
  for (int64_t i = 1; i <= factor->dim(); ++i) {
    if (factor->size(-i) != input.size(-i) && factor->size(-i) != 1) return false;
  }
  return true;
}

// The factors of binary cross-entropy; other losses have none.
struct Factors {
  const OptionalTensor& weight;
  const OptionalTensor& pos_weight;
};
const OptionalTensor kNoTensor;

Tensor point_forward(PointLoss loss, const Tensor& input, const Tensor& target, int64_t reduction,
                     double param = 1.0, const Factors& factors = {kNoTensor, kNoTensor}) {
  Tensor out = reduction == 0 ? make_like(input) : new_empty(input, {});
  record(calls::PointLoss<Arg>{.input = input,
                               .target = target,
                               .weight = factors.weight,
                               .pos_weight = factors.pos_weight,
                               .loss = static_cast<int64_t>(loss),
                               .reduction = reduction,
                               .parameter = param,
                               .out = out});
  return out;
}

Tensor point_backward(PointLoss loss, const Tensor& grad, const Tensor& input, const Tensor& target,
                      int64_t reduction, double param = 1.0,
                      const Factors& factors = {kNoTensor, kNoTensor}) {
  Tensor out = make_like(input);
  record(calls::PointLossBackward<Arg>{.grad = grad,
                                       .input = input,
                                       .target = target,
                                       .weight = factors.weight,
                                       .pos_weight = factors.pos_weight,
                                       .loss = static_cast<int64_t>(loss),
                                       .reduction = reduction,
                                       .parameter = param,
                                       .grad_input = out});
  return out;
}

// --- mse ----------------------------------------------------------------------------------------

Tensor mse_loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  if (C10_LIKELY(same_floats(self, target, reduction))) {
    return point_forward(PointLoss::mse, self, target, reduction);
  }
  return call_fallback<"mse_loss">(self, target, reduction).back().toTensor();
}

Tensor mse_loss_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                         int64_t reduction) {
  if (C10_LIKELY(same_floats(self, target, reduction) && fits_gradient(grad, self, reduction))) {
    return point_backward(PointLoss::mse, grad, self, target, reduction);
  }
  return call_fallback<"mse_loss_backward">(grad, self, target, reduction).back().toTensor();
}

// --- smooth_l1, huber ---------------------------------------------------------------------------

template <PointLoss kLoss, Name kName>
Tensor bent_loss(const Tensor& self, const Tensor& target, int64_t reduction, double param) {
  if (C10_LIKELY(same_floats(self, target, reduction) && param > 0)) {
    return point_forward(kLoss, self, target, reduction, param);
  }
  return call_fallback<kName>(self, target, reduction, param).back().toTensor();
}

template <PointLoss kLoss, Name kName>
Tensor bent_loss_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                          int64_t reduction, double param) {
  if (C10_LIKELY(same_floats(self, target, reduction) && fits_gradient(grad, self, reduction) &&
                 param > 0)) {
    return point_backward(kLoss, grad, self, target, reduction, param);
  }
  return call_fallback<kName>(grad, self, target, reduction, param).back().toTensor();
}

// --- binary cross-entropy -----------------------------------------------------------------------

// Probabilities; PyTorch refuses anything else, NaN included.
bool are_probabilities(const Tensor& t) {
  if (!is_on_host(t)) {
    const auto [least, most] = at::aminmax(t);
    return least.item().toDouble() >= 0 && most.item().toDouble() <= 1;
  }
  double low = 0, high = 0;
  hologram::ReduceOptions options;
  options.max_threads = threads_for(t.numel());
  hologram::reduce(hologram::Reduction::amin, read_view(t), {},
                   {&low, hologram::Dtype::kFloat64, 0, nullptr, nullptr}, options);
  hologram::reduce(hologram::Reduction::amax, read_view(t), {},
                   {&high, hologram::Dtype::kFloat64, 0, nullptr, nullptr}, options);
  return low >= 0 && high <= 1;
}

Tensor binary_cross_entropy(const Tensor& self, const Tensor& target, const OptionalTensor& weight,
                            int64_t reduction) {
  if (C10_LIKELY(same_floats(self, target, reduction) && is_factor(weight, self) &&
                 are_probabilities(self))) {
    return point_forward(PointLoss::bce, self, target, reduction, 1.0, {weight, kNoTensor});
  }
  return call_fallback<"binary_cross_entropy">(self, target, weight, reduction).back().toTensor();
}

Tensor binary_cross_entropy_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                                     const OptionalTensor& weight, int64_t reduction) {
  if (C10_LIKELY(same_floats(self, target, reduction) && fits_gradient(grad, self, reduction) &&
                 is_factor(weight, self))) {
    return point_backward(PointLoss::bce, grad, self, target, reduction, 1.0, {weight, kNoTensor});
  }
  return call_fallback<"binary_cross_entropy_backward">(grad, self, target, weight, reduction)
      .back()
      .toTensor();
}

Tensor binary_cross_entropy_with_logits(const Tensor& self, const Tensor& target,
                                        const OptionalTensor& weight,
                                        const OptionalTensor& pos_weight, int64_t reduction) {
  if (C10_LIKELY(same_floats(self, target, reduction) && is_factor(weight, self) &&
                 is_factor(pos_weight, self))) {
    return point_forward(PointLoss::bce_with_logits, self, target, reduction, 1.0,
                         {weight, pos_weight});
  }
  return call_fallback<"binary_cross_entropy_with_logits">(self, target, weight, pos_weight,
                                                           reduction)
      .back()
      .toTensor();
}

// --- nll ----------------------------------------------------------------------------------------

// [C] and [], or [N, C, d...] and [N, d...].
bool fits_classes(const Tensor& self, const Tensor& target, const OptionalTensor& weight,
                  int64_t reduction) {
  const int64_t ndim = self.dim(), classes = ndim == 1 ? 0 : 1;
  if (!is_dense_float(self) || !is_dense(target) || !is_reduction(reduction) || ndim < 1 ||
      (target.scalar_type() != at::kLong && target.scalar_type() != at::kByte) ||
      target.dim() != ndim - 1 || self.numel() == 0) {
    return false;
  }
  for (int64_t i = 0; i < ndim - 1; ++i) {
    if (target.size(i) != self.size(i < classes ? i : i + 1)) return false;
  }
  return !is_given(weight) ||
         (is_dense(*weight) && weight->scalar_type() == self.scalar_type() && weight->dim() == 1 &&
          weight->size(0) == self.size(classes) && weight->is_contiguous());
}

// Whether every target is a class or to be ignored.
template <class T>
bool are_classes(const View& target, int64_t classes, int64_t ignored) {
  const auto* at = static_cast<const T*>(target.data);
  if (target.ndim == 0) return at[0] == ignored || (at[0] >= 0 && at[0] < classes);
  View inner = target;
  --inner.ndim, ++inner.shape, ++inner.strides;
  const int64_t size = target.shape[0], step = target.strides[0];
  bool all = true;
  if (inner.ndim == 0) {
    for (int64_t i = 0; i < size; ++i) {
      const int64_t value = at[i * step];
      all = all && (value == ignored || (value >= 0 && value < classes));
    }
    return all;
  }
  for (int64_t i = 0; i < size && all; ++i) {
    inner.data = const_cast<T*>(at + i * step);
    all = are_classes<T>(inner, classes, ignored);
  }
  return all;
}

bool are_classes(const Tensor& target, const Tensor& self, int64_t ignored) {
  const int64_t classes = self.size(self.dim() == 1 ? 0 : 1);
  const View view = read_view(target);
  return target.scalar_type() == at::kLong ? are_classes<int64_t>(view, classes, ignored)
                                           : are_classes<uint8_t>(view, classes, ignored);
}

// A class out of range goes to the fallback, which raises PyTorch's error.
template <int64_t kDims, Name kName>
std::tuple<Tensor, Tensor> nll_forward(const Tensor& self, const Tensor& target,
                                       const OptionalTensor& weight, int64_t reduction,
                                       int64_t ignore_index) {
  if (C10_LIKELY(self.dim() <= kDims && (kDims == 2 || self.dim() == kDims) &&
                 fits_classes(self, target, weight, reduction))) {
    Tensor out = reduction == 0 ? new_empty(self, target.sizes()) : new_empty(self, {});
    Tensor total = new_empty(self, {});
    const calls::NllLoss<Arg> call{.input = self,
                                   .target = target,
                                   .weight = weight,
                                   .reduction = reduction,
                                   .ignore_index = ignore_index,
                                   .out = out,
                                   .total_weight = total};
    if (record_or_refuse(call, [&] { return are_classes(target, self, ignore_index); })) {
      return {std::move(out), std::move(total)};
    }
  }
  auto stack = call_fallback<kName>(self, target, weight, reduction, ignore_index);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

template <int64_t kDims, Name kName>
Tensor nll_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                    const OptionalTensor& weight, int64_t reduction, int64_t ignore_index,
                    const Tensor& total_weight) {
  if (C10_LIKELY(self.dim() <= kDims && (kDims == 2 || self.dim() == kDims) &&
                 fits_classes(self, target, weight, reduction) && is_dense(grad) &&
                 grad.scalar_type() == self.scalar_type() && is_dense(total_weight) &&
                 total_weight.numel() == 1 && total_weight.scalar_type() == self.scalar_type() &&
                 (reduction == 0 ? grad.sizes() == target.sizes() : grad.numel() == 1))) {
    Tensor out = new_empty(self, self.sizes());
    const calls::NllLossBackward<Arg> call{.grad = grad,
                                           .target = target,
                                           .weight = weight,
                                           .total_weight = total_weight,
                                           .reduction = reduction,
                                           .ignore_index = ignore_index,
                                           .grad_input = out};
    if (record_or_refuse(call, [&] { return are_classes(target, self, ignore_index); })) {
      return out;
    }
  }
  return call_fallback<kName>(grad, self, target, weight, reduction, ignore_index, total_weight)
      .back()
      .toTensor();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&mse_loss>(m, "mse_loss");
  register_native<&mse_loss_backward>(m, "mse_loss_backward");
  register_native<&bent_loss<PointLoss::smooth_l1, "smooth_l1_loss">>(m, "smooth_l1_loss");
  register_native<&bent_loss_backward<PointLoss::smooth_l1, "smooth_l1_loss_backward">>(
      m, "smooth_l1_loss_backward");
  register_native<&bent_loss<PointLoss::huber, "huber_loss">>(m, "huber_loss");
  register_native<&bent_loss_backward<PointLoss::huber, "huber_loss_backward">>(
      m, "huber_loss_backward");
  register_native<&binary_cross_entropy>(m, "binary_cross_entropy");
  register_native<&binary_cross_entropy_backward>(m, "binary_cross_entropy_backward");
  register_native<&binary_cross_entropy_with_logits>(m, "binary_cross_entropy_with_logits");
  register_native<&nll_forward<2, "nll_loss_forward">>(m, "nll_loss_forward");
  register_native<&nll_backward<2, "nll_loss_backward">>(m, "nll_loss_backward");
  register_native<&nll_forward<4, "nll_loss2d_forward">>(m, "nll_loss2d_forward");
  register_native<&nll_backward<4, "nll_loss2d_backward">>(m, "nll_loss2d_backward");
}
