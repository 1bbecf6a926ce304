// SPDX-License-Identifier: MIT
// One layer of a recurrent network as calls of the library, with its gradient.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>

namespace hologram_torch {

// What runs inside keeps its types.
struct WithoutAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{
      c10::DispatchKeySet(c10::DispatchKey::AutocastPrivateUse1)};
};

enum class Cell : uint8_t { kLstm, kGru, kTanh, kRelu };

inline int64_t gates_of(Cell cell) { return cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1; }
// Whether the cell has gates, whose values the gradient needs.
inline bool is_gated(Cell cell) { return gates_of(cell) > 1; }
// h, and c of an LSTM.
inline size_t states_of(Cell cell) { return cell == Cell::kLstm ? 2 : 1; }

// The weights and biases of a layer's directions, one after another.
struct RecurrentParameters {
  Cell cell;
  at::TensorList params;
  bool has_biases, projects;

  int64_t given() const { return (has_biases ? 4 : 2) + (projects ? 1 : 0); }
  int64_t directions() const { return static_cast<int64_t>(params.size()) / given(); }
  const at::Tensor& weight_ih(int64_t d) const { return params[static_cast<size_t>(d * given())]; }
  const at::Tensor& weight_hh(int64_t d) const {
    return params[static_cast<size_t>(d * given() + 1)];
  }
  at::Tensor bias(int64_t d, int64_t which) const {
    return has_biases ? params[static_cast<size_t>(d * given() + 2 + which)] : at::Tensor();
  }
  at::Tensor weight_hr(int64_t d) const {
    return projects ? params[static_cast<size_t>((d + 1) * given() - 1)] : at::Tensor();
  }
};

// How many sequences have each step, where they are packed; else both are undefined.
struct Packing {
  at::Tensor batch_sizes;  // as PyTorch has it, on the cpu
  at::Tensor sizes;        // on the device
};

struct LayerResult {
  at::Tensor output;                      // the rows of x, directions * columns of h wide
  torch::autograd::variable_list finals;  // for each state, (directions, batch, its columns)
  torch::autograd::variable_list kept;    // for the gradient, two of each direction
};

// A layer over x (steps, batch, width) or, packed, (rows, width), from states
// (directions, batch, columns). Without `keeps` nothing is kept for the gradient.
LayerResult run_layer(const at::Tensor& x, const Packing& packing, const RecurrentParameters& layer,
                      at::TensorList states, bool keeps);

// {output, finals...} of a layer whose gradient is wanted: a node of the graph, with second
// derivatives step by step.
torch::autograd::variable_list differentiable_layer(const at::Tensor& x, const Packing& packing,
                                                    const RecurrentParameters& layer,
                                                    at::TensorList states);

// What a call of a network names, as PyTorch's operators do.
struct Network {
  Cell cell;
  const at::Tensor& input;
  at::TensorList hx, params;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train, bidirectional, batch_first;
  at::Tensor batch_sizes = {};  // of packed sequences

  int64_t directions() const { return bidirectional ? 2 : 1; }
  bool is_packed() const { return batch_sizes.defined(); }
  // As PyTorch tells.
  bool projects() const {
    return cell == Cell::kLstm && hx.size() == 2 && hx[0].dim() == 3 && hx[1].dim() == 3 &&
           hx[0].size(2) != hx[1].size(2);
  }
  RecurrentParameters layer(int64_t i) const {
    RecurrentParameters own{cell, params, has_biases, projects()};
    const auto count = static_cast<size_t>(directions() * own.given());
    own.params = params.slice(static_cast<size_t>(i) * count, count);
    return own;
  }
};

// {output, states...} of a network step by step, as PyTorch has it for all devices but its cpu.
torch::autograd::variable_list run_in_steps(const Network& n);

}  // namespace hologram_torch
