// SPDX-License-Identifier: MIT
// Copies of strided nested tensors between devices and dtypes. Everything else that such tensors do
// is the fallback's.
#include <ATen/Functions.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <torch/library.h>

#include <optional>

#include "recording/native_common.h"

namespace hologram_torch {
namespace {

using at::Tensor;

const at::native::NestedTensorImpl& nested_impl(const Tensor& t) {
  return *at::native::get_nested_tensor_impl(t);
}

// The elements of all pieces as they lie in memory, gaps included.
Tensor elements_of(const Tensor& t) { return nested_impl(t).get_unsafe_storage_as_tensor(); }

Tensor nested_to(const Tensor& self, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, bool non_blocking,
                 std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!layout.has_value() || *layout == self.layout(),
              "to: expected the layout of the nested tensor, ", self.layout(), ", got ", *layout);
  TORCH_CHECK(!format.has_value() || *format == at::MemoryFormat::Preserve ||
                  *format == at::MemoryFormat::Contiguous,
              "to: a nested tensor is copied in memory_format preserve or contiguous, got ",
              *format);
  const bool packs = format == at::MemoryFormat::Contiguous && !self.is_contiguous();
  const Tensor from = packs ? self.contiguous() : self;
  const Tensor elements =
      at::_to_copy(elements_of(from), dtype, at::kStrided, device.value_or(self.device()),
                   pin_memory, non_blocking, std::nullopt);
  const auto& impl = nested_impl(from);
  return at::native::wrap_buffer(elements, impl.get_nested_sizes(), impl.get_nested_strides(),
                                 impl.get_storage_offsets());
}

Tensor& nested_copy(Tensor& self, const Tensor& from, bool non_blocking) {
  TORCH_CHECK(self.is_nested() && from.is_nested(),
              "copy_: expected two nested tensors, got one nested and one that is not");
  const auto &to = nested_impl(self), &given = nested_impl(from);
  TORCH_CHECK(at::equal(to.get_nested_sizes(), given.get_nested_sizes()),
              "copy_ only supports tensors that are the same size for Nested implementations");
  if (self.is_contiguous() && from.is_contiguous()) {
    to.get_buffer().copy_(given.get_buffer(), non_blocking);
    return self;
  }
  const std::vector<Tensor> pieces = self.unbind(), values = from.unbind();
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i].copy_(values[i], non_blocking);
  return self;
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("_to_copy", TORCH_FN(hologram_torch::nested_to));
  m.impl("copy_", TORCH_FN(hologram_torch::nested_copy));
}
