// SPDX-License-Identifier: MIT
// The fused LSTM and GRU cells that PyTorch's recurrent layers ask of an accelerator.
#include <ATen/Functions.h>
#include <torch/library.h>

#include "host/alias.h"
#include "recording/native_common.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool has(const OptionalTensor& t) { return t.has_value() && t->defined(); }

Tensor sum_gates(const Tensor& a, const Tensor& b, const OptionalTensor& bias_a,
                 const OptionalTensor& bias_b) {
  Tensor sum = a.add(b);
  if (has(bias_a)) sum.add_(*bias_a);
  if (has(bias_b)) sum.add_(*bias_b);
  return sum;
}

// Of `parts` equal parts side by side.
void check_parts(const char* op, const Tensor& t, int64_t parts) {
  TORCH_CHECK(t.dim() == 2 && t.size(1) % parts == 0, op, ": expected ", parts,
              " equal parts side by side in rows, got a tensor of shape ", t.sizes());
}

// workspace: the activated gates i, f, g, o side by side, all the backward needs besides c.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cx, const OptionalTensor& input_bias,
                                             const OptionalTensor& hidden_bias) {
  BelowAutograd guard;
  Tensor gates = sum_gates(input_gates, hidden_gates, input_bias, hidden_bias);
  check_parts("_thnn_fused_lstm_cell", gates, 4);
  const auto parts = gates.chunk(4, 1);
  const Tensor &i = parts[0], &f = parts[1], &g = parts[2], &o = parts[3];
  i.sigmoid_();
  f.sigmoid_();
  g.tanh_();
  o.sigmoid_();
  Tensor cy = f.mul(cx).addcmul_(i, g);
  Tensor hy = cy.tanh().mul_(o);
  return {std::move(hy), std::move(cy), std::move(gates)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy,
                                                      const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor& cy,
                                                      const Tensor& workspace, bool has_bias) {
  if (!has(grad_hy) && !has(grad_cy)) return {};
  check_parts("_thnn_fused_lstm_cell_backward_impl", workspace, 4);
  BelowAutograd guard;
  const auto parts = workspace.chunk(4, 1);
  const Tensor &i = parts[0], &f = parts[1], &g = parts[2], &o = parts[3];
  const Tensor tanh_cy = cy.tanh();
  Tensor grad_c = has(grad_cy) ? grad_cy->clone() : at::zeros_like(tanh_cy);
  Tensor grad_gates = at::empty_like(workspace, at::MemoryFormat::Contiguous);
  const auto grads = grad_gates.chunk(4, 1);
  if (has(grad_hy)) {
    const Tensor& dh = *grad_hy;
    grad_c.add_(at::tanh_backward(dh.mul(o), tanh_cy));
    grads[3].copy_(at::sigmoid_backward(dh.mul(tanh_cy), o));
  } else {
    grads[3].zero_();
  }
  grads[0].copy_(at::sigmoid_backward(grad_c.mul(g), i));
  grads[1].copy_(at::sigmoid_backward(grad_c.mul(cx), f));
  grads[2].copy_(at::tanh_backward(grad_c.mul(i), g));
  Tensor grad_bias = has_bias ? grad_gates.sum(0) : Tensor();
  Tensor grad_cx = grad_c.mul_(f);
  return {std::move(grad_gates), std::move(grad_cx), std::move(grad_bias)};
}

// workspace: r, z, n, h and the hidden part of n's argument, side by side.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                    const Tensor& hx, const OptionalTensor& input_bias,
                                    const OptionalTensor& hidden_bias) {
  BelowAutograd guard;
  Tensor in = input_gates, hidden = hidden_gates;
  if (has(input_bias)) in = in.add(*input_bias);
  if (has(hidden_bias)) hidden = hidden.add(*hidden_bias);
  check_parts("_thnn_fused_gru_cell", in, 3);
  check_parts("_thnn_fused_gru_cell", hidden, 3);
  const auto from_input = in.chunk(3, 1);
  const auto from_hidden = hidden.chunk(3, 1);
  const Tensor r = from_input[0].add(from_hidden[0]).sigmoid_();
  const Tensor z = from_input[1].add(from_hidden[1]).sigmoid_();
  const Tensor n = from_input[2].addcmul(r, from_hidden[2]).tanh_();
  Tensor hy = hx.sub(n).mul_(z).add_(n);
  Tensor workspace = at::cat({r, z, n, hx, from_hidden[2]}, 1);
  return {std::move(hy), std::move(workspace)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy,
                                                                     const Tensor& workspace,
                                                                     bool has_bias) {
  check_parts("_thnn_fused_gru_cell_backward", workspace, 5);
  BelowAutograd guard;
  const auto parts = workspace.chunk(5, 1);
  const Tensor &r = parts[0], &z = parts[1], &n = parts[2], &h = parts[3], &hidden_n = parts[4];
  Tensor grad_hx = grad_hy.mul(z);
  const Tensor grad_z = at::sigmoid_backward(grad_hy.mul(h.sub(n)), z);
  const Tensor grad_n = at::tanh_backward(grad_hy.sub(grad_hx), n);
  const Tensor grad_r = at::sigmoid_backward(grad_n.mul(hidden_n), r);
  Tensor grad_input = at::cat({grad_r, grad_z, grad_n}, 1);
  Tensor grad_hidden = at::cat({grad_r, grad_z, grad_n.mul(r)}, 1);
  Tensor input_bias = has_bias ? grad_input.sum(0) : Tensor();
  Tensor hidden_bias = has_bias ? grad_hidden.sum(0) : Tensor();
  return {std::move(grad_input), std::move(grad_hidden), std::move(grad_hx), std::move(input_bias),
          std::move(hidden_bias)};
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}
