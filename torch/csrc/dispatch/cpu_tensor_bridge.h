// SPDX-License-Identifier: MIT
// Ops of the device on CPU tensors, whose memory is shared and not copied.
//
// While a CrossingGuard lives, PyTorch sees in every CPU tensor one of the dispatch key
// PrivateUse2 as well, which has no other use. Autograd's kernels are those of any device; below
// them a kernel of ours (cpu_tensor_bridge.cc) runs. It shows the device the tensors' bytes,
// runs the device's op and gives its result the CPU's name. So gradients of any order, tangents,
// errors and version counters are PyTorch's own, and every graph node is a CPU node: backward runs
// on the thread that asks for it. Nodes made by a crossing cross again in their backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace hologram_torch {

// The set this thread's dispatcher adds to every call, replaced for a scope.
class DispatchKeysGuard {
 public:
  explicit DispatchKeysGuard(c10::impl::LocalDispatchKeySet keys)
      : saved_(c10::impl::tls_local_dispatch_key_set()) {
    c10::impl::_force_tls_local_dispatch_key_set(keys);
  }
  ~DispatchKeysGuard() { c10::impl::_force_tls_local_dispatch_key_set(saved_); }
  DispatchKeysGuard(const DispatchKeysGuard&) = delete;
  DispatchKeysGuard& operator=(const DispatchKeysGuard&) = delete;

 private:
  c10::impl::LocalDispatchKeySet saved_;
};

// This thread's set with and without crossing.
c10::impl::LocalDispatchKeySet crossing_keys();
c10::impl::LocalDispatchKeySet direct_keys();

class CrossingGuard : DispatchKeysGuard {
 public:
  CrossingGuard() : DispatchKeysGuard(crossing_keys()) {}
};

// A dense tensor of the CPU's with nothing lazy about it.
bool can_cross(const at::Tensor& t);

// The memory of a CPU tensor as a tensor of the device, for ops that run at their calls. It keeps
// the storage and shares the count of its versions, but is unknown to autograd.
at::Tensor share_with_device(const at::Tensor& cpu);

// The memory of a tensor of the device as a CPU tensor. What is recorded on it has run. Takes the
// objects over where they have no other holder.
at::Tensor hand_to_host(at::Tensor ours);

}  // namespace hologram_torch
