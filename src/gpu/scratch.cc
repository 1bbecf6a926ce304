// SPDX-License-Identifier: MIT
// See scratch.h.
#include "src/gpu/scratch.h"

#include "hologram/error.h"

namespace hologram::gpu {

Scratch make_scratch(Device& device, size_t bytes, const char* what) {
  if (bytes == 0) return nullptr;
  auto* const data = static_cast<char*>(device.allocate_raw(bytes));
  if (data == nullptr) {
    fail(ErrorKind::kOutOfMemory, device.name(), ": no memory for ", bytes, " bytes that ", what,
         " needs while it runs; free buffers, or use smaller tensors");
  }
  return Scratch(data, GiveBack{&device, bytes});
}

}  // namespace hologram::gpu
