// SPDX-License-Identifier: MIT
// empty, empty_like and empty_strided of the device.
#include <ATen/Context.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/fill.h>
#include <c10/core/TensorOptions.h>
#include <torch/library.h>

#include "host/alias.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::IntArrayRef;

void check_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(c10::kStrided) == c10::kStrided,
                              "hologram: empty of layout ", *layout, " is not supported");
}

// As PyTorch's own factories.
void warn_of_complex_half(at::ScalarType type) {
  if (C10_LIKELY(type != at::kComplexHalf)) return;
  TORCH_WARN_ONCE("ComplexHalf support is experimental and many operators don't support it yet.");
}

// The largest number of an integral type.
c10::Scalar largest(at::ScalarType type) {
  return AT_DISPATCH_V2(type, "largest",
                        AT_WRAP([] { return c10::Scalar(std::numeric_limits<scalar_t>::max()); }),
                        AT_EXPAND(AT_INTEGRAL_TYPES_V2), at::kBool);
}

// What torch.use_deterministic_algorithms asks of uninitialised memory.
void fill_if_deterministic(const Tensor& t) {
  if (C10_LIKELY(!at::globalContext().deterministicAlgorithms() ||
                 !at::globalContext().deterministicFillUninitializedMemory())) {
    return;
  }
  AliasScope scope;
  BelowAutograd guard;
  Tensor cpu = is_host_index(t.device().index()) ? scope.to_cpu(t) : t;
  if (t.is_floating_point() || t.is_complex()) {
    cpu.fill_(std::numeric_limits<double>::quiet_NaN());
  } else {
    at::fill_(cpu, largest(t.scalar_type()));
  }
}

Tensor empty(IntArrayRef size, std::optional<at::ScalarType> dtype,
             std::optional<at::Layout> layout, std::optional<at::Device> device,
             std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  check_options(layout, pin_memory);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  warn_of_complex_half(type);
  Tensor result = format.has_value() && *format != at::MemoryFormat::Preserve
                      ? make_formatted(size, type, *format, index_of(device))
                      : make_tensor(size, type, index_of(device));
  fill_if_deterministic(result);
  return result;
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout> layout, std::optional<at::Device> device,
                     std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  warn_of_complex_half(type);
  Tensor result = make_strided(size, stride, type, index_of(device));
  fill_if_deterministic(result);
  return result;
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
}
