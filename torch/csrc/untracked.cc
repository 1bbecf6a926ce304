// SPDX-License-Identifier: MIT
// See untracked.h.
#include "untracked.h"

namespace hologram_torch {

bool is_tracked_slowly(const at::Tensor& t) {
  return (c10::GradMode::is_enabled() && t.unsafeGetTensorImpl()->requires_grad()) ||
         carries_tangent(t);
}
bool carries_tangent(const at::Tensor& t) {
  const c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  return impl->autograd_meta() != nullptr && impl->_fw_grad(/*level=*/0, t).defined();
}

namespace {

// Null where PyTorch has no way to tell (2.11): its own way past autograd is all there is then.
template <class Op>
const c10::KernelFunction* kernel_of(const Op& op, c10::DispatchKeySet keys) {
  if constexpr (requires { op.lookup(keys); }) {
    return new c10::KernelFunction(op.lookup(keys));  // leaked: calls may come until the very end
  } else {
    return nullptr;
  }
}

}  // namespace

const c10::KernelFunction* autograd_kernel_of(std::string_view name, c10::DispatchKey backend) {
  const c10::OperatorHandle op = find_aten(name);
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::Autograd)) return nullptr;
  return kernel_of(op, c10::DispatchKeySet(backend));
}

torch::Library& autograd_library() {
  static auto* const library = new torch::Library(
      torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  return *library;
}

}  // namespace hologram_torch
