// SPDX-License-Identifier: MIT
// torch.ops.hologram._host_view: a tensor's memory as a cpu tensor, for exports of host memory.
#include <torch/library.h>

#include "dispatch/alias.h"

namespace hologram_torch {
namespace {

at::Tensor host_view(const at::Tensor& self) {
  TORCH_CHECK(is_host_index(self.device().index()), "hologram: memory of ", self.device(),
              " cannot be reached from the processor and is not shared; copy it with .cpu() first");
  AliasScope scope;
  return scope.to_cpu(self.detach());
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_FRAGMENT(hologram, m) {
  m.def("_host_view(Tensor self) -> Tensor", TORCH_FN(hologram_torch::host_view));
}
