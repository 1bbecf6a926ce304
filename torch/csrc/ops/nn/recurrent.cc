// SPDX-License-Identifier: MIT
// Networks of recurrent layers: LSTMs, GRUs and RNNs, and which way each of them runs.
#include <ATen/FuncTorchTLS.h>
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/lstm_native.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <optional>

#include "device/openmp.h"
#include "dispatch/alias.h"
#include "dispatch/autograd_bypass.h"
#include "ops/nn/processor.h"
#include "ops/nn/recurrent_layer.h"

namespace hologram_torch {
namespace {

using at::Tensor;
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
      results = differentiable_layer(x, states, own, n.has_biases, n.cell);
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
variable_list run_rounded(const char* name, const Network& n) {
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
  const Network wide{n.cell,       input,     hx,      params,          n.has_biases,
                     n.num_layers, n.dropout, n.train, n.bidirectional, n.batch_first};
  const Way way = way_of(wide);
  if (way != Way::kCalls && way != Way::kGradient) return {};
  check_batch(name, n);
  variable_list results = run_calls(wide, way);
  for (Tensor& t : results) t = t.to(type);
  return results;
}

// All of an LSTM by oneDNN.
std::tuple<Tensor, Tensor, Tensor> lstm_on_cpu(const Network& n) {
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
// make oneDNN faster than our float32.
std::optional<std::tuple<Tensor, Tensor, Tensor>> fast_lstm(const Network& n) {
  if (!has_bfloat16_tiles() || rounded_type(n) != at::kBFloat16 || wants_gradient(n) ||
      hologram::is_capturing_graph() || is_followed(n) || (n.train && n.dropout != 0) ||
      !all_plain({n.input}) || !all_plain(n.hx) || !all_plain(n.params)) {
    return std::nullopt;
  }
  const auto narrow = [](const Tensor& t) {
    return at::autocast::cached_cast(at::kBFloat16, t, kDeviceType);
  };
  variable_list hx, params;
  const WithoutAutocast guard;
  const Tensor input = narrow(n.input);
  for (const Tensor& t : n.hx) hx.push_back(narrow(t));
  for (const Tensor& t : n.params) params.push_back(narrow(t));
  check_batch("lstm", n);
  return lstm_on_cpu({n.cell, input, hx, params, n.has_biases, n.num_layers, n.dropout, n.train,
                      n.bidirectional, n.batch_first});
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, at::TensorList hx,
                                        at::TensorList params, bool has_biases, int64_t num_layers,
                                        double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  const Network n{Cell::kLstm, input,   hx,    params,        has_biases,
                  num_layers,  dropout, train, bidirectional, batch_first};
  if (auto found = fast_lstm(n); found.has_value()) return std::move(*found);
  if (variable_list r = run_rounded("lstm", n); !r.empty()) {
    return {std::move(r[0]), std::move(r[1]), std::move(r[2])};
  }
  const Way way = at::autocast::is_autocast_enabled(kDeviceType) ? Way::kSteps : way_of(n);
  if (way == Way::kSteps) {
    return at::native::lstm(input, hx, params, has_biases, num_layers, dropout, train,
                            bidirectional, batch_first);
  }
  check_batch("lstm", n);
  if (way != Way::kCpu) {
    variable_list r = run_calls(n, way);
    return {std::move(r[0]), std::move(r[1]), std::move(r[2])};
  }
  return lstm_on_cpu(n);
}

// Networks with one state: GRUs and RNNs.
template <Cell kCell, RecurrentSteps* const* kSteps>
std::tuple<Tensor, Tensor> network(const Tensor& input, const Tensor& hx, at::TensorList params,
                                   bool has_biases, int64_t num_layers, double dropout, bool train,
                                   bool bidirectional, bool batch_first) {
  const Network n{kCell,   input, at::TensorList(hx), params,     has_biases, num_layers,
                  dropout, train, bidirectional,      batch_first};
  constexpr const char* kNames[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
  const char* const name = kNames[static_cast<int>(kCell)];
  if (variable_list r = run_rounded(name, n); !r.empty()) return {std::move(r[0]), std::move(r[1])};
  const Way way = at::autocast::is_autocast_enabled(kDeviceType) ? Way::kSteps : way_of(n);
  if (way == Way::kSteps || way == Way::kCpu) {
    return (*kSteps)(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
                     batch_first);
  }
  check_batch(name, n);
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
