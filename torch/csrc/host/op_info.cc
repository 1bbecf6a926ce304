// SPDX-License-Identifier: MIT
// Analyses the schemas of operators, and keeps a table of those that fell back so far.
#include "host/op_info.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>

#include "host/wider_dtypes.h"

namespace hologram_torch {
namespace {

constexpr size_t kSlots = 16384;  // PyTorch has about 3,100 operators
std::array<std::atomic<std::pair<const void*, OpInfo*>*>, kSlots> g_slots{};
std::mutex g_mutex;

// Arguments that PyTorch's devices take from the CPU although the others live on the device.
bool accepts_cpu(std::string_view op, std::string_view arg) {
  struct Row {
    std::string_view op, arg;
  };
  constexpr Row kRows[] = {
      {"aten::index.Tensor", "indices"},
      {"aten::index.Tensor_out", "indices"},
      {"aten::_unsafe_index.Tensor", "indices"},
      {"aten::index_put_", "indices"},
      {"aten::index_put", "indices"},
      {"aten::index_put.out", "indices"},
      {"aten::_index_put_impl_", "indices"},
      {"aten::_index_put_impl", "indices"},
      {"aten::_pack_padded_sequence", "lengths"},
      {"aten::_pack_padded_sequence_backward", "batch_sizes"},
      {"aten::_ctc_loss.Tensor", "*"},
      {"aten::_ctc_loss_backward.Tensor", "*"},
      {"aten::_nested_from_padded", "cpu_nested_shape_example"},
      {"aten::_nested_view_from_buffer", "*"},
      {"aten::_nested_view_from_buffer_copy", "*"},
      {"aten::tensor_split.tensor_indices_or_sections", "tensor_indices_or_sections"},
      {"aten::copy_", "*"},
      {"aten::copy_sparse_to_sparse_", "*"},
      {"aten::quantize_per_channel", "*"},
      {"aten::_empty_per_channel_affine_quantized", "*"},
      {"aten::_make_per_channel_quantized_tensor", "*"},
  };
  return std::any_of(std::begin(kRows), std::end(kRows), [&](const Row& row) {
    return row.op == op && (row.arg == arg || row.arg == "*");
  });
}

bool is_tensor(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  return type.kind() == c10::TypeKind::OptionalType &&
         is_tensor(*type.castRaw<c10::OptionalType>()->getElementType());
}

std::optional<ArgKind> kind_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return ArgKind::kTensor;
    case c10::TypeKind::DeviceObjType:
      return ArgKind::kDevice;
    case c10::TypeKind::GeneratorType:
      return ArgKind::kGenerator;
    case c10::TypeKind::ScalarTypeType:
      return ArgKind::kDtype;
    case c10::TypeKind::OptionalType:
      return kind_of(*type.castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::ListType:
      if (is_tensor(*type.castRaw<c10::ListType>()->getElementType())) return ArgKind::kTensorList;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

OpInfo* analyse(const c10::OperatorHandle& op) {
  auto* info = new OpInfo();  // lives as long as the process
  const c10::FunctionSchema& schema = op.schema();
  info->name = schema.name();
  if (!schema.overload_name().empty()) info->name += "." + schema.overload_name();
  info->lacking = lacking_dtypes(schema.name());
  const auto& args = schema.arguments();
  info->arity = static_cast<uint16_t>(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    const std::optional<ArgKind> kind = kind_of(*args[i].real_type());
    if (!kind || (*kind == ArgKind::kDtype && info->lacking == 0)) continue;
    const bool written = args[i].alias_info() != nullptr && args[i].alias_info()->isWrite();
    info->args.push_back(
        {static_cast<uint16_t>(i), *kind, written, accepts_cpu(info->name, args[i].name())});
    if (*kind == ArgKind::kGenerator) info->generator = static_cast<int16_t>(i);
  }
  for (const c10::Argument& result : schema.returns()) {
    int16_t source = -1;
    if (result.alias_info() != nullptr && result.alias_info()->isWrite()) {
      for (const ArgInfo& arg : info->args) {
        const auto* alias = args[arg.index].alias_info();
        if (arg.written && alias != nullptr &&
            alias->beforeSets() == result.alias_info()->beforeSets()) {
          source = static_cast<int16_t>(arg.index);
        }
      }
    }
    info->returns.push_back(source);
  }
  info->seeded = op.hasTag(at::Tag::nondeterministic_seeded);
  return info;
}

}  // namespace

OpInfo& op_info(const c10::OperatorHandle& op) {
  const void* key = &op.schema();
  const size_t hash = (reinterpret_cast<uintptr_t>(key) >> 4) * 0x9e3779b97f4a7c15u >> 40;
  for (size_t probe = 0; probe < kSlots; ++probe) {
    auto& slot = g_slots[(hash + probe) % kSlots];
    auto* entry = slot.load(std::memory_order_acquire);
    if (entry == nullptr) {
      std::lock_guard<std::mutex> lock(g_mutex);
      entry = slot.load(std::memory_order_acquire);
      if (entry == nullptr) {
        entry = new std::pair<const void*, OpInfo*>(key, analyse(op));
        slot.store(entry, std::memory_order_release);
      }
    }
    if (entry->first == key) return *entry->second;
  }
  TORCH_CHECK(false, "hologram: more than ", kSlots, " different operators fell back");
}

std::vector<std::pair<std::string, int64_t>> fallback_counts() {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (const auto& slot : g_slots) {
    const auto* entry = slot.load(std::memory_order_acquire);
    if (entry == nullptr) continue;
    const int64_t calls = entry->second->calls.load(std::memory_order_relaxed);
    if (calls > 0) counts.emplace_back(entry->second->name, calls);
  }
  std::sort(counts.begin(), counts.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  return counts;
}

void reset_fallback_counts() {
  for (const auto& slot : g_slots) {
    auto* entry = slot.load(std::memory_order_acquire);
    if (entry != nullptr) entry->second->calls.store(0, std::memory_order_relaxed);
  }
}

}  // namespace hologram_torch
