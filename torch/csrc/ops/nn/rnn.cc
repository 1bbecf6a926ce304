// SPDX-License-Identifier: MIT
// The fused LSTM and GRU cells that PyTorch's recurrent layers ask of an accelerator.
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/lstm_native.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <limits>

#include "device/openmp.h"
#include "dispatch/alias.h"
#include "hologram/lstm.h"
#include "recording/deferred_call.h"

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

// --- Whole layers, where no gradient is asked for -----------------------------------------------

bool all_plain(at::TensorList list) {
  return std::all_of(list.begin(), list.end(), [](const Tensor& t) {
    return t.defined() && is_ours(t) && t.layout() == c10::kStrided;
  });
}

bool any_requires_grad(at::TensorList list) {
  return std::any_of(list.begin(), list.end(),
                     [](const Tensor& t) { return t.defined() && t.requires_grad(); });
}

// Whether the library takes these: batches of float32 or float64 sequences without projections,
// all of one dtype, with something in them, and nothing that PyTorch would refuse.
bool takes(const Tensor& input, at::TensorList hx, at::TensorList params, bool has_biases,
           int64_t num_layers, bool bidirectional) {
  const at::ScalarType type = input.scalar_type();
  const int64_t directions = bidirectional ? 2 : 1, given = has_biases ? 4 : 2;
  if ((type != at::kFloat && type != at::kDouble) || input.dim() != 3 || input.numel() == 0 ||
      num_layers < 1 || hx.size() != 2 || hx[0].dim() != 3 ||
      static_cast<int64_t>(params.size()) != num_layers * directions * given) {
    return false;
  }
  const int64_t hidden = hx[0].size(2);
  if (hx[0].size(0) != num_layers * directions || hidden == 0 || hx[1].sizes() != hx[0].sizes()) {
    return false;
  }
  const auto fits = [&](const Tensor& t, at::IntArrayRef sizes) {
    return is_plain(t) && t.scalar_type() == type && t.sizes() == sizes;
  };
  if (!is_plain(input) || !fits(hx[0], hx[0].sizes()) || !fits(hx[1], hx[0].sizes())) return false;
  for (int64_t i = 0; i < num_layers * directions; ++i) {
    const Tensor* const w = params.data() + i * given;
    const int64_t width = i < directions ? input.size(2) : directions * hidden;
    if (!fits(w[0], {4 * hidden, width}) || !fits(w[1], {4 * hidden, hidden}) ||
        (has_biases && (!fits(w[2], {4 * hidden}) || !fits(w[3], {4 * hidden})))) {
      return false;
    }
  }
  return true;
}

// One direction of a layer; x is (steps, batch, width), output (steps, batch, hidden).
void run_layer(const Tensor& x, const Tensor* w, bool has_biases, bool reverse, const Tensor& h0,
               const Tensor& c0, const Tensor& output, const Tensor& h_n, const Tensor& c_n) {
  const int64_t steps = x.size(0), batch = x.size(1), hidden = h0.size(1);
  const at::ScalarType type = x.scalar_type();
  const Tensor gates = at::linear(x, w[0], has_biases ? OptionalTensor(w[2]) : std::nullopt);
  const Tensor weight = w[1].contiguous();
  const Tensor bias = has_biases ? w[3].contiguous() : Tensor();
  const Tensor h = h0.contiguous(), c = c0.contiguous();
  const int64_t scratch = hologram::lstm_workspace(steps, batch, hidden);
  const Tensor workspace = scratch > 0 ? make_tensor({scratch}, type) : Tensor();
  Call call;
  call.view(gates, Access::updates);
  for (const Tensor* t : {&weight, &bias, &h, &c}) call.view(*t, Access::reads);
  for (const Tensor* t : {&output, &h_n, &c_n, &workspace}) call.view(*t, Access::writes);
  call.flag(reverse);
  call.run<"lstm_recurrence">();
}

std::tuple<Tensor, Tensor, Tensor> own_lstm(const Tensor& input, at::TensorList hx,
                                            at::TensorList params, bool has_biases,
                                            int64_t num_layers, bool bidirectional,
                                            bool batch_first) {
  Tensor x = batch_first ? input.transpose(0, 1) : input;
  const int64_t steps = x.size(0), batch = x.size(1), hidden = hx[0].size(2);
  const int64_t directions = bidirectional ? 2 : 1, given = has_biases ? 4 : 2;
  const at::ScalarType type = input.scalar_type();
  Tensor h_n = make_tensor(hx[0].sizes(), type), c_n = make_tensor(hx[0].sizes(), type);
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const Tensor output = make_tensor({steps, batch, directions * hidden}, type);
    for (int64_t d = 0; d < directions; ++d) {
      const int64_t i = layer * directions + d;
      run_layer(x, params.data() + i * given, has_biases, d == 1, hx[0].select(0, i),
                hx[1].select(0, i), output.narrow(2, d * hidden, hidden), h_n.select(0, i),
                c_n.select(0, i));
    }
    x = output;
  }
  return {batch_first ? x.transpose(0, 1) : x, std::move(h_n), std::move(c_n)};
}

// oneDNN reads states by the input's batch size and does not check theirs.
void check_batch(const Tensor& input, at::TensorList hx, bool batch_first) {
  if (input.dim() != 3) return;
  const int64_t batch = input.size(batch_first ? 0 : 1);
  for (const Tensor& state : hx) {
    TORCH_CHECK(state.dim() != 3 || state.size(1) == batch, "lstm: expected states of batch size ",
                batch, ", that of the input of shape ", input.sizes(), ", got one of shape ",
                state.sizes());
  }
}

// PyTorch's cpu runs a whole layer at once (oneDNN); other devices go step by step. Random numbers
// and gradients are the device's own, so layers with dropout and training take the steps.
std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, at::TensorList hx,
                                        at::TensorList params, bool has_biases, int64_t num_layers,
                                        double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  const bool grads = c10::GradMode::is_enabled() &&
                     (input.requires_grad() || any_requires_grad(hx) || any_requires_grad(params));
  if (grads || (train && dropout != 0) || !all_plain({input}) || !all_plain(hx) ||
      !all_plain(params) || at::autocast::is_autocast_enabled(kDeviceType)) {
    return at::native::lstm(input, hx, params, has_biases, num_layers, dropout, train,
                            bidirectional, batch_first);
  }
  check_batch(input, hx, batch_first);
  BelowAutograd guard;
  if (takes(input, hx, params, has_biases, num_layers, bidirectional)) {
    return own_lstm(input, hx, params, has_biases, num_layers, bidirectional, batch_first);
  }
  AliasScope scope;
  const OpenMpRegion region;
  const Tensor cpu_input = scope.to_cpu(input).detach();
  std::vector<Tensor> cpu_hx = scope.to_cpu(hx), cpu_params = scope.to_cpu(params);
  auto [output, h, c] = at::lstm(cpu_input, cpu_hx, cpu_params, has_biases, num_layers, dropout,
                                 train, bidirectional, batch_first);
  return {scope.to_device(std::move(output)), scope.to_device(std::move(h)),
          scope.to_device(std::move(c))};
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("lstm.input", TORCH_FN(hologram_torch::lstm));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  m.impl("lstm.input", TORCH_FN(lstm));
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}
