// SPDX-License-Identifier: MIT
// The way past autograd: where it has nothing to do for a call, the op is computed at once.
//
// Autograd's kernel looks at every operand, sets guards and dispatches again, which costs as much
// as recording the op. Ours stands before it, computes where neither a gradient nor a tangent is
// asked for, and hands over to it otherwise.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>

#include <initializer_list>

#include "recording/native_common.h"

namespace hologram_torch {

// Whatever may stand between autograd's keys and our kernels, in-place bookkeeping excepted:
// modes and subclasses written in Python, functionalization, lazy conjugates...
inline constexpr c10::DispatchKeySet kBetween =
    (c10::after_autograd_keyset -
     c10::DispatchKeySet({c10::DispatchKey::Dense, c10::DispatchKey::ADInplaceOrView})) &
    c10::DispatchKeySet(c10::DispatchKeySet::RAW, ~c10::full_backend_mask);

// Of a tensor with autograd's data.
[[gnu::noinline]] bool is_tracked_slowly(const at::Tensor& t);

inline bool is_tracked(const at::Tensor& t) {
  return C10_UNLIKELY(t.unsafeGetTensorImpl()->autograd_meta() != nullptr) && is_tracked_slowly(t);
}
inline bool is_tracked(const std::optional<at::Tensor>& t) {
  return t.has_value() && is_tracked(*t);
}
template <class T>
bool is_tracked(const T&) {
  return false;
}

// Whether forward-mode differentiation follows the tensor.
[[gnu::noinline]] bool carries_tangent(const at::Tensor& t);
inline bool carries_tangent(const std::optional<at::Tensor>& t) {
  return t.has_value() && t->defined() && carries_tangent(*t);
}

// Whether a mode that is no part of a trace sees the operators that this thread calls.
bool has_user_mode();

[[gnu::noinline]] bool is_watched_slowly(std::initializer_list<const at::Tensor*> tensors);
inline const at::Tensor* tensor_of(const at::Tensor& t) { return &t; }
inline const at::Tensor* tensor_of(const std::optional<at::Tensor>& t) {
  return t.has_value() ? &*t : nullptr;
}

// Whether a user's mode or subclass of tensors sees what autograd calls. It then sees the operators
// that it would see on cpu and CUDA, so an op that the device keeps whole is composed as PyTorch
// composes it. Traces see the device's own operators. keys: of a call that has come to autograd.
template <class... Tensors>
bool is_watched(c10::DispatchKeySet keys, const Tensors&... tensors) {
  return C10_UNLIKELY(keys.has(c10::DispatchKey::Python)) &&
         is_watched_slowly({tensor_of(tensors)...});
}

// keys: of a call that has come to autograd.
template <class... Args>
bool is_untracked(c10::DispatchKeySet keys, const Args&... args) {
  return C10_LIKELY(!keys.has_any(kBetween)) && !(is_tracked(args) || ...);
}

// Whether PyTorch gives a kernel that is called without a stack, which it does from 2.14 on.
template <class Op>
concept FindsKernels = requires(const Op& op) {
  op.lookup(c10::DispatchKeySet());
};

// Autograd's own kernel of aten::name for a backend; null where the op has none.
const c10::KernelFunction* autograd_kernel_of(
    std::string_view name, c10::DispatchKey backend = c10::DispatchKey::AutogradPrivateUse1);

// Where kernels are registered that stand before autograd's.
torch::Library& autograd_library();

template <Name kName>
const c10::KernelFunction* autograd_kernel() {
  static const c10::KernelFunction* const kernel = autograd_kernel_of(kName.view());
  return kernel;
}

template <Name kName, class Return, class... Args>
Return call_autograd(c10::DispatchKeySet keys, Args... args) {
  return autograd_kernel<kName>()->template call<Return, Args...>(aten_handle<kName>(), keys,
                                                                  std::forward<Args>(args)...);
}

// What autograd's neighbour does after an op that writes.
inline void count_write(c10::DispatchKeySet keys, const at::Tensor& t) {
  if (keys.has(c10::DispatchKey::ADInplaceOrView)) t.unsafeGetTensorImpl()->bump_version();
}

// kFunction stands before autograd's kernel of aten::kName. Where it computes, nothing tells the
// dispatcher to stay below autograd: it must not call the dispatcher, or set that guard itself.
template <Name kName, auto* kFunction>
void register_before_autograd() {
  // Autograd's kernel is looked up before ours takes its place.
  if (autograd_kernel<kName>() == nullptr) return;
  autograd_library().impl(std::string(kName.view()).c_str(), kernel_function<kFunction>());
}

// register_before_autograd() of a function that only saves time. Before PyTorch 2.14 it would save
// none: a call of autograd's kernel with a stack costs more than PyTorch's own way past autograd.
template <Name kName, auto* kFunction>
void register_untracked() {
  if constexpr (FindsKernels<c10::OperatorHandle>) register_before_autograd<kName, kFunction>();
}

// A function that computes a new tensor, and may call the dispatcher, before autograd.
template <Name kName, auto* kFunction>
struct Untracked;

template <Name kName, class... Args, at::Tensor (*kFunction)(Args...)>
struct Untracked<kName, kFunction> {
  static at::Tensor call(c10::DispatchKeySet keys, Args... args) {
    if (C10_LIKELY(is_untracked(keys, args...))) {
      const at::AutoDispatchBelowADInplaceOrView below;
      return kFunction(std::forward<Args>(args)...);
    }
    return call_autograd<kName, at::Tensor, Args...>(keys, std::forward<Args>(args)...);
  }
};

// Registers the function as the device's kernel, and before autograd's.
template <Name kName, auto* kFunction>
void register_functional(torch::Library& library) {
  register_native<kFunction>(library, kName.view());
  register_untracked<kName, &Untracked<kName, kFunction>::call>();
}

}  // namespace hologram_torch
