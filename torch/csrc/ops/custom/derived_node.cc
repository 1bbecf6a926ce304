// SPDX-License-Identifier: MIT
// See derived_node.h.
#include "ops/custom/derived_node.h"

namespace hologram_torch {
namespace {

// Keys that stand before an op on a tensor without anything being asked of it.
const uint64_t kOrdinaryKeys =
    (c10::DispatchKeySet({c10::DispatchKey::Dense, c10::DispatchKey::ADInplaceOrView,
                          c10::DispatchKey::BackendSelect}) |
     c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset)
        .raw_repr() |
    c10::full_backend_mask;

}  // namespace

bool is_ordinary(const at::Tensor& t) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const c10::DispatchKeySet keys = (t.key_set() | local.included_) - local.excluded_;
  return (keys.raw_repr() & ~kOrdinaryKeys) == 0 && t.layout() == at::kStrided &&
         !carries_tangent(t);
}

at::Tensor silu_gradient(const at::Tensor& grad, const at::Tensor& x) {
  if (C10_LIKELY(!c10::GradMode::is_enabled())) return at::silu_backward(grad, x);
  const at::Tensor sigmoid = at::sigmoid(x);
  return at::mul(grad, at::mul(sigmoid, at::add(at::mul(x, at::rsub(sigmoid, 1)), 1)));
}

void DerivedNode::release_variables() {
  const std::lock_guard lock(saved_mutex_);
  for (torch::autograd::SavedVariable& t : saved_) t.reset_data();
}

std::vector<at::Tensor> DerivedNode::unpack() {
  const std::lock_guard lock(saved_mutex_);
  std::vector<at::Tensor> tensors;
  tensors.reserve(saved_.size());
  for (const torch::autograd::SavedVariable& t : saved_) tensors.push_back(t.unpack(own()));
  return tensors;
}

}  // namespace hologram_torch
