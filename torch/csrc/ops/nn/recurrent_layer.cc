// SPDX-License-Identifier: MIT
// Layers of LSTMs, GRUs and RNNs: the calls, forward and backward, and the node of the graph.
#include "ops/nn/recurrent_layer.h"

#include <ATen/Functions.h>
#include <ATen/ops/lstm_native.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>

#include "hologram/gru.h"
#include "hologram/lstm.h"
#include "recording/deferred_call.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Views of one direction in tensors of all; undefined stays so.
variable_list directions_of(at::TensorList list, int64_t d) {
  variable_list parts;
  for (const Tensor& t : list) parts.push_back(t.defined() ? t.select(0, d) : t);
  return parts;
}
variable_list contiguous(variable_list list) {
  for (Tensor& t : list) {
    if (t.defined()) t = t.contiguous();
  }
  return list;
}

void add_views(Call& call, std::initializer_list<Tensor> list, Access access) {
  for (const Tensor& t : list) call.view(t, access);
}

}  // namespace

LayerResult run_layer(const Tensor& x, const RecurrentParameters& layer, at::TensorList states,
                      bool keeps) {
  const bool lstm = layer.cell == Cell::kLstm, gated = is_gated(layer.cell);
  const int64_t steps = x.size(0), batch = x.size(1), hidden = states[0].size(2);
  const int64_t directions = layer.directions();
  const at::ScalarType type = x.scalar_type();
  LayerResult r;
  r.output = make_tensor({steps, batch, directions * hidden}, type);
  for (const Tensor& state : states) r.finals.push_back(make_tensor(state.sizes(), type));
  const int64_t scratch = lstm    ? hologram::lstm_workspace(steps, batch, hidden)
                          : gated ? hologram::gru_workspace(steps, batch, hidden)
                                  : 0;
  for (int64_t d = 0; d < directions; ++d) {
    const Tensor gates = at::linear(x, layer.weight_ih(d), layer.bias(d, 0));
    const Tensor weight = layer.weight_hh(d).contiguous();
    const Tensor bias = layer.has_biases ? layer.bias(d, 1).contiguous() : Tensor();
    const variable_list first = contiguous(directions_of(states, d));
    const variable_list last = directions_of(r.finals, d);
    const Tensor output = r.output.narrow(2, d * hidden, hidden);
    // c of every step of an LSTM; what h brings to n of a GRU, which its kernel writes anyway.
    const Tensor kept =
        gated && (keeps || !lstm) ? make_tensor({steps, batch, hidden}, type) : Tensor();
    const Tensor workspace = scratch > 0 ? make_tensor({scratch}, type) : Tensor();
    Call call;
    call.view(gates, gated ? Access::updates : Access::reads);
    for (const Tensor* t : {&weight, &bias}) call.view(*t, Access::reads);
    for (const Tensor& t : first) call.view(t, Access::reads);
    call.view(output, Access::writes);
    for (const Tensor& t : last) call.view(t, Access::writes);
    if (kept.defined()) call.view(kept, Access::writes);
    if (gated) {
      call.view(workspace, Access::writes);
    } else {
      call.flag(layer.cell == Cell::kRelu);
    }
    call.flag(d == 1);
    if (!gated) {
      call.run<"rnn_forward">();
    } else if (!lstm) {
      call.run<"gru_forward">();
    } else if (keeps) {
      call.run<"lstm_forward">();
    } else {
      call.run<"lstm_recurrence">();
    }
    if (keeps && gated) r.kept.insert(r.kept.end(), {gates, kept});
  }
  return r;
}

namespace {

// What a layer's gradient starts from: what it took, gave and kept, and its results' gradients,
// which may be undefined.
struct LayerTape {
  Tensor x, output;
  variable_list states, kept;
  variable_list grads;
};

// A matrix of all steps' rows.
Tensor all_rows(const Tensor& t) { return t.flatten(0, 1); }

// Gradients of gates and of the state's product with the weight, which differ for a GRU only.
struct GateGrads {
  Tensor input, hidden;
};

// Through the steps of direction d; first: where the gradients of the states go.
GateGrads run_steps_backward(const RecurrentParameters& layer, const LayerTape& tape, int64_t d,
                             const variable_list& first) {
  const bool lstm = layer.cell == Cell::kLstm;
  const int64_t steps = tape.x.size(0), batch = tape.x.size(1), hidden = first[0].size(1);
  const at::ScalarType type = tape.x.scalar_type();
  Tensor grad_output;
  if (tape.grads[0].defined()) {
    grad_output = tape.grads[0].narrow(2, d * hidden, hidden);
    if (!is_plain(grad_output) || grad_output.stride(2) != 1 || grad_output.stride(1) < hidden ||
        grad_output.stride(0) != batch * grad_output.stride(1)) {
      grad_output = grad_output.contiguous();
    }
  }
  const at::TensorList grads(tape.grads);
  const variable_list grad_last = contiguous(directions_of(grads.slice(1), d));
  const variable_list states = contiguous(directions_of(tape.states, d));
  const Tensor weight = layer.weight_hh(d).contiguous();
  const Tensor output = tape.output.narrow(2, d * hidden, hidden);
  const std::array<int64_t, 3> sizes{steps, batch, gates_of(layer.cell) * hidden};
  const Tensor grad_gates = make_tensor(sizes, type);
  if (!is_gated(layer.cell)) {
    Call call;
    add_views(call, {output, weight, grad_output, grad_last[0]}, Access::reads);
    add_views(call, {grad_gates, first[0]}, Access::writes);
    call.flag(layer.cell == Cell::kRelu);
    call.flag(d == 1);
    call.run<"rnn_backward">();
    return {grad_gates, grad_gates};
  }
  const Tensor &gates = tape.kept[static_cast<size_t>(2 * d)],
               &kept = tape.kept[static_cast<size_t>(2 * d + 1)];
  const Tensor grad_hidden = lstm ? grad_gates : make_tensor(sizes, type);
  const Tensor workspace = make_tensor({lstm ? hologram::lstm_backward_workspace(batch, hidden)
                                             : hologram::gru_backward_workspace(batch, hidden)},
                                       type);
  Call call;
  if (lstm) {
    add_views(call, {gates, kept, weight, states[1], grad_output, grad_last[0], grad_last[1]},
              Access::reads);
    add_views(call, {grad_gates, first[0], first[1], workspace}, Access::writes);
  } else {
    add_views(call, {gates, kept, output, weight, states[0], grad_output, grad_last[0]},
              Access::reads);
    add_views(call, {grad_gates, grad_hidden, first[0], workspace}, Access::writes);
  }
  call.flag(d == 1);
  lstm ? call.run<"lstm_backward">() : call.run<"gru_backward">();
  return {grad_gates, grad_hidden};
}

// Gradients of x, of the states and of the parameters, in this order; `wants` says of which.
template <class Wants>
variable_list run_layer_backward(const RecurrentParameters& layer, const LayerTape& tape,
                                 Wants&& wants) {
  const int64_t steps = tape.x.size(0), hidden = tape.states[0].size(2);
  const size_t states = tape.states.size();
  variable_list result(1 + states + layer.params.size());
  for (size_t i = 0; i < states; ++i) {
    result[1 + i] = make_tensor(tape.states[i].sizes(), tape.x.scalar_type());
  }
  const at::TensorList grads(result);
  for (int64_t d = 0; d < layer.directions(); ++d) {
    const GateGrads grad =
        run_steps_backward(layer, tape, d, directions_of(grads.slice(1, states), d));
    const Tensor rows = all_rows(grad.input);
    const size_t first = 1 + states + static_cast<size_t>(d * layer.given());
    if (wants(0)) {
      const Tensor flat = result[0].defined() ? all_rows(result[0]).addmm_(rows, layer.weight_ih(d))
                                              : rows.mm(layer.weight_ih(d));
      result[0] = flat.view(tape.x.sizes());
    }
    if (wants(first)) result[first] = rows.t().mm(all_rows(tape.x));
    if (wants(first + 1)) {
      // h before each step: that of the step before, or the first.
      const Tensor output = tape.output.narrow(2, d * hidden, hidden);
      const int64_t begin = d == 1 ? steps - 1 : 0, others = d == 1 ? 0 : 1;
      Tensor sum = grad.hidden.select(0, begin).t().mm(tape.states[0].select(0, d));
      if (steps > 1) {
        sum.addmm_(all_rows(grad.hidden.narrow(0, others, steps - 1)).t(),
                   all_rows(output.narrow(0, 1 - others, steps - 1)));
      }
      result[first + 1] = std::move(sum);
    }
    if (!layer.has_biases) continue;
    if (wants(first + 2)) result[first + 2] = rows.sum(0);
    if (wants(first + 3)) result[first + 3] = all_rows(grad.hidden).sum(0);
  }
  return result;
}

// The layer in steps, which autograd follows: {output, states...}.
variable_list layer_in_steps(const RecurrentParameters& layer, const Tensor& x,
                             at::TensorList states) {
  const bool both = layer.directions() == 2;
  if (layer.cell == Cell::kLstm) {
    auto [output, h, c] = at::native::lstm(x, states, layer.params, layer.has_biases, 1, 0.0,
                                           /*train=*/false, both, /*batch_first=*/false);
    return {std::move(output), std::move(h), std::move(c)};
  }
  const auto steps = layer.cell == Cell::kGru    ? plain_gru
                     : layer.cell == Cell::kTanh ? plain_rnn_tanh
                                                 : plain_rnn_relu;
  auto [output, h] = steps(x, states[0], layer.params, layer.has_biases, 1, 0.0, /*train=*/false,
                           both, /*batch_first=*/false);
  return {std::move(output), std::move(h)};
}

// A layer whose gradient is wanted; its node of the graph.
struct RecurrentLayer : torch::autograd::Function<RecurrentLayer> {
  static variable_list forward(AutogradContext* context, const Tensor& x, at::TensorList states,
                               at::TensorList params, bool has_biases, int64_t cell) {
    const RecurrentParameters layer{static_cast<Cell>(cell), params, has_biases};
    LayerResult r = run_layer(x, layer, states, /*keeps=*/true);
    variable_list saved{x, r.output};
    for (const at::TensorList list : {states, params, at::TensorList(r.kept)}) {
      saved.insert(saved.end(), list.begin(), list.end());
    }
    context->save_for_backward(std::move(saved));
    context->saved_data["cell"] = cell;
    context->saved_data["has_biases"] = has_biases;
    context->set_materialize_grads(false);
    variable_list results{std::move(r.output)};
    results.insert(results.end(), r.finals.begin(), r.finals.end());
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const WithoutAutocast guard;
    const variable_list saved = context->get_saved_variables();
    const at::TensorList all(saved);
    const bool has_biases = context->saved_data["has_biases"].toBool();
    const auto cell = static_cast<Cell>(context->saved_data["cell"].toInt());
    const size_t states = states_of(cell), each = has_biases ? 4 : 2;
    const size_t kept = is_gated(cell) ? 2 : 0;
    // x, output and the states; then parameters and what is kept for each direction.
    const size_t directions = (saved.size() - 2 - states) / (each + kept);
    const size_t given = directions * each;
    const RecurrentParameters layer{cell, all.slice(2 + states, given), has_biases};
    const LayerTape tape{saved[0], saved[1], all.slice(2, states).vec(),
                         all.slice(2 + states + given).vec(), grads};
    const auto wants = [&](size_t i) { return context->needs_input_grad(i); };
    variable_list result;
    if (std::none_of(grads.begin(), grads.end(), [](const Tensor& t) { return t.defined(); })) {
      result.resize(1 + states + given);
    } else if (c10::GradMode::is_enabled()) {
      result = differentiable_backward(layer, tape, wants);
    } else {
      result = run_layer_backward(layer, tape, wants);
      for (size_t i = 1; i <= states; ++i) {
        if (!wants(i)) result[i] = Tensor();
      }
    }
    result.resize(result.size() + 2);  // of has_biases and cell
    return result;
  }

 private:
  // Gradients that have gradients.
  template <class Wants>
  static variable_list differentiable_backward(const RecurrentParameters& layer,
                                               const LayerTape& tape, Wants&& wants) {
    const variable_list results = layer_in_steps(layer, tape.x, tape.states);
    variable_list given{tape.x}, from, from_grads, asked;
    given.insert(given.end(), tape.states.begin(), tape.states.end());
    given.insert(given.end(), layer.params.begin(), layer.params.end());
    for (size_t i = 0; i < results.size(); ++i) {
      if (!tape.grads[i].defined()) continue;
      from.push_back(results[i]);
      from_grads.push_back(tape.grads[i]);
    }
    std::vector<size_t> places;
    for (size_t i = 0; i < given.size(); ++i) {
      if (!wants(i)) continue;
      asked.push_back(given[i]);
      places.push_back(i);
    }
    variable_list found = torch::autograd::grad(from, asked, from_grads, /*retain_graph=*/true,
                                                /*create_graph=*/true, /*allow_unused=*/true);
    variable_list result(given.size());
    for (size_t i = 0; i < places.size(); ++i) result[places[i]] = std::move(found[i]);
    return result;
  }
};

}  // namespace

variable_list differentiable_layer(const Tensor& x, at::TensorList states, at::TensorList params,
                                   bool has_biases, Cell cell) {
  return RecurrentLayer::apply(x, states, params, has_biases, static_cast<int64_t>(cell));
}

}  // namespace hologram_torch
