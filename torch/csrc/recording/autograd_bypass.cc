// SPDX-License-Identifier: MIT
// Tells whether autograd has work for a tensor, and finds the kernels that stand before and after.
#include "recording/autograd_bypass.h"

#include <memory>
#include <utility>

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

// Kernels are leaked: calls may come until the very end. Before 2.14 there is none for the device,
// whose ops have PyTorch's own way past autograd, for a stack costs more than that.
template <class Op>
const c10::KernelFunction* kernel_of(const Op& op, c10::DispatchKey key) {
  if constexpr (requires { op.lookup(c10::DispatchKeySet(key)); }) {
    return new c10::KernelFunction(op.lookup(c10::DispatchKeySet(key)));
  } else if constexpr (requires { op.getComputedKernelForDispatchKey(key); }) {
    if (key == c10::DispatchKey::AutogradPrivateUse1) return nullptr;
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
