// SPDX-License-Identifier: MIT
// Layers of LSTMs, GRUs and RNNs: the calls, forward and backward, and the node of the graph.
#include "ops/nn/recurrent_layer.h"

#include <ATen/Functions.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "hologram/recurrent.h"
#include "recording/record_call.h"

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

int64_t steps_of(const Tensor& x, const Packing& packing) {
  return packing.sizes.defined() ? packing.sizes.size(0) : x.size(0);
}

// As many rows, another width.
Tensor rows_like(const Tensor& x, int64_t width) {
  c10::SmallVector<int64_t, 3> sizes(x.sizes().begin(), x.sizes().end());
  sizes.back() = width;
  return new_empty(x, sizes);
}

}  // namespace

LayerResult run_layer(const Tensor& x, const Packing& packing, const RecurrentParameters& layer,
                      at::TensorList states, bool keeps) {
  const bool lstm = layer.cell == Cell::kLstm, gated = is_gated(layer.cell);
  const int64_t steps = steps_of(x, packing), batch = states[0].size(1);
  const int64_t columns = states[0].size(2), hidden = states.back().size(2);
  const int64_t directions = layer.directions();
  LayerResult r;
  r.output = rows_like(x, directions * columns);
  for (const Tensor& state : states) r.finals.push_back(new_empty(state, state.sizes()));
  const int64_t scratch =
      lstm    ? hologram::lstm_workspace(steps, batch, hidden, layer.projects ? columns : 0)
      : gated ? hologram::gru_workspace(steps, batch, hidden)
              : 0;
  for (int64_t d = 0; d < directions; ++d) {
    Tensor gates = at::linear(x, layer.weight_ih(d), layer.bias(d, 0));
    const Tensor weight = layer.weight_hh(d).contiguous();
    const Tensor bias = layer.has_biases ? layer.bias(d, 1).contiguous() : Tensor();
    const variable_list first = contiguous(directions_of(states, d));
    variable_list last = directions_of(r.finals, d);
    Tensor output = r.output.narrow(-1, d * columns, columns);
    // c of every step of an LSTM; what h brings to n of a GRU, which its kernel writes anyway.
    Tensor kept = gated && (keeps || !lstm) ? rows_like(x, hidden) : Tensor();
    Tensor workspace = scratch > 0 ? new_empty(x, {scratch}) : Tensor();
    const bool reverse = d == 1;
    if (!gated) {
      record(calls::RnnForward<Arg>{.gates = gates,
                                    .weight = weight,
                                    .bias = bias,
                                    .h0 = first[0],
                                    .batch_sizes = packing.sizes,
                                    .relu = layer.cell == Cell::kRelu,
                                    .reverse = reverse,
                                    .output = output,
                                    .h_n = last[0]});
    } else if (!lstm) {
      record(calls::GruForward<Arg>{.gates = gates,
                                    .weight = weight,
                                    .bias = bias,
                                    .h0 = first[0],
                                    .batch_sizes = packing.sizes,
                                    .reverse = reverse,
                                    .output = output,
                                    .h_n = last[0],
                                    .hidden_n = kept,
                                    .workspace = workspace});
    } else if (const Tensor weight_hr = contiguous({layer.weight_hr(d)})[0]; keeps) {
      record(calls::LstmForward<Arg>{.gates = gates,
                                     .weight = weight,
                                     .bias = bias,
                                     .h0 = first[0],
                                     .c0 = first[1],
                                     .weight_hr = weight_hr,
                                     .batch_sizes = packing.sizes,
                                     .reverse = reverse,
                                     .output = output,
                                     .h_n = last[0],
                                     .c_n = last[1],
                                     .cells = kept,
                                     .workspace = workspace});
    } else {
      record(calls::LstmRecurrence<Arg>{.gates = gates,
                                        .weight = weight,
                                        .bias = bias,
                                        .h0 = first[0],
                                        .c0 = first[1],
                                        .weight_hr = weight_hr,
                                        .batch_sizes = packing.sizes,
                                        .reverse = reverse,
                                        .output = output,
                                        .h_n = last[0],
                                        .c_n = last[1],
                                        .workspace = workspace});
    }
    if (keeps && gated) r.kept.insert(r.kept.end(), {gates, kept});
  }
  return r;
}

namespace {

// What a layer's gradient starts from: what it took, gave and kept, and its results' gradients,
// which may be undefined.
struct LayerTape {
  Packing packing;
  Tensor x, output;
  variable_list states, kept;
  variable_list grads;
};

// A matrix of all steps' rows.
Tensor all_rows(const Tensor& t) { return t.dim() == 2 ? t : t.flatten(0, 1); }

// Gradients of gates and of the state's product with the weight, which differ for a GRU only. With
// a projection that of h, and what was projected.
struct GateGrads {
  Tensor input, hidden;
  Tensor grad_projection = {}, projected = {};
};

// Through the steps of direction d; first: where the gradients of the states go.
GateGrads run_steps_backward(const RecurrentParameters& layer, const LayerTape& tape, int64_t d,
                             variable_list first) {
  const bool lstm = layer.cell == Cell::kLstm;
  const int64_t batch = tape.states[0].size(1), columns = tape.states[0].size(2);
  const int64_t hidden = tape.states.back().size(2);
  Tensor grad_output;
  if (tape.grads[0].defined()) {
    grad_output = tape.grads[0].narrow(-1, d * columns, columns);
    const bool packed = tape.packing.sizes.defined();
    if (!is_dense(grad_output) || grad_output.stride(-1) != 1 || grad_output.stride(-2) < columns ||
        (!packed && grad_output.stride(0) != batch * grad_output.stride(1))) {
      grad_output = grad_output.contiguous();
    }
  }
  const at::TensorList grads(tape.grads);
  const variable_list grad_last = contiguous(directions_of(grads.slice(1), d));
  const variable_list states = contiguous(directions_of(tape.states, d));
  const Tensor weight = layer.weight_hh(d).contiguous();
  const Tensor output = tape.output.narrow(-1, d * columns, columns);
  const Tensor& sizes = tape.packing.sizes;
  Tensor grad_gates = rows_like(tape.x, gates_of(layer.cell) * hidden);
  if (!is_gated(layer.cell)) {
    record(calls::RnnBackward<Arg>{.output = output,
                                   .weight = weight,
                                   .grad_output = grad_output,
                                   .grad_h_n = grad_last[0],
                                   .batch_sizes = sizes,
                                   .relu = layer.cell == Cell::kRelu,
                                   .reverse = d == 1,
                                   .grad_gates = grad_gates,
                                   .grad_h0 = first[0]});
    return {grad_gates, grad_gates};
  }
  const Tensor &gates = tape.kept[static_cast<size_t>(2 * d)],
               &kept = tape.kept[static_cast<size_t>(2 * d + 1)];
  Tensor grad_hidden = lstm ? grad_gates : rows_like(tape.x, 3 * hidden);
  const int64_t projection = layer.projects ? columns : 0;
  Tensor workspace =
      new_empty(tape.x, {lstm ? hologram::lstm_backward_workspace(batch, hidden, projection)
                              : hologram::gru_backward_workspace(batch, hidden)});
  Tensor weight_hr, grad_projection, projected;
  if (layer.projects) {
    weight_hr = layer.weight_hr(d).contiguous();
    grad_projection = rows_like(tape.x, columns), projected = rows_like(tape.x, hidden);
  }
  if (lstm) {
    record(calls::LstmBackward<Arg>{.gates = gates,
                                    .cells = kept,
                                    .weight = weight,
                                    .c0 = states[1],
                                    .grad_output = grad_output,
                                    .grad_h_n = grad_last[0],
                                    .grad_c_n = grad_last[1],
                                    .weight_hr = weight_hr,
                                    .batch_sizes = sizes,
                                    .grad_projection = grad_projection,
                                    .projected = projected,
                                    .reverse = d == 1,
                                    .grad_gates = grad_gates,
                                    .grad_h0 = first[0],
                                    .grad_c0 = first[1],
                                    .workspace = workspace});
  } else {
    record(calls::GruBackward<Arg>{.gates = gates,
                                   .hidden_n = kept,
                                   .output = output,
                                   .weight = weight,
                                   .h0 = states[0],
                                   .grad_output = grad_output,
                                   .grad_h_n = grad_last[0],
                                   .batch_sizes = sizes,
                                   .reverse = d == 1,
                                   .grad_gates = grad_gates,
                                   .grad_hidden = grad_hidden,
                                   .grad_h0 = first[0],
                                   .workspace = workspace});
  }
  return {grad_gates, grad_hidden, grad_projection, projected};
}

// The sum over all rows of grad^T h, h of the step before.
Tensor state_weight_grad(const LayerTape& tape, const Tensor& grad, const Tensor& first,
                         const Tensor& output, bool reverse) {
  if (tape.packing.sizes.defined()) {
    Tensor before = new_empty(output, output.sizes());
    const Tensor rows = first.contiguous();
    record(calls::RowsBefore<Arg>{.input = output,
                                  .first = rows,
                                  .batch_sizes = tape.packing.sizes,
                                  .reverse = reverse,
                                  .out = before});
    return grad.t().mm(before);
  }
  const int64_t steps = output.size(0), begin = reverse ? steps - 1 : 0, others = reverse ? 0 : 1;
  Tensor sum = grad.select(0, begin).t().mm(first);
  if (steps > 1) {
    sum.addmm_(all_rows(grad.narrow(0, others, steps - 1)).t(),
               all_rows(output.narrow(0, 1 - others, steps - 1)));
  }
  return sum;
}

// Gradients of x, of the states and of the parameters, in this order; `wants` says of which.
template <class Wants>
variable_list run_layer_backward(const RecurrentParameters& layer, const LayerTape& tape,
                                 Wants&& wants) {
  const int64_t columns = tape.states[0].size(2);
  const size_t states = tape.states.size();
  variable_list result(1 + states + layer.params.size());
  for (size_t i = 0; i < states; ++i) {
    result[1 + i] = new_empty(tape.x, tape.states[i].sizes());
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
      result[first + 1] =
          state_weight_grad(tape, grad.hidden, tape.states[0].select(0, d),
                            tape.output.narrow(-1, d * columns, columns), /*reverse=*/d == 1);
    }
    const size_t last = first + static_cast<size_t>(layer.given()) - 1;
    // c of the only step does not depend on the projection.
    const bool projected =
        steps_of(tape.x, tape.packing) > 1 || tape.grads[0].defined() || tape.grads[1].defined();
    if (layer.projects && projected && wants(last)) {
      result[last] = all_rows(grad.grad_projection).t().mm(all_rows(grad.projected));
    }
    if (!layer.has_biases) continue;
    if (wants(first + 2)) result[first + 2] = rows.sum(0);
    if (wants(first + 3)) result[first + 3] = all_rows(grad.hidden).sum(0);
  }
  return result;
}

// A layer whose gradient is wanted; its node of the graph.
struct RecurrentLayer : torch::autograd::Function<RecurrentLayer> {
  static variable_list forward(AutogradContext* context, const Tensor& x, at::TensorList states,
                               at::TensorList params, const RecurrentParameters& layer,
                               const Packing& packing) {
    LayerResult r = run_layer(x, packing, layer, states, /*keeps=*/true);
    variable_list saved{x, r.output};
    for (const at::TensorList list : {states, params, at::TensorList(r.kept)}) {
      saved.insert(saved.end(), list.begin(), list.end());
    }
    context->save_for_backward(std::move(saved));
    context->saved_data["cell"] = static_cast<int64_t>(layer.cell);
    context->saved_data["has_biases"] = layer.has_biases;
    context->saved_data["projects"] = layer.projects;
    context->saved_data["batch_sizes"] = packing.batch_sizes;
    context->saved_data["sizes"] = packing.sizes;
    context->set_materialize_grads(false);
    variable_list results{std::move(r.output)};
    results.insert(results.end(), r.finals.begin(), r.finals.end());
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const WithoutAutocast guard;
    const variable_list saved = context->get_saved_variables();
    const at::TensorList all(saved);
    auto& data = context->saved_data;
    RecurrentParameters layer{static_cast<Cell>(data["cell"].toInt()),
                              {},
                              data["has_biases"].toBool(),
                              data["projects"].toBool()};
    const Cell cell = layer.cell;
    const size_t states = states_of(cell), each = static_cast<size_t>(layer.given());
    const size_t kept = is_gated(cell) ? 2 : 0;
    // x, output and the states; then parameters and what is kept for each direction.
    const size_t directions = (saved.size() - 2 - states) / (each + kept);
    const size_t given = directions * each;
    layer.params = all.slice(2 + states, given);
    const LayerTape tape{{data["batch_sizes"].toTensor(), data["sizes"].toTensor()},
                         saved[0],
                         saved[1],
                         all.slice(2, states).vec(),
                         all.slice(2 + states + given).vec(),
                         grads};
    const auto wants = [&](size_t i) { return context->needs_input_grad(i); };
    variable_list result;
    if (std::none_of(grads.begin(), grads.end(), [](const Tensor& t) { return t.defined(); })) {
      result.resize(1 + states + given);
    } else if (c10::GradMode::is_enabled()) {
      result = differentiable_backward(layer, tape, wants, /*create_graph=*/true);
    } else if (std::any_of(grads.begin(), grads.end(), has_no_elements)) {
      const c10::AutoGradMode graph_of_steps(true);
      result = differentiable_backward(layer, tape, wants, /*create_graph=*/false);
    } else {
      result = run_layer_backward(layer, tape, wants);
      for (size_t i = 1; i <= states; ++i) {
        if (!wants(i)) result[i] = Tensor();
      }
    }
    result.resize(result.size() + 2);  // of layer and packing
    return result;
  }

 private:
  // Many gradients as one tensor (vmap, is_grads_batched), or what has no memory for other reasons.
  static bool has_no_elements(const Tensor& t) {
    return t.defined() && !(t.has_storage() && is_dense(t.unsafeGetTensorImpl()));
  }

  // Gradients by PyTorch's steps, each an operator: they may have gradients, and may be many.
  template <class Wants>
  static variable_list differentiable_backward(const RecurrentParameters& layer,
                                               const LayerTape& tape, Wants&& wants,
                                               bool create_graph) {
    const variable_list results =
        run_in_steps({layer.cell, tape.x, tape.states, layer.params, layer.has_biases, 1, 0.0,
                      /*train=*/false, layer.directions() == 2, /*batch_first=*/false,
                      tape.packing.batch_sizes});
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
                                                create_graph, /*allow_unused=*/true);
    variable_list result(given.size());
    for (size_t i = 0; i < places.size(); ++i) result[places[i]] = std::move(found[i]);
    return result;
  }
};

}  // namespace

variable_list differentiable_layer(const Tensor& x, const Packing& packing,
                                   const RecurrentParameters& layer, at::TensorList states) {
  return RecurrentLayer::apply(x, states, layer.params, layer, packing);
}

variable_list run_in_steps(const Network& n) {
  if (n.cell == Cell::kLstm) {
    auto [output, h, c] =
        n.is_packed() ? at::native::lstm(n.input, n.batch_sizes, n.hx, n.params, n.has_biases,
                                         n.num_layers, n.dropout, n.train, n.bidirectional)
                      : at::native::lstm(n.input, n.hx, n.params, n.has_biases, n.num_layers,
                                         n.dropout, n.train, n.bidirectional, n.batch_first);
    return {std::move(output), std::move(h), std::move(c)};
  }
  using Steps = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, at::TensorList, bool,
                                           int64_t, double, bool, bool, bool);
  using PackedSteps = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                 at::TensorList, bool, int64_t, double, bool, bool);
  Steps* steps = &at::native::gru;
  PackedSteps* packed = &at::native::gru;
  if (n.cell == Cell::kTanh) steps = &at::native::rnn_tanh, packed = &at::native::rnn_tanh;
  if (n.cell == Cell::kRelu) steps = &at::native::rnn_relu, packed = &at::native::rnn_relu;
  auto [output, h] = n.is_packed() ? packed(n.input, n.batch_sizes, n.hx[0], n.params, n.has_biases,
                                            n.num_layers, n.dropout, n.train, n.bidirectional)
                                   : steps(n.input, n.hx[0], n.params, n.has_biases, n.num_layers,
                                           n.dropout, n.train, n.bidirectional, n.batch_first);
  return {std::move(output), std::move(h)};
}

}  // namespace hologram_torch
