// SPDX-License-Identifier: MIT
// A tensor's memory as a cpu tensor, for exports of host memory, and memory of a cpu tensor as the
// device's own.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <memory>

#include "device/tensor.h"
#include "host/alias.h"

namespace hologram_torch {
namespace {

at::Tensor host_view(const at::Tensor& self) {
  TORCH_CHECK(is_host_index(self.device().index()), "hologram: memory of ", self.device(),
              " cannot be reached from the processor and is not shared; copy it with .cpu() first");
  AliasScope scope;
  return scope.to_cpu(self.detach());
}

void release_host(void* storage) { delete static_cast<c10::Storage*>(storage); }

// A tensor of the device on the memory of `memory`, contiguous and on the cpu, which it keeps
// alive. Ops on it are recorded: the caller sees to it that nobody else writes there.
at::Tensor from_host(const at::Tensor& memory, int64_t index) {
  check_index(index);
  const c10::Device at = device(static_cast<c10::DeviceIndex>(index));
  TORCH_CHECK(
      memory.device().is_cpu() && memory.is_contiguous() && !memory.is_neg() && !memory.is_conj(),
      "hologram: only contiguous cpu tensors lend their memory; this one is on ", memory.device(),
      "; pass tensor.cpu().contiguous()");
  if (!is_host_index(at.index())) return memory.detach().to(at);
  const auto nbytes = memory.nbytes();
  at::Tensor result = at::empty({0}, at::TensorOptions(at).dtype(memory.dtype()));
  if (nbytes == 0) return result.resize_(memory.sizes());
  void* const address = memory.mutable_data_ptr();
  auto kept = std::make_unique<c10::Storage>(memory.storage());
  hologram::Buffer* const buffer =
      hologram::wrap_buffer(memory_device(at.index()), address, nbytes, &release_host, kept.get());
  static_cast<void>(kept.release());
  if (may_profile_memory()) report_taken(*buffer);
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), nbytes,
      c10::DataPtr(address, buffer, &release_buffer, at), device_allocator(), /*resizable=*/true);
  watch(*storage);
  return result.set_(c10::Storage(std::move(storage)), 0, memory.sizes(), {});
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_FRAGMENT(hologram, m) {
  m.def("_host_view(Tensor self) -> Tensor", TORCH_FN(hologram_torch::host_view));
  m.def("_from_host(Tensor memory, int index) -> Tensor", TORCH_FN(hologram_torch::from_host));
}
