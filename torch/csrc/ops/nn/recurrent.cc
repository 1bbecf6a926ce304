// SPDX-License-Identifier: MIT
// Networks of recurrent layers: LSTMs, GRUs and RNNs, and which way each of them runs.
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/library.h>

#include "device/openmp.h"
#include "host/alias.h"
#include "ops/nn/packed.h"
#include "ops/nn/processor.h"
#include "ops/nn/recurrent_layer.h"
#include "recording/autograd_bypass.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using torch::autograd::variable_list;

bool all_plain(at::TensorList list) {
  return std::all_of(list.begin(), list.end(), [](const Tensor& t) {
    return t.defined() && is_ours(t) && t.layout() == c10::kStrided && !is_of_python(t);
  });
}

bool any_requires_grad(at::TensorList list) {
  return std::any_of(list.begin(), list.end(),
                     [](const Tensor& t) { return t.defined() && t.requires_grad(); });
}

// Whether the library takes these: batches of float32 or float64 sequences, all of one dtype, with
// something in them, and nothing that PyTorch would refuse.
bool takes(const Network& n) {
  const Tensor& input = n.input;
  const at::ScalarType type = input.scalar_type();
  const int64_t layers = n.num_layers * n.directions(), gates = gates_of(n.cell);
  const RecurrentParameters all{n.cell, n.params, n.has_biases, n.projects()};
  if ((type != at::kFloat && type != at::kDouble) || input.dim() != (n.is_packed() ? 2 : 3) ||
      input.numel() == 0 || n.num_layers < 1 || n.hx.size() != states_of(n.cell) ||
      static_cast<int64_t>(n.params.size()) != layers * all.given()) {
    return false;
  }
  const auto fits = [&](const Tensor& t, at::IntArrayRef sizes) {
    return is_dense(t) && t.scalar_type() == type && t.sizes() == sizes;
  };
  for (const Tensor& state : n.hx) {
    if (state.dim() != 3) return false;
  }
  const int64_t columns = n.hx[0].size(2), hidden = n.hx.back().size(2), batch = n.hx[0].size(1);
  if (columns == 0 || hidden == 0 || !is_dense(input) || !fits(n.hx[0], {layers, batch, columns}) ||
      !fits(n.hx.back(), {layers, batch, hidden})) {
    return false;
  }
  for (int64_t i = 0; i < layers; ++i) {
    const int64_t width = i < n.directions() ? input.size(-1) : n.directions() * columns;
    if (!fits(all.weight_ih(i), {gates * hidden, width}) ||
        !fits(all.weight_hh(i), {gates * hidden, columns}) ||
        (n.has_biases &&
         (!fits(all.bias(i, 0), {gates * hidden}) || !fits(all.bias(i, 1), {gates * hidden}))) ||
        (all.projects && !fits(all.weight_hr(i), {columns, hidden}))) {
      return false;
    }
  }
  // The sizes of steps come from the cpu, which a graph does not look at again.
  return !n.is_packed() ||
         (is_packing(n.batch_sizes, batch, input.size(0)) && !hologram::is_capturing_graph());
}

// {output, states...}
variable_list run_network(const Network& n, bool grads) {
  Tensor x = n.batch_first ? n.input.transpose(0, 1) : n.input;
  if (grads) x = x.contiguous();  // once, for both ways
  Packing packing;
  if (n.is_packed()) packing = {n.batch_sizes, n.batch_sizes.to(x.device())};
  std::vector<variable_list> finals(n.hx.size());
  for (int64_t i = 0; i < n.num_layers; ++i) {
    if (i > 0 && n.train && n.dropout != 0) x = at::dropout(x, n.dropout, /*train=*/true);
    const RecurrentParameters own = n.layer(i);
    variable_list states, results;
    for (const Tensor& t : n.hx) states.push_back(t.narrow(0, i * n.directions(), n.directions()));
    if (grads) {
      results = differentiable_layer(x, packing, own, states);
    } else {
      LayerResult r = run_layer(x, packing, own, states, /*keeps=*/false);
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

constexpr const char* kNames[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};

// oneDNN reads states by the input's batch size and does not check theirs; nor do our kernels.
void check_batch(const Network& n) {
  if (n.input.dim() != 3) return;
  const int64_t batch = n.input.size(n.batch_first ? 0 : 1);
  for (const Tensor& state : n.hx) {
    TORCH_CHECK(state.dim() != 3 || state.size(1) == batch, kNames[static_cast<int>(n.cell)],
                ": expected states of batch size ", batch, ", that of the input of shape ",
                n.input.sizes(), ", got one of shape ", state.sizes());
  }
}

// Whether something follows the layers step by step: torch.func's transforms and tangents.
bool is_followed(const Network& n) {
  const auto has_tangents = [](at::TensorList list) {
    return std::any_of(list.begin(), list.end(),
                       [](const Tensor& t) { return carries_tangent(t); });
  };
  return carries_tangent(n.input) || has_tangents(n.hx) || has_tangents(n.params) ||
         is_transforming();
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
  kCpu        // an LSTM, all by PyTorch's cpu
};

Way way_of(const Network& n) {
  if (!all_plain({n.input}) || !all_plain(n.hx) || !all_plain(n.params) || is_followed(n)) {
    return Way::kSteps;
  }
  const bool grads = wants_gradient(n);
  // Random numbers and gradients are the device's own.
  if (takes(n)) return grads ? Way::kGradient : Way::kCalls;
  const bool on_cpu = n.cell == Cell::kLstm && !n.is_packed() && !(n.train && n.dropout != 0);
  return on_cpu && !grads ? Way::kCpu : Way::kSteps;
}

variable_list run_calls(const Network& n, Way way) {
  if (way == Way::kGradient) return run_network(n, /*grads=*/true);
  const BelowAutograd guard;
  return run_network(n, /*grads=*/false);
}

// The type of the results of a network that is computed in float32 and rounded at its end: its own
// half type, or autocast's; undefined for others.
at::ScalarType rounded_type(const Network& n) {
  const at::ScalarType type = n.input.scalar_type();
  const bool casts = at::autocast::is_autocast_enabled(kDeviceType);
  const auto fits = [&](const Tensor& t) {
    const at::ScalarType own = t.scalar_type();
    return own == type || (casts && (own == at::kFloat || is_half_type(own)));
  };
  if (!is_half_type(type) && !(casts && type == at::kFloat)) return at::ScalarType::Undefined;
  const bool fit = std::all_of(n.hx.begin(), n.hx.end(), fits) &&
                   std::all_of(n.params.begin(), n.params.end(), fits);
  if (!fit) return at::ScalarType::Undefined;
  return casts ? at::autocast::get_autocast_dtype(kDeviceType) : type;
}

// {output, states...} of a network of half types or under autocast; nothing where the library does
// not take it.
variable_list run_rounded(const Network& n) {
  if (!all_plain({n.input}) || !all_plain(n.hx) || !all_plain(n.params)) return {};
  const at::ScalarType type = rounded_type(n);
  if (type == at::ScalarType::Undefined) return {};
  const WithoutAutocast guard;
  const auto widened = [](at::TensorList list) {
    variable_list wide;
    for (const Tensor& t : list) wide.push_back(t.to(at::kFloat));
    return wide;
  };
  const Tensor input = n.input.to(at::kFloat);
  const variable_list hx = widened(n.hx), params = widened(n.params);
  const Network wide{n.cell,          input,         hx,           params,
                     n.has_biases,    n.num_layers,  n.dropout,    n.train,
                     n.bidirectional, n.batch_first, n.batch_sizes};
  const Way way = way_of(wide);
  if (way != Way::kCalls && way != Way::kGradient) return {};
  check_batch(n);
  variable_list results = run_calls(wide, way);
  for (Tensor& t : results) t = t.to(type);
  return results;
}

// All of an LSTM by oneDNN.
variable_list lstm_on_cpu(const Network& n) {
  const BelowAutograd guard;
  AliasScope scope;
  const OpenMpRegion region;
  const Tensor input = scope.to_cpu(n.input).detach();
  const std::vector<Tensor> hx = scope.to_cpu(n.hx), params = scope.to_cpu(n.params);
  auto [output, h, c] = at::lstm(input, hx, params, n.has_biases, n.num_layers, n.dropout, n.train,
                                 n.bidirectional, n.batch_first);
  return {scope.to_device(std::move(output)), scope.to_device(std::move(h)),
          scope.to_device(std::move(c))};
}

// An LSTM of bfloat16, given or by autocast, without gradients, on a processor whose instructions
// make oneDNN faster than our float32; nothing for others.
variable_list fast_lstm(const Network& n) {
  if (n.cell != Cell::kLstm || n.is_packed() || n.projects() || !has_bfloat16_tiles() ||
      rounded_type(n) != at::kBFloat16 || wants_gradient(n) || is_followed(n) ||
      (n.train && n.dropout != 0) || !all_plain({n.input}) || !all_plain(n.hx) ||
      !all_plain(n.params) || captures_otherwise("an LSTM of bfloat16")) {
    return {};
  }
  const auto narrow = [](const Tensor& t) {
    return at::autocast::cached_cast(at::kBFloat16, t, kDeviceType);
  };
  variable_list hx, params;
  const WithoutAutocast guard;
  const Tensor input = narrow(n.input);
  for (const Tensor& t : n.hx) hx.push_back(narrow(t));
  for (const Tensor& t : n.params) params.push_back(narrow(t));
  check_batch(n);
  return lstm_on_cpu({n.cell, input, hx, params, n.has_biases, n.num_layers, n.dropout, n.train,
                      n.bidirectional, n.batch_first});
}

// {output, states...}
variable_list run_recurrent(const Network& n) {
  // A mode sees nothing of what a kernel of the library does.
  if (C10_UNLIKELY(c10::impl::dispatch_mode_enabled())) return run_in_steps(n);
  if (variable_list r = fast_lstm(n); !r.empty()) return r;
  if (variable_list r = run_rounded(n); !r.empty()) return r;
  const Way way = at::autocast::is_autocast_enabled(kDeviceType) ? Way::kSteps : way_of(n);
  if (way == Way::kSteps) return run_in_steps(n);
  check_batch(n);
  return way == Way::kCpu ? lstm_on_cpu(n) : run_calls(n, way);
}

std::tuple<Tensor, Tensor, Tensor> run_lstm(const Network& n) {
  variable_list r = run_recurrent(n);
  return {std::move(r[0]), std::move(r[1]), std::move(r[2])};
}
std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, at::TensorList hx,
                                        at::TensorList params, bool has_biases, int64_t num_layers,
                                        double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  return run_lstm({Cell::kLstm, input, hx, params, has_biases, num_layers, dropout, train,
                   bidirectional, batch_first});
}
std::tuple<Tensor, Tensor, Tensor> packed_lstm(const Tensor& data, const Tensor& batch_sizes,
                                               at::TensorList hx, at::TensorList params,
                                               bool has_biases, int64_t num_layers, double dropout,
                                               bool train, bool bidirectional) {
  return run_lstm({Cell::kLstm, data, hx, params, has_biases, num_layers, dropout, train,
                   bidirectional, /*batch_first=*/false, batch_sizes});
}

// Networks with one state: GRUs and RNNs.
std::tuple<Tensor, Tensor> run_one_state(const Network& n) {
  variable_list r = run_recurrent(n);
  return {std::move(r[0]), std::move(r[1])};
}
template <Cell kCell>
std::tuple<Tensor, Tensor> network(const Tensor& input, const Tensor& hx, at::TensorList params,
                                   bool has_biases, int64_t num_layers, double dropout, bool train,
                                   bool bidirectional, bool batch_first) {
  return run_one_state({kCell, input, at::TensorList(hx), params, has_biases, num_layers, dropout,
                        train, bidirectional, batch_first});
}
template <Cell kCell>
std::tuple<Tensor, Tensor> packed_network(const Tensor& data, const Tensor& batch_sizes,
                                          const Tensor& hx, at::TensorList params, bool has_biases,
                                          int64_t num_layers, double dropout, bool train,
                                          bool bidirectional) {
  return run_one_state({kCell, data, at::TensorList(hx), params, has_biases, num_layers, dropout,
                        train, bidirectional, /*batch_first=*/false, batch_sizes});
}

void register_networks(torch::Library& m) {
  m.impl("lstm.input", TORCH_FN(lstm));
  m.impl("gru.input", &network<Cell::kGru>);
  m.impl("rnn_tanh.input", &network<Cell::kTanh>);
  m.impl("rnn_relu.input", &network<Cell::kRelu>);
  m.impl("lstm.data", TORCH_FN(packed_lstm));
  m.impl("gru.data", &packed_network<Cell::kGru>);
  m.impl("rnn_tanh.data", &packed_network<Cell::kTanh>);
  m.impl("rnn_relu.data", &packed_network<Cell::kRelu>);
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { hologram_torch::register_networks(m); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { hologram_torch::register_networks(m); }
