// SPDX-License-Identifier: MIT
// Autograd nodes of our own, and when a call may have one: what the code that PyTorch generates
// for its operators does, for operators that it does not know.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>
#include <utility>
#include <vector>

#include "recording/autograd_bypass.h"

namespace hologram_torch {

// Runs a function of ours as one op: autocast does not look at what it is made of.
template <class Function>
auto without_autocast(Function&& function) {
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::autocast_dispatch_keyset);
  return function();
}

// Whether nothing but autograd and a device stand in the way of an op on the tensor: no transform,
// mode, tangent or lazy element.
bool is_ordinary(const at::Tensor& t);

// The gradient of silu(x), with gradients of its own where those may be asked for: PyTorch's
// operator has none.
at::Tensor silu_gradient(const at::Tensor& grad, const at::Tensor& x);

// A node that keeps tensors.
class DerivedNode : public torch::autograd::Node {
 public:
  void release_variables() override;

 protected:
  // An input of the op; undefined ones, too.
  void save(const at::Tensor& t) { saved_.emplace_back(t, /*is_output=*/false); }
  // A result of the op, which holds the node: what is saved must not hold the result.
  void save_result(const at::Tensor& t) { saved_.emplace_back(t, /*is_output=*/true); }
  // In the order in which they were saved; throws PyTorch's error where they were released.
  std::vector<at::Tensor> unpack();

 private:
  // The node as its own gradient's function holds it.
  decltype(torch::autograd::Edge::function) own() {
#if HOLOGRAM_TORCH_MAJOR > 2 || HOLOGRAM_TORCH_MINOR >= 13
    return getptr();
#else
    return shared_from_this();
#endif
  }

  std::mutex saved_mutex_;
  std::vector<torch::autograd::SavedVariable> saved_;
};

// A node as this version of PyTorch owns them.
template <class Owned, class... Args>
auto make_node(Args&&... args) {
#if HOLOGRAM_TORCH_MAJOR > 2 || HOLOGRAM_TORCH_MINOR >= 13
  return c10::make_intrusive<Owned>(std::forward<Args>(args)...);
#else
  return std::shared_ptr<Owned>(new Owned(std::forward<Args>(args)...),
                                torch::autograd::deleteNode);
#endif
}

}  // namespace hologram_torch
