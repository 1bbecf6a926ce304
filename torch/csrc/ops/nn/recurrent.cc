// SPDX-License-Identifier: MIT
// Layers of LSTMs, GRUs and RNNs as calls of the library, with their gradients.
#include <ATen/FuncTorchTLS.h>
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>

#include "device/openmp.h"
#include "dispatch/alias.h"
#include "dispatch/autograd_bypass.h"
#include "hologram/gru.h"
#include "hologram/lstm.h"
#include "recording/deferred_call.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool all_plain(at::TensorList list) {
  return std::all_of(list.begin(), list.end(), [](const Tensor& t) {
    return t.defined() && is_ours(t) && t.layout() == c10::kStrided;
  });
}

bool any_requires_grad(at::TensorList list) {
  return std::any_of(list.begin(), list.end(),
                     [](const Tensor& t) { return t.defined() && t.requires_grad(); });
}

enum class Cell : uint8_t { kLstm, kGru, kTanh, kRelu };

int64_t gates_of(Cell cell) { return cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1; }
// Whether the cell has gates, whose values the gradient needs.
bool is_gated(Cell cell) { return gates_of(cell) > 1; }
// h, and c of an LSTM.
size_t states_of(Cell cell) { return cell == Cell::kLstm ? 2 : 1; }

// What a call of a network names, as PyTorch's operators do.
struct Network {
  Cell cell;
  const Tensor& input;
  at::TensorList hx, params;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train, bidirectional, batch_first;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t given() const { return has_biases ? 4 : 2; }
};

// Whether the library takes these: batches of float32 or float64 sequences without projections,
// all of one dtype, with something in them, and nothing that PyTorch would refuse.
bool takes(const Network& n) {
  const Tensor& input = n.input;
  const at::ScalarType type = input.scalar_type();
  const int64_t layers = n.num_layers * n.directions(), gates = gates_of(n.cell);
  if ((type != at::kFloat && type != at::kDouble) || input.dim() != 3 || input.numel() == 0 ||
      n.num_layers < 1 || n.hx.size() != states_of(n.cell) || n.hx[0].dim() != 3 ||
      static_cast<int64_t>(n.params.size()) != layers * n.given()) {
    return false;
  }
  const int64_t hidden = n.hx[0].size(2);
  const auto fits = [&](const Tensor& t, at::IntArrayRef sizes) {
    return is_plain(t) && t.scalar_type() == type && t.sizes() == sizes;
  };
  if (n.hx[0].size(0) != layers || hidden == 0 || !is_plain(input)) return false;
  for (const Tensor& state : n.hx) {
    if (!fits(state, n.hx[0].sizes())) return false;
  }
  for (int64_t i = 0; i < layers; ++i) {
    const Tensor* const w = n.params.data() + i * n.given();
    const int64_t width = i < n.directions() ? input.size(2) : n.directions() * hidden;
    if (!fits(w[0], {gates * hidden, width}) || !fits(w[1], {gates * hidden, hidden}) ||
        (n.has_biases && (!fits(w[2], {gates * hidden}) || !fits(w[3], {gates * hidden})))) {
      return false;
    }
  }
  return true;
}

// The weights and biases of a layer's directions, one after another.
struct Layer {
  Cell cell;
  at::TensorList params;
  bool has_biases;

  int64_t given() const { return has_biases ? 4 : 2; }
  int64_t directions() const { return static_cast<int64_t>(params.size()) / given(); }
  const Tensor& weight_ih(int64_t d) const { return params[static_cast<size_t>(d * given())]; }
  const Tensor& weight_hh(int64_t d) const { return params[static_cast<size_t>(d * given() + 1)]; }
  Tensor bias(int64_t d, int64_t which) const {
    return has_biases ? params[static_cast<size_t>(d * given() + 2 + which)] : Tensor();
  }
};

struct LayerResult {
  Tensor output;         // (steps, batch, directions * hidden)
  variable_list finals;  // for each state, (directions, batch, hidden)
  variable_list kept;    // for the gradient, two of each direction
};

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

// A layer over x (steps, batch, width), from states (directions, batch, hidden). Without `keeps`
// nothing is kept for the gradient.
LayerResult run_layer(const Tensor& x, const Layer& layer, at::TensorList states, bool keeps) {
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
GateGrads run_steps_backward(const Layer& layer, const LayerTape& tape, int64_t d,
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
variable_list run_layer_backward(const Layer& layer, const LayerTape& tape, Wants&& wants) {
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

// What PyTorch has for layers in steps.
using Steps = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, at::TensorList, bool,
                                         int64_t, double, bool, bool, bool);
Steps* const plain_gru = &at::native::gru;
Steps* const plain_rnn_tanh = &at::native::rnn_tanh;
Steps* const plain_rnn_relu = &at::native::rnn_relu;

// The layer in steps, which autograd follows: {output, states...}.
variable_list layer_in_steps(const Layer& layer, const Tensor& x, at::TensorList states) {
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
    const Layer layer{static_cast<Cell>(cell), params, has_biases};
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
    const variable_list saved = context->get_saved_variables();
    const at::TensorList all(saved);
    const bool has_biases = context->saved_data["has_biases"].toBool();
    const auto cell = static_cast<Cell>(context->saved_data["cell"].toInt());
    const size_t states = states_of(cell), each = has_biases ? 4 : 2;
    const size_t kept = is_gated(cell) ? 2 : 0;
    // x, output and the states; then parameters and what is kept for each direction.
    const size_t directions = (saved.size() - 2 - states) / (each + kept);
    const size_t given = directions * each;
    const Layer layer{cell, all.slice(2 + states, given), has_biases};
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
  static variable_list differentiable_backward(const Layer& layer, const LayerTape& tape,
                                               Wants&& wants) {
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

// {output, states...}
variable_list run_network(const Network& n, bool grads) {
  Tensor x = n.batch_first ? n.input.transpose(0, 1) : n.input;
  if (grads) x = x.contiguous();  // once, for both ways
  const size_t given = static_cast<size_t>(n.directions() * n.given());
  std::vector<variable_list> finals(n.hx.size());
  for (int64_t i = 0; i < n.num_layers; ++i) {
    if (i > 0 && n.train && n.dropout != 0) x = at::dropout(x, n.dropout, /*train=*/true);
    const at::TensorList own = n.params.slice(static_cast<size_t>(i) * given, given);
    variable_list states, results;
    for (const Tensor& t : n.hx) states.push_back(t.narrow(0, i * n.directions(), n.directions()));
    if (grads) {
      results = RecurrentLayer::apply(x, at::TensorList(states), own, n.has_biases,
                                      static_cast<int64_t>(n.cell));
    } else {
      LayerResult r = run_layer(x, {n.cell, own, n.has_biases}, states, /*keeps=*/false);
      results.push_back(std::move(r.output));
      results.insert(results.end(), r.finals.begin(), r.finals.end());
    }
    x = results[0];
    for (size_t k = 0; k < finals.size(); ++k) finals[k].push_back(results[1 + k]);
  }
  variable_list results{n.batch_first ? x.transpose(0, 1) : x};
  for (variable_list& list : finals) {
    results.push_back(list.size() == 1 ? list[0] : at::cat(list, 0));
  }
  return results;
}

// oneDNN reads states by the input's batch size and does not check theirs; nor do our kernels.
void check_batch(const char* name, const Network& n) {
  if (n.input.dim() != 3) return;
  const int64_t batch = n.input.size(n.batch_first ? 0 : 1);
  for (const Tensor& state : n.hx) {
    TORCH_CHECK(state.dim() != 3 || state.size(1) == batch, name,
                ": expected states of batch size ", batch, ", that of the input of shape ",
                n.input.sizes(), ", got one of shape ", state.sizes());
  }
}

// Whether a transform of torch.func is going on: whether nodes such as ours are refused.
bool is_transforming() {
  const auto& state = at::functorch::functorchTLSAccessor();
  if (C10_LIKELY(state == nullptr)) return false;  // none so far on this thread
  try {
    state->checkSupportsCppAutogradFunction();
    return false;
  } catch (const c10::Error&) {
    return true;
  }
}

// Whether something follows the layers step by step: torch.func's transforms, tangents and
// autocast.
bool is_followed(const Network& n) {
  const auto has_tangents = [](at::TensorList list) {
    return std::any_of(list.begin(), list.end(),
                       [](const Tensor& t) { return carries_tangent(t); });
  };
  return at::autocast::is_autocast_enabled(kDeviceType) || carries_tangent(n.input) ||
         has_tangents(n.hx) || has_tangents(n.params) || is_transforming();
}

bool wants_gradient(const Network& n) {
  return c10::GradMode::is_enabled() &&
         (n.input.requires_grad() || any_requires_grad(n.hx) || any_requires_grad(n.params));
}

// How the layers of a network run.
enum class Way : uint8_t {
  kSteps,     // op by op, as PyTorch has it for all devices but its cpu
  kCalls,     // the library's kernels
  kGradient,  // these with their gradient
  kCpu        // all by PyTorch's cpu
};

Way way_of(const Network& n) {
  if (!all_plain({n.input}) || !all_plain(n.hx) || !all_plain(n.params) || is_followed(n)) {
    return Way::kSteps;
  }
  const bool grads = wants_gradient(n);
  // Random numbers and gradients are the device's own.
  if (grads) return takes(n) ? Way::kGradient : Way::kSteps;
  if (n.train && n.dropout != 0) return Way::kSteps;
  return takes(n) ? Way::kCalls : Way::kCpu;
}

variable_list run_calls(const Network& n, Way way) {
  if (way == Way::kGradient) return run_network(n, /*grads=*/true);
  const BelowAutograd guard;
  return run_network(n, /*grads=*/false);
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, at::TensorList hx,
                                        at::TensorList params, bool has_biases, int64_t num_layers,
                                        double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  const Network n{Cell::kLstm, input,   hx,    params,        has_biases,
                  num_layers,  dropout, train, bidirectional, batch_first};
  const Way way = way_of(n);
  if (way == Way::kSteps) {
    return at::native::lstm(input, hx, params, has_biases, num_layers, dropout, train,
                            bidirectional, batch_first);
  }
  check_batch("lstm", n);
  if (way != Way::kCpu) {
    variable_list r = run_calls(n, way);
    return {std::move(r[0]), std::move(r[1]), std::move(r[2])};
  }
  const BelowAutograd guard;
  AliasScope scope;
  const OpenMpRegion region;
  const Tensor cpu_input = scope.to_cpu(input).detach();
  std::vector<Tensor> cpu_hx = scope.to_cpu(hx), cpu_params = scope.to_cpu(params);
  auto [output, h, c] = at::lstm(cpu_input, cpu_hx, cpu_params, has_biases, num_layers, dropout,
                                 train, bidirectional, batch_first);
  return {scope.to_device(std::move(output)), scope.to_device(std::move(h)),
          scope.to_device(std::move(c))};
}

// Networks with one state: GRUs and RNNs.
template <Cell kCell, Steps* const* kSteps>
std::tuple<Tensor, Tensor> network(const Tensor& input, const Tensor& hx, at::TensorList params,
                                   bool has_biases, int64_t num_layers, double dropout, bool train,
                                   bool bidirectional, bool batch_first) {
  const Network n{kCell,   input, at::TensorList(hx), params,     has_biases, num_layers,
                  dropout, train, bidirectional,      batch_first};
  const Way way = way_of(n);
  if (way == Way::kSteps || way == Way::kCpu) {
    return (*kSteps)(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
                     batch_first);
  }
  constexpr const char* kNames[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
  check_batch(kNames[static_cast<int>(kCell)], n);
  variable_list r = run_calls(n, way);
  return {std::move(r[0]), std::move(r[1])};
}

void register_networks(torch::Library& m) {
  m.impl("lstm.input", TORCH_FN(lstm));
  m.impl("gru.input", &network<Cell::kGru, &plain_gru>);
  m.impl("rnn_tanh.input", &network<Cell::kTanh, &plain_rnn_tanh>);
  m.impl("rnn_relu.input", &network<Cell::kRelu, &plain_rnn_relu>);
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { hologram_torch::register_networks(m); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { hologram_torch::register_networks(m); }
