// SPDX-License-Identifier: MIT
// linear and its gradients.
#include <ATen/ops/linear_native.h>

#include "ops/matmul/product.h"
#include "ops/reduce/reduce.h"
#include "recording/autograd_bypass.h"

namespace hologram_torch {
namespace {

using at::Tensor;

// A contiguous tensor whose leading dimensions are taken as one.
Matrix rows_of(const Tensor& t) {
  const int64_t cols = t.size(-1);
  return {t, t.numel() / cols, cols, cols, false};
}

Matrix transpose_of(Matrix m) {
  std::swap(m.rows, m.cols);
  m.transposed = !m.transposed;
  return m;
}

bool is_weight(const Tensor& weight, at::ScalarType type) {
  return is_dense(weight) && weight.dim() == 2 && weight.scalar_type() == type &&
         weight.numel() > 0;
}

bool takes_linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  const at::ScalarType type = input.scalar_type();
  if (!is_gemm_type(type) || !is_dense(input) || input.dim() < 1 || input.numel() == 0 ||
      !is_weight(weight, type) || weight.size(1) != input.size(-1) ||
      weight.numel() > std::numeric_limits<int>::max() ||
      input.numel() > std::numeric_limits<int>::max()) {
    return false;
  }
  return !bias.has_value() || !bias->defined() ||
         (is_dense(*bias) && bias->scalar_type() == type && bias->dim() == 1 &&
          bias->size(0) == weight.size(0));
}

c10::SmallVector<int64_t, 5> with_last(const Tensor& t, int64_t last) {
  c10::SmallVector<int64_t, 5> sizes(t.sizes().begin(), t.sizes().end());
  sizes.back() = last;
  return sizes;
}

Tensor linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  const bool biased = bias.has_value() && bias->defined();
  if (C10_LIKELY(takes_linear(input, weight, bias))) {
    const Tensor x = input.is_contiguous() ? input : input.contiguous();
    Tensor out = new_empty(x, with_last(x, weight.size(0)));
    multiply({.a = rows_of(x),
              .b = transpose_of(matrix_of(weight)),
              .addend = biased ? addend_of(*bias, weight.size(0)) : Addend(),
              .out = out,
              .beta = biased ? 1.0 : 0.0});
    return out;
  }
  return call_fallback<"linear">(input, weight, bias).back().toTensor();
}

// PyTorch differentiates linear as a whole backwards only; its parts have tangents.
// A user's mode or subclass sees these parts, too.
Tensor linear_autograd(c10::DispatchKeySet keys, const Tensor& input, const Tensor& weight,
                       const std::optional<Tensor>& bias) {
  if (C10_UNLIKELY(carries_tangent(input) || carries_tangent(weight) || carries_tangent(bias) ||
                   is_watched(keys, input, weight, bias))) {
    return at::native::linear(input, weight, bias);
  }
  return call_autograd<"linear", Tensor, const Tensor&, const Tensor&,
                       const std::optional<Tensor>&>(keys, input, weight, bias);
}

// Whether the weight's gradient is contiguous. Else it is transposed, as that of a product with
// weight.t() is in PyTorch's formula (mm_mat2_backward).
bool has_rows(const Tensor& weight) {
  return weight.stride(1) == 1 && weight.stride(0) == weight.size(1);
}

// For empty and complex tensors and whatever else takes_linear() refuses.
std::tuple<Tensor, Tensor, Tensor> linear_backward_by_parts(const Tensor& input, const Tensor& grad,
                                                            const Tensor& weight,
                                                            std::array<bool, 3> wanted) {
  if (weight.dim() == 1) {  // one output, and no dimension for it
    auto [grad_input, grad_weight, grad_bias] =
        linear_backward_by_parts(input, grad.unsqueeze(-1), weight.unsqueeze(0), wanted);
    return {grad_input, wanted[1] ? grad_weight.squeeze(0) : grad_weight, grad_bias};
  }
  int64_t count = 1;
  for (int64_t d = 0; d + 1 < input.dim(); ++d) count *= input.size(d);
  Tensor grad_input, grad_weight, grad_bias;
  const Tensor rows = grad.reshape({count, grad.size(-1)});
  if (wanted[0]) grad_input = rows.mm(weight.conj()).reshape(input.sizes());
  if (wanted[1]) {
    const Tensor x = input.reshape({count, input.size(-1)}).conj();
    grad_weight = has_rows(weight) ? rows.t().mm(x) : x.t().mm(rows).t();
  }
  if (wanted[2]) grad_bias = rows.sum(0);
  return {grad_input, grad_weight, grad_bias};
}

std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& input, const Tensor& grad_output,
                                                   const Tensor& weight,
                                                   std::array<bool, 3> wanted) {
  if (!grad_output.defined()) return {};
  const auto is_result = [&](const Tensor& t) {
    return t.dim() == input.dim() && t.size(-1) == weight.size(0) &&
           t.sizes().slice(0, t.sizes().size() - 1) ==
               input.sizes().slice(0, input.sizes().size() - 1);
  };
  if (!takes_linear(input, weight, std::nullopt) || !is_dense(grad_output) ||
      grad_output.scalar_type() != input.scalar_type() || grad_output.numel() == 0 ||
      !is_result(grad_output)) {
    return linear_backward_by_parts(input, grad_output, weight, wanted);
  }
  const Tensor grad = grad_output.is_contiguous() ? grad_output : grad_output.contiguous();
  const at::ScalarType type = input.scalar_type();
  const Matrix g = rows_of(grad);
  Tensor grad_input, grad_weight, grad_bias;
  if (wanted[0]) {
    grad_input = new_empty(input, input.sizes(), type);
    multiply({.a = g, .b = matrix_of(weight), .addend = {}, .out = grad_input});
  }
  if (wanted[1]) {
    const Tensor x = input.is_contiguous() ? input : input.contiguous();
    const Matrix rows = rows_of(x);
    const bool as_rows = has_rows(weight);
    const Matrix &a = as_rows ? g : rows, &b = as_rows ? rows : g;
    grad_weight = new_empty(input, {a.cols, b.cols}, type);
    multiply({.a = transpose_of(a), .b = b, .addend = {}, .out = grad_weight});
    if (C10_UNLIKELY(!as_rows)) grad_weight = grad_weight.t();
  }
  if (wanted[2]) {  // the sum over all dimensions but the last
    const Tensor rows = grad.dim() == 2 ? grad : grad.view({g.rows, g.cols});
    grad_bias = reduced(hologram::Reduction::sum, rows, plan_dim(rows, 0, /*keepdim=*/false), type);
  }
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

// A mode that a backward pass alone runs under sees the parts, too.
std::tuple<Tensor, Tensor, Tensor> linear_backward_autograd(c10::DispatchKeySet keys,
                                                            const Tensor& input,
                                                            const Tensor& grad_output,
                                                            const Tensor& weight,
                                                            std::array<bool, 3> wanted) {
  if (is_watched(keys, input, grad_output, weight) && grad_output.defined()) {
    return linear_backward_by_parts(input, grad_output, weight, wanted);
  }
  if (C10_LIKELY(is_untracked(keys, input, grad_output, weight))) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return linear_backward(input, grad_output, weight, wanted);
  }
  return call_autograd<"linear_backward", std::tuple<Tensor, Tensor, Tensor>, const Tensor&,
                       const Tensor&, const Tensor&, std::array<bool, 3>>(keys, input, grad_output,
                                                                          weight, wanted);
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&linear>(m, "linear");
  register_before_autograd<"linear", &linear_autograd>();
  register_native<&linear_backward>(m, "linear_backward");
  register_before_autograd<"linear_backward", &linear_backward_autograd>();
}
