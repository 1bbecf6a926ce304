// SPDX-License-Identifier: MIT
// Runs the CPU's kernel of an op on aliases: one pass over the arguments that the schema names.
#include "host/fallback.h"

#include <ATen/core/List.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "device/generator.h"
#include "device/openmp.h"
#include "hologram/trace.h"
#include "host/alias.h"
#include "host/op_info.h"
#include "host/wider_dtypes.h"

namespace hologram_torch {
namespace {

using c10::DispatchKey;
using c10::IValue;
using torch::jit::Stack;

[[noreturn]] void mixed_devices(const OpInfo& info, c10::Device ours, c10::Device other) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              ours, " and ", other, "! (when checking arguments of ", info.name, ")");
}

[[noreturn]] void no_cpu_kernel(const OpInfo& info, DispatchKey key) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "Could not run '", info.name,
      "' with arguments from the 'hologram' backend: it has "
      "neither a kernel of its own for this device nor a ",
      key, " kernel to fall back to. hologram_torch runs every operator that PyTorch's cpu runs.");
}

std::atomic<bool> g_forbidden{false};

[[noreturn]] void forbidden(const OpInfo& info) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, info.name,
      " has no kernel of its own for these arguments on the 'hologram' device, and "
      "HOLOGRAM_FALLBACK=error forbids the fallback to PyTorch's cpu kernel; set "
      "HOLOGRAM_FALLBACK to 'allow', or unset it, to let that run");
}

// Replaces the arguments of one call and remembers what they were.
class FallbackCall {
 public:
  FallbackCall(const OpInfo& info, Stack* stack)
      : info_(info), stack_(stack), begin_(stack->size() - info.arity) {}

  void swap_arguments() {
    for (const ArgInfo& arg : info_.args) {
      IValue& value = (*stack_)[begin_ + arg.index];
      switch (arg.kind) {
        case ArgKind::kTensor:
          if (value.isTensor()) swap_tensor(arg, value);
          break;
        case ArgKind::kTensorList:
          if (value.isTensorList()) {
            swap_list(arg, value);
          } else if (value.isList()) {
            swap_optional_list(arg, value);
          }
          break;
        case ArgKind::kDevice:
          if (value.isDevice()) {
            if (value.toDevice().type() == kDeviceType) {
              scope_.set_index(index_of(value.toDevice()));
              value = c10::Device(c10::DeviceType::CPU);
            } else {
              stays_ = true;
            }
          }
          break;
        case ArgKind::kGenerator:
          if (info_.seeded || value.isGenerator()) {
            std::optional<at::Generator> given;
            if (value.isGenerator()) given = value.toGenerator();
            value = derived_cpu_generator(given);
          }
          break;
        case ArgKind::kDtype:
          break;  // widen_arguments() looks at it
      }
    }
    // Only now is it known that something else is ours.
    if (stranger_ != nullptr) mixed_devices(info_, device(index_), *stranger_);
    if (!scope_.has_index()) scope_.set_index(index_of({}));
  }

  // After swap_arguments(): what the CPU's kernel does not know becomes wider.
  void widen_arguments() {
    const BelowAutograd guard;
    if (!widening_.emplace(info_).widen_arguments(stack_)) widening_.reset();
  }

  // Before restore_results().
  void narrow_results() {
    if (C10_LIKELY(!widening_.has_value())) return;
    const BelowAutograd guard;
    widening_->narrow_results(stack_);
  }

  void restore_results() {
    for (const Kept& kept : kept_) {
      if (!kept.arg->written) continue;
      if (kept.alias.isTensor()) {
        scope_.adopt_changes(kept.original.toTensor(), kept.alias.toTensor());
      } else {
        const c10::List<at::Tensor> originals = kept.original.toTensorList();
        const c10::List<at::Tensor> aliases = kept.alias.toTensorList();
        for (size_t i = 0; i < originals.size(); ++i) {
          const at::Tensor& original = originals.get(i);
          if (original.defined() && is_ours(original)) {
            scope_.adopt_changes(original, aliases.get(i));
          }
        }
      }
    }
    scope_.write_back();
    const size_t count = info_.returns.size();
    const size_t begin = stack_->size() - count;
    for (size_t i = 0; i < count; ++i) {
      IValue& value = (*stack_)[begin + i];
      if (const IValue* original = handed_back(info_.returns[i])) {
        value = *original;
      } else if (value.isTensor()) {
        convert(value);
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list = value.toTensorList();
        for (size_t k = 0; k < list.size(); ++k) list.set(k, result(list.extract(k)));
      } else if (value.isList()) {
        c10::List<IValue> list = value.toList();
        for (size_t k = 0; k < list.size(); ++k) {
          IValue element = list.extract(k);
          if (element.isTensor()) convert(element);
          list.set(k, std::move(element));
        }
      }
    }
  }

 private:
  struct Kept {
    const ArgInfo* arg;
    IValue original;
    IValue alias;
  };

  // Whether t is to be aliased; notes tensors of other devices.
  bool is_argument_ours(const ArgInfo& arg, const at::Tensor& t) {
    if (!t.defined()) return false;
    if (is_ours(t)) {
      const c10::DeviceIndex index = t.device().index();
      if (index_ < 0) index_ = index;
      if (C10_LIKELY(index == index_)) return true;
      stranger_storage_ = t.device();
      stranger_ = &stranger_storage_;
      return false;
    }
    if (arg.cpu_fine && t.is_cpu()) return false;
    // A number on the CPU may stand beside tensors of any device, but not be written.
    if (t.is_cpu() && t.dim() == 0 && !arg.written) return false;
    if (stranger_ == nullptr) {
      stranger_storage_ = t.device();
      stranger_ = &stranger_storage_;
    }
    return false;
  }

  void swap_tensor(const ArgInfo& arg, IValue& value) {
    const at::Tensor& t = value.toTensor();
    if (!is_argument_ours(arg, t)) return;
    if (hologram::is_capturing_graph()) cannot_capture(info_.name.c_str());
    // Arguments that are one tensor stay one: kernels refuse to resize an output that they read.
    IValue alias = known_alias(t);
    if (alias.isNone()) alias = scope_.to_cpu(t);
    kept_.push_back({&arg, std::move(value), alias});
    value = std::move(alias);
  }

  // What stands for a tensor that came up before, by itself or in a list; else none.
  IValue known_alias(const at::Tensor& t) const {
    for (const Kept& kept : kept_) {
      if (kept.original.isTensor() && kept.original.toTensor().is_same(t)) return kept.alias;
    }
    for (const auto& [alias, original] : originals_) {
      if (original.is_same(t)) {
        return at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(alias));
      }
    }
    return {};
  }

  void swap_list(const ArgInfo& arg, IValue& value) {
    const c10::List<at::Tensor> list = value.toTensorList();
    c10::List<at::Tensor> aliases;
    aliases.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      at::Tensor t = list.get(i);
      if (is_argument_ours(arg, t)) {
        at::Tensor alias = scope_.to_cpu(t);
        originals_.emplace_back(alias.unsafeGetTensorImpl(), std::move(t));
        aliases.push_back(std::move(alias));
      } else {
        aliases.push_back(std::move(t));
      }
    }
    IValue replaced(std::move(aliases));
    kept_.push_back({&arg, std::move(value), replaced});
    value = std::move(replaced);
  }

  void swap_optional_list(const ArgInfo& arg, IValue& value) {
    const c10::ArrayRef<IValue> list = value.toListRef();
    c10::List<std::optional<at::Tensor>> aliases;
    aliases.reserve(list.size());
    for (const IValue& element : list) {
      if (element.isTensor()) {
        const at::Tensor& t = element.toTensor();
        aliases.push_back(is_argument_ours(arg, t) ? scope_.to_cpu(t) : t);
      } else {
        aliases.push_back(std::nullopt);
      }
    }
    IValue replaced(std::move(aliases));
    kept_.push_back({&arg, std::move(value), replaced});
    value = std::move(replaced);
  }

  const IValue* handed_back(int16_t arg) const {
    if (arg < 0) return nullptr;
    for (const Kept& kept : kept_) {
      if (kept.arg->index == arg) return &kept.original;
    }
    return nullptr;
  }

  void convert(IValue& value) { value = result(std::move(value).toTensor()); }

  at::Tensor result(at::Tensor t) {
    if (!t.defined()) return t;
    // A kernel that returns its argument itself returns the caller's tensor.
    for (const Kept& kept : kept_) {
      if (kept.alias.isTensor() && kept.alias.toTensor().is_same(t)) {
        return kept.original.toTensor();
      }
    }
    for (const auto& [alias, original] : originals_) {
      if (alias == t.unsafeGetTensorImpl()) return original;
    }
    return stays_ ? t : scope_.to_device(std::move(t));
  }

  const OpInfo& info_;
  Stack* stack_;
  size_t begin_;
  AliasScope scope_;
  c10::SmallVector<Kept, 6> kept_;
  std::vector<std::pair<c10::TensorImpl*, at::Tensor>> originals_;
  c10::Device stranger_storage_{c10::DeviceType::CPU};
  const c10::Device* stranger_ = nullptr;
  std::optional<Widening> widening_;
  c10::DeviceIndex index_ = -1;  // of the tensors of ours
  bool stays_ = false;           // results were asked for on another device
};

constexpr int slot_of(DispatchKey key) {
  switch (key) {
    case DispatchKey::SparseCPU:
      return 1;
    case DispatchKey::SparseCsrCPU:
      return 2;
    case DispatchKey::QuantizedCPU:
      return 3;
    case DispatchKey::NestedTensorCPU:
      return 4;
    default:
      return 0;
  }
}

template <DispatchKey kCpuKey>
void run(const c10::OperatorHandle& op, Stack* stack) {
  OpInfo& info = op_info(op);
  std::atomic<bool>& known = info.served[static_cast<size_t>(slot_of(kCpuKey))];
  if (C10_UNLIKELY(!known.load(std::memory_order_relaxed))) {
    if (!op.hasComputedKernelForDispatchKey(kCpuKey)) no_cpu_kernel(info, kCpuKey);
    known.store(true, std::memory_order_relaxed);
  }
  if (C10_UNLIKELY(g_forbidden.load(std::memory_order_relaxed))) forbidden(info);
  info.calls.fetch_add(1, std::memory_order_relaxed);
  const hologram::CircuitCause cause(info.name.c_str());
  FallbackCall call(info, stack);
  call.swap_arguments();
  if (C10_UNLIKELY(kCpuKey == DispatchKey::CPU && info.lacking != 0)) call.widen_arguments();
  {
    BelowAutograd guard;
    const OpenMpRegion region;
    std::optional<ScopedCpuSeed> seed;
    if (C10_UNLIKELY(info.seeded && info.generator < 0)) seed.emplace();
    op.redispatchBoxed(c10::DispatchKeySet(kCpuKey), stack);
  }
  call.narrow_results();
  call.restore_results();
}

}  // namespace

void fallback(const c10::OperatorHandle& op, Stack* stack) { run<DispatchKey::CPU>(op, stack); }

namespace {

template <DispatchKey kCpuKey>
void prefer_cpu_kernels(DispatchKey ours) {
  static torch::Library library(torch::Library::IMPL, "aten", ours, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    // Pinning is about the CPU; a fallback would answer for the alias.
    if (name.name == "aten::_pin_memory" || name.name == "aten::is_pinned") continue;
    const auto op = dispatcher.findOp(name);
    if (!op.has_value() || !op->hasKernelForDispatchKey(kCpuKey) ||
        op->hasKernelForDispatchKey(ours)) {
      continue;
    }
    // Dense structured ops stay composites of their .out form: that one writes into our memory.
    if (kCpuKey == DispatchKey::CPU &&
        !op->hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) &&
        !op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) {
      continue;
    }
    const std::string full =
        name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run<kCpuKey>>());
  }
}

}  // namespace

void register_fallback_over_composites() {
  prefer_cpu_kernels<DispatchKey::CPU>(DispatchKey::PrivateUse1);
  prefer_cpu_kernels<DispatchKey::SparseCPU>(DispatchKey::SparsePrivateUse1);
  prefer_cpu_kernels<DispatchKey::SparseCsrCPU>(DispatchKey::SparseCsrPrivateUse1);
  prefer_cpu_kernels<DispatchKey::QuantizedCPU>(DispatchKey::QuantizedPrivateUse1);
  prefer_cpu_kernels<DispatchKey::NestedTensorCPU>(DispatchKey::NestedTensorPrivateUse1);
}

void read_fallback_setting() {
  const char* wish = std::getenv("HOLOGRAM_FALLBACK");
  const std::string_view name = wish == nullptr ? "" : wish;
  if (!name.empty() && name != "allow" && name != "error") {
    throw std::invalid_argument("HOLOGRAM_FALLBACK is '" + std::string(name) +
                                "'; set it to 'allow' or 'error', or unset it");
  }
  g_forbidden.store(name == "error", std::memory_order_relaxed);
}

torch::CppFunction fallback_kernel() {
  return torch::CppFunction::makeFromBoxedFunction<&fallback>();
}

}  // namespace hologram_torch

#define HOLOGRAM_FALLBACK(DEVICE_KEY, CPU_KEY)                      \
  TORCH_LIBRARY_IMPL(_, DEVICE_KEY, m) {                            \
    m.fallback(torch::CppFunction::makeFromBoxedFunction<           \
               &hologram_torch::run<c10::DispatchKey::CPU_KEY>>()); \
  }

HOLOGRAM_FALLBACK(PrivateUse1, CPU)
HOLOGRAM_FALLBACK(SparsePrivateUse1, SparseCPU)
HOLOGRAM_FALLBACK(SparseCsrPrivateUse1, SparseCsrCPU)
HOLOGRAM_FALLBACK(QuantizedPrivateUse1, QuantizedCPU)
HOLOGRAM_FALLBACK(NestedTensorPrivateUse1, NestedTensorCPU)
