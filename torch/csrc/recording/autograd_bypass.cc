// SPDX-License-Identifier: MIT
// Tells whether autograd has work for a tensor, and finds the kernels that stand before and after.
#include "recording/autograd_bypass.h"

#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "device/python_types.h"

namespace hologram_torch {

bool is_tracked_slowly(const at::Tensor& t) {
  return (c10::GradMode::is_enabled() && t.unsafeGetTensorImpl()->requires_grad()) ||
         carries_tangent(t);
}
bool carries_tangent(const at::Tensor& t) {
  const c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  return impl->autograd_meta() != nullptr && impl->_fw_grad(/*level=*/0, t).defined();
}

bool has_user_mode() {
  return c10::impl::dispatch_mode_enabled() &&
         c10::impl::TorchDispatchModeTLS::any_modes_set(/*skip_infra_modes=*/true);
}

bool is_watched_slowly(std::initializer_list<const at::Tensor*> tensors) {
  return has_user_mode() || std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor* t) {
           return t != nullptr && t->defined() && is_of_python(*t) && !is_traced(*t);
         });
}

namespace {

// What PyTorch before 2.14 tells of a kernel: how to call it with a stack.
template <class Kernel>
struct Boxed final : c10::OperatorKernel {
  explicit Boxed(Kernel kernel) : kernel(std::move(kernel)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    kernel.callBoxed(op, keys, stack);
  }
  Kernel kernel;
};

// Kernels are leaked: calls may come until the very end.
template <class Op>
const c10::KernelFunction* kernel_of(const Op& op, c10::DispatchKey key) {
  if constexpr (FindsKernels<Op>) {
    return new c10::KernelFunction(op.lookup(c10::DispatchKeySet(key)));
  } else if constexpr (requires { op.getComputedKernelForDispatchKey(key); }) {
    using Kernel = decltype(op.getComputedKernelForDispatchKey(key));
    return new c10::KernelFunction(c10::KernelFunction::makeFromBoxedFunctor(
        std::make_unique<Boxed<Kernel>>(op.getComputedKernelForDispatchKey(key))));
  } else {
    return nullptr;
  }
}

}  // namespace

const c10::KernelFunction* autograd_kernel_of(std::string_view name, c10::DispatchKey backend) {
  const c10::OperatorHandle op = find_aten(name);
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::Autograd)) return nullptr;
  return kernel_of(op, backend);
}

torch::Library& autograd_library() {
  static auto* const library = new torch::Library(
      torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  return *library;
}

}  // namespace hologram_torch
