// SPDX-License-Identifier: MIT
// The steps of torch.nn.SyncBatchNorm between which ranks exchange statistics, composed of ops that
// the recorder fuses.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "recording/native_common.h"

namespace hologram_torch {
namespace {

using at::ScalarType;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The type of statistics: that of the input, but float32 for the half types.
ScalarType statistics_type(const Tensor& input) {
  return is_half_type(input.scalar_type()) ? at::kFloat : input.scalar_type();
}

void check_synced(const char* op, const Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, op, ": expected an input of at least two dimensions, got shape ",
              input.sizes());
  TORCH_CHECK(input.is_floating_point(), op, ": expected a floating input, got ",
              input.scalar_type());
}

// One number of each channel, beside the elements of the input.
Tensor by_channel(const char* op, const char* name, const Tensor& t, const Tensor& input) {
  TORCH_CHECK(t.numel() == input.size(1), op, ": expected ", input.size(1), " elements in ", name,
              ", one per channel of the input of shape ", input.sizes(), ", got ", t.numel());
  c10::SmallVector<int64_t, 5> sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = input.size(1);
  return t.to(statistics_type(input)).reshape(sizes);
}

c10::SmallVector<int64_t, 4> all_but_channels(const Tensor& input) {
  c10::SmallVector<int64_t, 4> dims{0};
  for (int64_t d = 2; d < input.dim(); ++d) dims.push_back(d);
  return dims;
}

// The mean and 1 / sqrt(var + eps) of each channel.
std::tuple<Tensor, Tensor> sync_stats(const Tensor& input, double eps) {
  check_synced("batch_norm_stats", input);
  const Tensor x = input.to(statistics_type(input));
  auto [var, mean] = at::var_mean(x, all_but_channels(input), /*correction=*/c10::Scalar(0));
  return {std::move(mean), at::rsqrt(var.add(eps))};
}

Tensor sync_elemt(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                  const Tensor& mean, const Tensor& invstd, double /*eps*/) {
  constexpr const char* kOp = "batch_norm_elemt";
  check_synced(kOp, input);
  Tensor out =
      at::mul(at::sub(input.to(statistics_type(input)), by_channel(kOp, "mean", mean, input)),
              by_channel(kOp, "invstd", invstd, input));
  if (is_given(weight)) out = out.mul(by_channel(kOp, "weight", *weight, input));
  if (is_given(bias)) out = out.add(by_channel(kOp, "bias", *bias, input));
  return out.to(input.scalar_type());
}

Tensor& sync_elemt_out(const Tensor& input, const OptionalTensor& weight,
                       const OptionalTensor& bias, const Tensor& mean, const Tensor& invstd,
                       double eps, Tensor& out) {
  const Tensor result = sync_elemt(input, weight, bias, mean, invstd, eps);
  TORCH_CHECK(out.sizes() == result.sizes(), "batch_norm_elemt: expected an out of shape ",
              result.sizes(), ", got ", out.sizes());
  return out.copy_(result);
}

// means and invstds: those of each rank, (ranks, channels). counts: how many elements of a channel
// each rank has.
std::tuple<Tensor, Tensor> sync_gather_stats_with_counts(const Tensor& input, const Tensor& means,
                                                         const Tensor& invstds,
                                                         const OptionalTensor& running_mean,
                                                         const OptionalTensor& running_var,
                                                         double momentum, double eps,
                                                         const Tensor& counts) {
  constexpr const char* kOp = "batch_norm_gather_stats_with_counts";
  check_synced(kOp, input);
  TORCH_CHECK(means.dim() == 2 && means.size(1) == input.size(1) &&
                  invstds.sizes() == means.sizes() && counts.numel() == means.size(0),
              kOp, ": expected mean and invstd of shape (ranks, ", input.size(1),
              ") and one count for each rank, got ", means.sizes(), ", ", invstds.sizes(), " and ",
              counts.sizes());
  const ScalarType type = statistics_type(input);
  const Tensor n = counts.to(type).reshape({-1, 1}), each = means.to(type);
  const Tensor total = n.sum();
  const Tensor mean = at::div(at::mul(each, n).sum(0), total);
  const Tensor vars = at::sub(invstds.to(type).square().reciprocal(), eps);
  const Tensor squares = at::mul(at::add(vars, at::sub(each, mean).square()), n).sum(0);
  const Tensor var = at::div(squares, total);
  const auto update = [&](const OptionalTensor& running, const char* name, const Tensor& now) {
    if (!is_given(running)) return;
    TORCH_CHECK(running->numel() == input.size(1), kOp, ": expected ", input.size(1),
                " elements in ", name, ", got ", running->numel());
    const Tensor next = at::add(at::mul(running->to(type), 1 - momentum), at::mul(now, momentum));
    Tensor(*running).copy_(next.view_as(*running));
  };
  update(running_mean, "running_mean", mean);
  update(running_var, "running_var", at::div(squares, at::sub(total, 1)));
  return {mean, at::rsqrt(var.add(eps))};
}

std::tuple<Tensor, Tensor> sync_gather_stats(const Tensor& input, const Tensor& means,
                                             const Tensor& invstds,
                                             const OptionalTensor& running_mean,
                                             const OptionalTensor& running_var, double momentum,
                                             double eps, int64_t count) {
  const int64_t ranks = means.dim() > 0 ? means.size(0) : 1;
  const Tensor counts = at::full({ranks}, count, input.options().dtype(statistics_type(input)));
  return sync_gather_stats_with_counts(input, means, invstds, running_mean, running_var, momentum,
                                       eps, counts);
}

// The sums over a rank's elements of a channel: of the gradient, and of the gradient times what the
// input is above the mean. Then the gradients of weight and bias.
std::tuple<Tensor, Tensor, Tensor, Tensor> sync_backward_reduce(
    const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& invstd,
    const OptionalTensor& weight, bool wants_input, bool wants_weight, bool wants_bias) {
  constexpr const char* kOp = "batch_norm_backward_reduce";
  check_synced(kOp, input);
  TORCH_CHECK(grad.sizes() == input.sizes(), kOp, ": expected a gradient of the input's shape ",
              input.sizes(), ", got ", grad.sizes());
  const ScalarType type = statistics_type(input);
  const ScalarType given = is_given(weight) ? weight->scalar_type() : type;
  const auto dims = all_but_channels(input);
  const Tensor dy = grad.to(type);
  const Tensor above = at::sub(input.to(type), by_channel(kOp, "mean", mean, input));
  const Tensor sum_dy = dy.sum(dims), sum_dy_xmu = at::mul(dy, above).sum(dims);
  Tensor grad_weight, grad_bias;
  if (wants_weight) grad_weight = at::mul(sum_dy_xmu, invstd.to(type)).to(given);
  if (wants_bias) grad_bias = sum_dy.to(given);
  return {wants_input ? sum_dy : Tensor(), wants_input ? sum_dy_xmu : Tensor(), grad_weight,
          grad_bias};
}

// The sums are those of all ranks, and counts says how many elements of a channel each has.
Tensor sync_backward_elemt(const Tensor& grad, const Tensor& input, const Tensor& mean,
                           const Tensor& invstd, const OptionalTensor& weight, const Tensor& sum_dy,
                           const Tensor& sum_dy_xmu, const Tensor& counts) {
  constexpr const char* kOp = "batch_norm_backward_elemt";
  check_synced(kOp, input);
  TORCH_CHECK(grad.sizes() == input.sizes(), kOp, ": expected a gradient of the input's shape ",
              input.sizes(), ", got ", grad.sizes());
  const ScalarType type = statistics_type(input);
  const Tensor total = counts.sum().to(type);
  const Tensor scale = by_channel(kOp, "invstd", invstd, input);
  const Tensor mean_dy = at::div(by_channel(kOp, "sum_dy", sum_dy, input), total);
  const Tensor slope = at::mul(at::div(by_channel(kOp, "sum_dy_xmu", sum_dy_xmu, input), total),
                               at::mul(scale, scale));
  const Tensor above = at::sub(input.to(type), by_channel(kOp, "mean", mean, input));
  Tensor factor = scale;
  if (is_given(weight)) factor = at::mul(scale, by_channel(kOp, "weight", *weight, input));
  const Tensor centred = at::sub(at::sub(grad.to(type), mean_dy), at::mul(above, slope));
  return at::mul(centred, factor).to(input.scalar_type());
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  m.impl("batch_norm_stats", TORCH_FN(sync_stats));
  m.impl("batch_norm_elemt", TORCH_FN(sync_elemt));
  m.impl("batch_norm_elemt.out", TORCH_FN(sync_elemt_out));
  m.impl("batch_norm_gather_stats", TORCH_FN(sync_gather_stats));
  m.impl("batch_norm_gather_stats_with_counts", TORCH_FN(sync_gather_stats_with_counts));
  m.impl("batch_norm_backward_reduce", TORCH_FN(sync_backward_reduce));
  m.impl("batch_norm_backward_elemt", TORCH_FN(sync_backward_elemt));
}
