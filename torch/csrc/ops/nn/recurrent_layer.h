// SPDX-License-Identifier: MIT
// One layer of a recurrent network as calls of the library, with its gradient.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <tuple>

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
  bool has_biases;

  int64_t given() const { return has_biases ? 4 : 2; }
  int64_t directions() const { return static_cast<int64_t>(params.size()) / given(); }
  const at::Tensor& weight_ih(int64_t d) const { return params[static_cast<size_t>(d * given())]; }
  const at::Tensor& weight_hh(int64_t d) const {
    return params[static_cast<size_t>(d * given() + 1)];
  }
  at::Tensor bias(int64_t d, int64_t which) const {
    return has_biases ? params[static_cast<size_t>(d * given() + 2 + which)] : at::Tensor();
  }
};

struct LayerResult {
  at::Tensor output;                      // (steps, batch, directions * hidden)
  torch::autograd::variable_list finals;  // for each state, (directions, batch, hidden)
  torch::autograd::variable_list kept;    // for the gradient, two of each direction
};

// What PyTorch has for layers in steps.
using RecurrentSteps = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                          at::TensorList, bool, int64_t, double,
                                                          bool, bool, bool);
inline RecurrentSteps* const plain_gru = &at::native::gru;
inline RecurrentSteps* const plain_rnn_tanh = &at::native::rnn_tanh;
inline RecurrentSteps* const plain_rnn_relu = &at::native::rnn_relu;

// A layer over x (steps, batch, width), from states (directions, batch, hidden). Without `keeps`
// nothing is kept for the gradient.
LayerResult run_layer(const at::Tensor& x, const RecurrentParameters& layer, at::TensorList states,
                      bool keeps);

// {output, finals...} of a layer whose gradient is wanted: a node of the graph, with second
// derivatives step by step.
torch::autograd::variable_list differentiable_layer(const at::Tensor& x, at::TensorList states,
                                                    at::TensorList params, bool has_biases,
                                                    Cell cell);

}  // namespace hologram_torch
