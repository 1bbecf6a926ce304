// SPDX-License-Identifier: MIT
// Shares the memory of CPU tensors with the device, both ways, and registers the ops that do so.
#include "dispatch/cpu_tensor_bridge.h"

#include <ATen/Operators.h>
#include <ATen/ops/linear_native.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>

#include "host/alias.h"
#include "recording/autograd_bypass.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::StorageImpl;
using c10::TensorImpl;
using c10::impl::LocalDispatchKeySet;

constexpr DispatchKeySet kCrossing(DispatchKey::PrivateUse2);

LocalDispatchKeySet without_crossing(LocalDispatchKeySet keys) {
  // Backends are taken out one by one: a difference of sets keeps them.
  keys.included_ = keys.included_.remove(DispatchKey::Dense)
                       .remove_backend(c10::BackendComponent::PrivateUse2Bit);
  return keys;
}

// Where the device's kernels run: below autograd, and their own ops do not cross.
LocalDispatchKeySet device_keys() {
  LocalDispatchKeySet keys = direct_keys();
  keys.excluded_ = keys.excluded_ | c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  return keys;
}

// --- Backward ----------------------------------------------------------------------------------

// A node's derivative is computed between these. Where it throws, the engine puts the thread's
// keys back itself, as after every node.
struct Enter final : torch::autograd::FunctionPreHook {
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& grads) override {
    // Sparse gradients and those that are subclasses are left to PyTorch.
    if (std::all_of(grads.begin(), grads.end(),
                    [](const Tensor& t) { return !t.defined() || can_cross(t); })) {
      c10::impl::_force_tls_local_dispatch_key_set(crossing_keys());
    }
    return grads;
  }
  // A compiled backward is left to the compiler.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {}
};
struct Leave final : torch::autograd::FunctionPostHook {
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    c10::impl::_force_tls_local_dispatch_key_set(direct_keys());
    return outputs;
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {}
};

// Makes the node that has just been made for a result cross in its backward.
void cross_backward(const Tensor& result) {
  if (!result.defined()) return;
  // The node of what is written through a view is not the op's.
  auto* meta = torch::autograd::impl::get_autograd_meta(result);
  if (meta == nullptr || meta->is_view_ || meta->grad_fn_.get() == nullptr) return;
  torch::autograd::Node& node = *meta->grad_fn_;
  node.add_pre_hook(std::make_unique<Enter>());
  node.add_post_hook(std::make_unique<Leave>());
}
// Of several results one node: the first is always differentiable.
template <class... Rest>
void cross_backward(const std::tuple<Tensor, Rest...>& results) {
  cross_backward(std::get<0>(results));
}

// --- Forward -----------------------------------------------------------------------------------

// The arguments and results of one op.
class Crossing {
 public:
  // A number stays on the CPU: every op takes one from there.
  const Tensor& over(const Tensor& t) {
    if (!t.defined() || t.unsafeGetTensorImpl()->is_wrapped_number()) return t;
    if (C10_UNLIKELY(!can_cross(t))) {
      // A CPU kernel would use an address of any device as its own.
      TORCH_CHECK(t.device().is_cpu(),
                  "Expected all tensors to be on the same device, but found at least two devices, "
                  "cpu and ",
                  t.device(), "!");
      possible_ = false;
      return t;
    }
    crossed_ = true;
    return kept_.emplace_back(share_with_device(t));
  }
  std::optional<Tensor> over(const std::optional<Tensor>& t) {
    return t.has_value() ? std::optional<Tensor>(over(*t)) : std::nullopt;
  }
  template <class T>
  const T& over(const T& other) {
    return other;
  }

  // Whether the device can be asked; for numbers alone PyTorch is.
  bool is_possible() const { return possible_ && crossed_; }

  static Tensor back(Tensor result) { return hand_to_host(std::move(result)); }
  template <class... Tensors>
  static std::tuple<Tensors...> back(std::tuple<Tensors...> results) {
    return std::apply(
        [](auto&&... each) { return std::tuple<Tensors...>(back(std::move(each))...); },
        std::move(results));
  }

 private:
  // References into it are handed out, so it may not move: no op has more tensors.
  static constexpr size_t kMost = 6;
  struct Kept {
    Tensor list[kMost];
    size_t count = 0;
    const Tensor& emplace_back(Tensor t) {
      TORCH_INTERNAL_ASSERT(count < kMost);
      return list[count++] = std::move(t);
    }
  } kept_;
  bool possible_ = true;
  bool crossed_ = false;
};

template <class Op, class Signature = typename Op::schema>
struct Kernels;

// An op that makes its results.
template <class Op, class Return, class... Args>
struct Kernels<Op, Return(Args...)> {
  static Return dense(Args... args) {
    Crossing crossing;
    return with(crossing, args..., crossing.over(args)...);
  }

  static Return autograd(DispatchKeySet keys, Args... args) {
    if (C10_LIKELY(is_untracked(keys, args...))) return dense(args...);
    if constexpr (std::is_same_v<Op, at::_ops::linear>) {
      // PyTorch differentiates it as a whole backwards only.
      if ((carries_tangent(args) || ...)) return at::native::linear(args...);
    }
    Return result = kernel->template call<Return, Args...>(*handle, keys, args...);
    cross_backward(result);
    return result;
  }

  static inline const c10::KernelFunction* kernel = nullptr;
  static inline const c10::OperatorHandle* handle = nullptr;

 private:
  template <class... Overs>
  static Return with(const Crossing& crossing, Args... args, const Overs&... overs) {
    if (C10_UNLIKELY(!crossing.is_possible())) {
      return Op::redispatch(DispatchKeySet(DispatchKey::CPU), args...);
    }
    const DispatchKeysGuard guard(device_keys());
    return Crossing::back(Op::redispatch(DispatchKeySet(DispatchKey::PrivateUse1), overs...));
  }
};

torch::Library& autograd_crossings() {
  static auto* const library = new torch::Library(
      torch::Library::IMPL, "aten", DispatchKey::AutogradPrivateUse2, __FILE__, __LINE__);
  return *library;
}

// Registers the device's op as the kernel of a CPU tensor's op while it crosses.
template <class Op>
void cross(torch::Library& library) {
  using Ours = Kernels<Op>;
  std::string name(Op::name);
  name = name.substr(std::string_view("aten::").size());
  const std::string overload(Op::overload_name);
  if (!overload.empty()) name += "." + overload;
  library.impl(name.c_str(), kernel_function<&Ours::dense>());
  // Only now: autograd takes a composite whole where a device has a kernel of its own.
  Ours::kernel = autograd_kernel_of(name, DispatchKey::AutogradPrivateUse2);
  if (Ours::kernel == nullptr) return;
  Ours::handle = new c10::OperatorHandle(find_aten(name));
  autograd_crossings().impl(name.c_str(), kernel_function<&Ours::autograd>());
}

template <class... Ops>
void cross_all(torch::Library& library) {
  (cross<Ops>(library), ...);
}

// Autograd's.
const c10::KernelFunction* g_relu_in_place = nullptr;

// relu_ writes the caller's own memory.
Tensor& relu_in_place(Tensor& self) {
  if (C10_UNLIKELY(!can_cross(self))) {
    return at::_ops::relu_::redispatch(DispatchKeySet(DispatchKey::CPU), self);
  }
  // Not the way for reading: a storage may be shared until it is written.
  if (self.nbytes() != 0) self.mutable_data_ptr();
  Tensor shared = share_with_device(self);
  const DispatchKeysGuard guard(device_keys());
  at::_ops::relu_::redispatch(DispatchKeySet(DispatchKey::PrivateUse1), shared);
  return self;
}
Tensor& relu_in_place_autograd(DispatchKeySet keys, Tensor& self) {
  static const c10::OperatorHandle handle = find_aten("relu_");
  g_relu_in_place->call<Tensor&, Tensor&>(handle, keys, self);
  cross_backward(self);
  return self;
}

// An operator of the namespace hologram, as PyTorch has its own.
struct LinearInt4 {
  using schema = Tensor(const Tensor&, const Tensor&, const Tensor&);
  static Tensor redispatch(DispatchKeySet keys, const Tensor& input, const Tensor& weight,
                           const Tensor& scale_and_zero) {
    static const auto handle =
        c10::Dispatcher::singleton().findSchemaOrThrow("hologram::linear_int4", "").typed<schema>();
    return handle.redispatch(keys, input, weight, scale_and_zero);
  }
};

// Any other op is the CPU's own.
void stay(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack);
}

}  // namespace

LocalDispatchKeySet crossing_keys() {
  LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  keys.included_ = keys.included_ | kCrossing;
  return keys;
}
LocalDispatchKeySet direct_keys() {
  return without_crossing(c10::impl::tls_local_dispatch_key_set());
}

bool can_cross(const Tensor& t) {
  return has_exactly(t.unsafeGetTensorImpl()->key_set(), DispatchKey::CPU) &&
         t.layout() == c10::kStrided;
}

Tensor share_with_device(const Tensor& cpu) {
  const TensorImpl* from = cpu.unsafeGetTensorImpl();
  StorageImpl* storage = from->unsafe_storage().unsafeGetStorageImpl();
  void* const bytes = const_cast<void*>(storage->data());
  c10::raw::intrusive_ptr::incref(storage);
  // Readers of this memory do not ask first, so the storage is not watched: nothing waits on it.
  auto shared = c10::make_intrusive<Pooled<StorageImpl, PlaceKind::kStorage>>(
      StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(storage->nbytes())),
      c10::DataPtr(bytes, static_cast<c10::intrusive_ptr_target*>(storage), &release_storage,
                   device()),
      device_allocator(), /*resizable=*/false);
  auto impl = make_impl(std::move(shared), from->dtype());
  impl->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  return Tensor(std::move(impl));
}

Tensor hand_to_host(Tensor ours) {
  if (!ours.defined() || !is_ours(ours)) return ours;
  TensorImpl* impl = ours.unsafeGetTensorImpl();
  const c10::Storage& storage = impl->unsafe_storage();
  StorageImpl* s = storage.unsafeGetStorageImpl();
  if (C10_LIKELY(ours.use_count() == 1 && storage.use_count() == 1 && is_dense(ours) &&
                 is_on_host(ours) && impl->allow_tensor_metadata_change() &&
                 !impl->is_wrapped_number())) {
    if (s->nbytes() != 0) storage_bytes(*s);
#if HOLOGRAM_CAN_DEFER
    s->clear_materializer();
#endif
    s->_mutable_data_ptr_no_checks().unsafe_set_device(kCpu);
    s->set_allocator(alias_allocator());
    impl->_change_backend_component_keys(kCpu);
    impl->set_storage_keep_dtype(c10::Storage(storage));
    return ours;
  }
  AliasScope scope;
  return scope.to_cpu(ours);
}

}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(_, PrivateUse2, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&hologram_torch::stay>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  using namespace hologram_torch;
  namespace op = at::_ops;
  cross_all<op::add_Tensor, op::sub_Tensor, op::mul_Tensor, op::div_Tensor, op::minimum,
            op::maximum, op::abs, op::neg, op::relu, op::clamp, op::clamp_Tensor, op::clamp_min,
            op::clamp_max, op::sigmoid, op::tanh, op::gelu, op::_softmax, op::_log_softmax>(m);
  cross_all<op::threshold_backward, op::sigmoid_backward, op::tanh_backward, op::gelu_backward,
            op::_softmax_backward_data, op::_log_softmax_backward_data, op::sum,
            op::sum_dim_IntList>(m);
  cross_all<op::linear, op::linear_backward, op::mm, op::addmm, op::bmm, op::mv, op::dot,
            op::_weight_int8pack_mm>(m);
  cross_all<op::mse_loss, op::mse_loss_backward, op::binary_cross_entropy,
            op::binary_cross_entropy_backward, op::nll_loss_forward, op::nll_loss_backward,
            op::nll_loss2d_forward, op::nll_loss2d_backward>(m);
  m.impl("relu_", kernel_function<&relu_in_place>());
  g_relu_in_place = autograd_kernel_of("relu_", c10::DispatchKey::AutogradPrivateUse2);
  if (g_relu_in_place != nullptr) {
    autograd_crossings().impl("relu_", kernel_function<&relu_in_place_autograd>());
  }
}

TORCH_LIBRARY_IMPL(hologram, PrivateUse2, m) {
  using namespace hologram_torch;
  m.impl("linear_int4", kernel_function<&Kernels<LinearInt4>::dense>());
}
