// SPDX-License-Identifier: MIT
// Losses of tensors.
#include "hologram/error.h"
#include "hologram/loss.h"
#include "src/array/array.h"
#include "src/array/record_call.h"

namespace hologram {
namespace array {
namespace {

// A class out of range has to be found at the call, not when the circuit runs.
void check_classes(const Tensor& target, int64_t classes, int64_t ignored) {
  if (target.numel() == 0) return;
  const Tensor given = reshaped(target, {target.numel()});
  const Tensor flat = device_of(given).is_host_memory() ? given : host_copy(given);
  materialize(flat);
  const auto* values = static_cast<const int64_t*>(flat.data());
  for (int64_t i = 0; i < target.numel(); ++i) {
    const int64_t c = values[i];
    if (c != ignored && (c < 0 || c >= classes)) {
      fail(ErrorKind::kIndex, "cross_entropy: target ", c, " at position ", i,
           " is out of range for ", classes, " classes");
    }
  }
}

}  // namespace
}  // namespace array

Tensor point_loss(PointLoss loss, const Tensor& input, const Tensor& target,
                  const PointLossOptions& options) {
  Device& device = array::device_of("point_loss", input, target);
  if (input.shape() != target.shape()) {
    fail(ErrorKind::kInvalidArgument, "point_loss: the input has shape ", shape_text(input.shape()),
         ", the target ", shape_text(target.shape()), "; they have to be equal");
  }
  if (!is_floating(input.dtype()) || !is_floating(target.dtype())) {
    fail(ErrorKind::kTypeMismatch, "point_loss: is for floating dtypes, got ",
         dtype_name(input.dtype()), " and ", dtype_name(target.dtype()), "; cast them first");
  }
  if (options.param < 0) {
    fail(ErrorKind::kInvalidArgument, "point_loss: beta or delta must not be negative, got ",
         options.param);
  }
  const bool none = options.reduction == LossReduction::none;
  const Dtype dtype = promote(input.dtype(), target.dtype());
  Tensor out = array::fresh(none ? input.shape() : Shape{}, dtype, device);
  if (out.numel() == 0) return out;
  record(calls::PointLoss<array::Arg>{.input = input,
                                      .target = target,
                                      .loss = static_cast<int64_t>(loss),
                                      .reduction = static_cast<int64_t>(options.reduction),
                                      .parameter = options.param,
                                      .out = out});
  return out;
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const ClassLossOptions& options) {
  Device& device = array::device_of("cross_entropy", logits, target);
  if (!is_floating(logits.dtype())) {
    fail(ErrorKind::kTypeMismatch, "cross_entropy: logits have to be floating, got ",
         dtype_name(logits.dtype()), "; cast them first");
  }
  if (target.dtype() != Dtype::kInt64) {
    fail(ErrorKind::kTypeMismatch, "cross_entropy: targets are class indices of int64, got ",
         dtype_name(target.dtype()), "; cast them first");
  }
  Shape expected = logits.shape();
  if (!expected.empty()) expected.erase(expected.begin() + (expected.size() > 1 ? 1 : 0));
  if (logits.ndim() == 0 || expected != target.shape()) {
    fail(ErrorKind::kInvalidArgument, "cross_entropy: logits of shape ", shape_text(logits.shape()),
         " ask for targets of shape ", shape_text(expected), ", got ", shape_text(target.shape()));
  }
  if (options.weight != nullptr) {
    fail(ErrorKind::kNotSupported,
         "cross_entropy: weights of classes are not taken; weight the losses of reduction none");
  }
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    fail(ErrorKind::kInvalidArgument,
         "cross_entropy: label_smoothing must be between 0 and 1, got ", options.label_smoothing);
  }
  const int64_t classes = logits.shape()[logits.ndim() > 1 ? 1 : 0];
  array::check_classes(target, classes, options.ignore_index);
  const bool none = options.reduction == LossReduction::none;
  Tensor out = array::fresh(none ? target.shape() : Shape{}, logits.dtype(), device);
  if (out.numel() == 0) return out;
  const Tensor total = array::fresh({}, logits.dtype(), device);
  record(calls::CrossEntropy<array::Arg>{.logits = logits,
                                         .target = target,
                                         .reduction = static_cast<int64_t>(options.reduction),
                                         .ignore_index = options.ignore_index,
                                         .label_smoothing = options.label_smoothing,
                                         .out = out,
                                         .total_weight = total});
  return out;
}

}  // namespace hologram
