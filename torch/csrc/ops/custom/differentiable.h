// SPDX-License-Identifier: MIT
// Autograd for operators of the namespace hologram: the kernels that stand at its key.
#pragma once

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <vector>

#include "ops/custom/derived_node.h"

namespace hologram_torch {

template <Name kName, class Signature>
const c10::TypedOperatorHandle<Signature>& operator_of() {
  static const auto handle =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow(("hologram::" + std::string(kName.view())).c_str(), "")
          .template typed<Signature>();
  return handle;
}

namespace differentiable {

inline void collect(std::vector<at::Tensor>& list, const at::Tensor& t) { list.push_back(t); }
inline void collect(std::vector<at::Tensor>& list, const std::optional<at::Tensor>& t) {
  list.push_back(t.value_or(at::Tensor()));
}
template <class T>
void collect(std::vector<at::Tensor>&, const T&) {}

// The tensors among arguments, undefined where an optional one is absent.
template <class... Args>
std::vector<at::Tensor> tensors_of(const Args&... args) {
  std::vector<at::Tensor> list;
  list.reserve(sizeof...(Args));
  (collect(list, args), ...);
  return list;
}

inline bool any_tangent(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& t) { return t.defined() && carries_tangent(t); });
}
inline bool any_tracked(const std::vector<at::Tensor>& tensors) {
  return c10::GradMode::is_enabled() &&
         std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& t) { return t.defined() && t.requires_grad(); });
}

template <class PointerToNode>
void set_history_of(const at::Tensor& result, const PointerToNode& node) {
  torch::autograd::set_history(result, node);
}
template <class PointerToNode, class... Results>
void set_history_of(const std::tuple<Results...>& results, const PointerToNode& node) {
  std::apply([&](const auto&... t) { (torch::autograd::set_history(t, node), ...); }, results);
}

}  // namespace differentiable

// hologram::kName with one node of its own, a Node(tensors of the arguments, args...). Where
// the node does not know a gradient (Node::knows(args...)), and with tangents, kBody's steps have
// theirs.
template <Name kName, class Node, auto* kBody>
struct Differentiable;

template <Name kName, class Node, class Result, class... Args, Result (*kBody)(Args...)>
struct Differentiable<kName, Node, kBody> {
  static Result call(c10::DispatchKeySet keys, Args... args) {
    const std::vector<at::Tensor> tensors = differentiable::tensors_of(args...);
    const bool tracked = differentiable::any_tracked(tensors);
    if (C10_UNLIKELY(differentiable::any_tangent(tensors) || (tracked && !Node::knows(args...)))) {
      return kBody(args...);
    }
    Result result = [&] {
      const at::AutoDispatchBelowADInplaceOrView below;
      return operator_of<kName, Result(Args...)>().redispatch(keys & c10::after_autograd_keyset,
                                                              args...);
    }();
    if (tracked) {
      const auto node = make_node<Node>(tensors, args...);
      node->set_next_edges(torch::autograd::collect_next_edges(tensors));
      differentiable::set_history_of(result, node);
      // What is kept of results is kept as a result.
      if constexpr (requires { node->keep(result); }) node->keep(result);
    }
    return result;
  }
};

// An operator that computes gradients: differentiated again by its steps.
template <Name kName, auto* kBody>
struct ByItsSteps;

template <Name kName, class Result, class... Args, Result (*kBody)(Args...)>
struct ByItsSteps<kName, kBody> {
  static Result call(c10::DispatchKeySet keys, Args... args) {
    const std::vector<at::Tensor> tensors = differentiable::tensors_of(args...);
    if (differentiable::any_tracked(tensors) || differentiable::any_tangent(tensors)) {
      return kBody(args...);
    }
    const at::AutoDispatchBelowADInplaceOrView below;
    return operator_of<kName, Result(Args...)>().redispatch(keys & c10::after_autograd_keyset,
                                                            args...);
  }
};

}  // namespace hologram_torch
