// SPDX-License-Identifier: MIT
// Wraps the operators of other libraries so that their arguments are computed first.
#include "device/foreign_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "device/tensor.h"

namespace hologram_torch {

std::atomic<bool> g_operators_defined = false;

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using c10::OperatorHandle;
using c10::OperatorName;

struct ByName {
  bool operator()(const OperatorName& a, const OperatorName& b) const {
    return std::tie(a.name, a.overload_name) < std::tie(b.name, b.overload_name);
  }
};

// Not one of PyTorch's own namespaces, nor ours. One of PyTorch's that is missing here costs a
// little time, no more.
bool is_foreign(const std::string& name) {
  static const std::set<std::string, std::less<>> known = {"_c10d_functional",
                                                           "_c10d_functional_autograd",
                                                           "_dtensor",
                                                           "_native",
                                                           "_native_aot",
                                                           "_quantized",
                                                           "_test",
                                                           "aten",
                                                           "c10d",
                                                           "coor",
                                                           "debug_mode_ops",
                                                           "debugprims",
                                                           "export",
                                                           "flex_gemm",
                                                           "fsdp",
                                                           "hologram",
                                                           "inductor",
                                                           "inductor_prims",
                                                           "mkl",
                                                           "mkldnn",
                                                           "mkldnn_prepacked",
                                                           "onednn",
                                                           "prim",
                                                           "prims",
                                                           "profiler",
                                                           "quantization",
                                                           "quantized",
                                                           "rngprims",
                                                           "sparse",
                                                           "static_runtime",
                                                           "symm_mem"};
  return !known.contains(std::string_view(name).substr(0, name.find(':')));
}

// With the dispatcher's lock held: operators are noted, and looked at later.
class Listener final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const OperatorHandle& op) override {
    const OperatorName& name = op.operator_name();
    if (!is_foreign(name.name)) return;
    const std::lock_guard lock(mutex_);
    fresh_.insert(name);
    g_operators_defined.store(true, std::memory_order_relaxed);
  }
  void onOperatorDeregistered(const OperatorHandle& op) override {
    const std::lock_guard lock(mutex_);
    fresh_.erase(op.operator_name());
  }

  std::set<OperatorName, ByName> take() {
    const std::lock_guard lock(mutex_);
    g_operators_defined.store(false, std::memory_order_relaxed);
    return std::exchange(fresh_, {});
  }

 private:
  std::mutex mutex_;
  std::set<OperatorName, ByName> fresh_;
};

Listener* g_listener = nullptr;

void compute(const at::Tensor& t) {
  if (!t.defined() || !t.key_set().has_backend(c10::BackendComponent::PrivateUse1Bit)) return;
  const c10::Layout layout = t.layout();
  if (layout == c10::kSparse) {
    compute(t._indices());
    compute(t._values());
  } else if (layout == c10::kSparseCsr || layout == c10::kSparseBsr) {
    compute(t.crow_indices());
    compute(t.col_indices());
    compute(t.values());
  } else if (layout == c10::kSparseCsc || layout == c10::kSparseBsc) {
    compute(t.ccol_indices());
    compute(t.row_indices());
    compute(t.values());
  } else if (t.has_storage() && t.storage() && buffer_of(*t.storage().unsafeGetStorageImpl())) {
    const c10::StorageImpl& storage = *t.storage().unsafeGetStorageImpl();
    storage_bytes(storage);
  }
}

void compute_all(const IValue& value) {
  if (value.isTensor()) {
    compute(value.toTensor());
  } else if (value.isList()) {
    for (const IValue& element : value.toListRef()) compute_all(element);
  }
}

void compute_arguments(const OperatorHandle& op, const torch::jit::Stack& stack) {
  for (const IValue& value : torch::jit::last(stack, op.schema().arguments().size())) {
    compute_all(value);
  }
}

// Stands directly above the kernels of devices. Its key is in every call's set and has no other
// use for operators that take tensors.
void above_devices(const OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  compute_arguments(op, *stack);
  op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::BackendSelect),
                     stack);
}

// Stands before a kernel for all devices that differentiates by what it calls.
void above_composite(const OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  compute_arguments(op, *stack);
  op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
}

// Leaked on purpose: registrations last as long as the process.
torch::Library& library_of(const std::string& space, DispatchKey key) {
  static auto* const libraries =
      new std::map<std::pair<std::string, DispatchKey>, std::unique_ptr<torch::Library>>;
  std::unique_ptr<torch::Library>& library = (*libraries)[{space, key}];
  if (library == nullptr) {
    library =
        std::make_unique<torch::Library>(torch::Library::IMPL, space, key, __FILE__, __LINE__);
  }
  return *library;
}

void guard(const OperatorHandle& op) {
  const OperatorName& name = op.operator_name();
  const size_t colons = name.name.find("::");
  const std::string space = name.name.substr(0, colons);
  std::string local = name.name.substr(colons + 2);
  if (!name.overload_name.empty()) local += "." + name.overload_name;
  const auto has = [&](DispatchKey key) { return op.hasKernelForDispatchKey(key); };
  if (!has(DispatchKey::BackendSelect)) {
    library_of(space, DispatchKey::BackendSelect)
        .impl(local.c_str(), torch::CppFunction::makeFromBoxedFunction<&above_devices>());
  }
  if (has(DispatchKey::CompositeImplicitAutograd) && !has(DispatchKey::PrivateUse1) &&
      !has(DispatchKey::CompositeExplicitAutograd) && !has(DispatchKey::Autograd) &&
      !has(DispatchKey::AutogradPrivateUse1)) {
    library_of(space, DispatchKey::AutogradPrivateUse1)
        .impl(local.c_str(), torch::CppFunction::makeFromBoxedFunction<&above_composite>());
  }
}

struct Listen {
  Listen() {
    if (!kCanDefer) return;
    auto listener = std::make_unique<Listener>();
    g_listener = listener.get();
    // Leaked on purpose, as operators are defined for as long as there is a dispatcher.
    new c10::RegistrationHandleRAII(
        c10::Dispatcher::singleton().addRegistrationListener(std::move(listener)));
  }
} g_listen;

}  // namespace

void guard_foreign_operators() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (const OperatorName& name : g_listener->take()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (op.has_value() && op->hasSchema()) guard(*op);
  }
}

}  // namespace hologram_torch
