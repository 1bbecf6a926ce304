// SPDX-License-Identifier: MIT
// Storages in memory that other processes have mapped, too: that of a shared cpu storage. Nobody
// tells when another process reads or writes it, so ops on them run at their calls, as on all
// memory that is no Buffer's.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstring>
#include <memory>
#include <optional>

#include "device/tensor.h"

namespace hologram_torch {
namespace {

void release_shared(void* memory) { delete static_cast<c10::Storage*>(memory); }

// The cpu storage whose memory a storage has, or null.
const c10::Storage* shared_with(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = data_ptr_of(storage);
  if (data.get_deleter() != &release_shared) return nullptr;
  return static_cast<const c10::Storage*>(data.get_context());
}

c10::DataPtr over(const c10::Storage& memory, c10::Device device) {
  auto kept = std::make_unique<c10::Storage>(memory);
  void* const address = kept->mutable_data();
  return {address, kept.release(), &release_shared, device};
}

at::Tensor bytes_of(c10::Storage storage) {
  const auto size = static_cast<int64_t>(storage.nbytes());
  const at::Tensor bytes = at::empty({0}, at::TensorOptions(storage.device()).dtype(at::kByte));
  return bytes.set_(std::move(storage), 0, {size}, {1});
}

// The cpu memory that self's storage shares; none where it is this process's own.
std::optional<at::Tensor> shared_memory(const at::Tensor& self) {
  const c10::Storage* memory = shared_with(*self.storage().unsafeGetStorageImpl());
  if (memory == nullptr) return std::nullopt;
  return bytes_of(*memory);
}

// Moves self's storage into `memory`, of as many bytes.
void move_to_shared_memory(const at::Tensor& self, const at::Tensor& memory) {
  c10::StorageImpl& storage = *self.storage().unsafeGetStorageImpl();
  TORCH_CHECK(is_host_index(self.device().index()), "hologram: memory of ", self.device(),
              " cannot be shared with other processes; send a copy made with .cpu()");
  TORCH_CHECK(memory.storage().nbytes() == storage.nbytes(), "hologram: a storage of ",
              storage.nbytes(), " bytes does not fit shared memory of ", memory.storage().nbytes());
  if (shared_with(storage) != nullptr) return;
  const char* const bytes = storage_bytes(storage);
  const hologram::Buffer* const buffer = buffer_of(storage);
  TORCH_CHECK(
      buffer == nullptr || !hologram::is_captured(*buffer),
      "hologram: a tensor of a captured graph cannot move into shared memory, where replays "
      "would not find it; share a clone() of it, or reset() the graph first");
  std::memcpy(memory.storage().mutable_data(), bytes, storage.nbytes());
#if HOLOGRAM_CAN_DEFER
  storage.clear_materializer();
#endif
  storage.set_data_ptr_noswap(over(memory.storage(), self.device()));
  storage.set_resizable(false);
}

// The bytes of `memory`, a cpu tensor of shared memory, as a tensor of the device.
at::Tensor from_shared_memory(const at::Tensor& memory, int64_t index) {
  check_index(index);
  const c10::Device at = device(static_cast<c10::DeviceIndex>(index));
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), memory.storage().nbytes(), over(memory.storage(), at),
      /*allocator=*/nullptr, /*resizable=*/false);
  return bytes_of(c10::Storage(std::move(storage)));
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_FRAGMENT(hologram, m) {
  m.def("_shared_memory(Tensor self) -> Tensor?", TORCH_FN(hologram_torch::shared_memory));
  m.def("_move_to_shared_memory(Tensor self, Tensor memory) -> ()",
        TORCH_FN(hologram_torch::move_to_shared_memory));
  m.def("_from_shared_memory(Tensor memory, int index) -> Tensor",
        TORCH_FN(hologram_torch::from_shared_memory));
}
