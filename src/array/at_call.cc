// SPDX-License-Identifier: MIT
// Finds out why an op was not recorded.
#include "src/array/at_call.h"

#include <vector>

#include "src/runtime/recording/recorded_circuit.h"

namespace hologram::array {

void note_reason(std::string_view op, bool is_small, Device& device,
                 std::span<Buffer* const> buffers) {
  if (!device.is_host_memory()) return;  // it is recorded and run there
  if (is_small) return note_at_call(device, op, AtCall::kSmall);
  if (!is_recording(device)) return note_at_call(device, op, AtCall::kEager);
  for (Buffer* const buffer : buffers) {
    if (internal::may_be_recorded(*buffer, device)) continue;
    return note_at_call(device, op, AtCall::kShared, buffer);
  }
  note_at_call(device, op, AtCall::kForm);
}

void note_reason(std::string_view op, bool is_small, std::span<const Operand> operands,
                 const Tensor& out) {
  std::vector<Buffer*> buffers;
  for (const Operand& operand : operands) {
    if (operand.is_tensor()) buffers.push_back(operand.tensor().buffer().get());
  }
  buffers.push_back(out.buffer().get());
  note_reason(op, is_small, device_of(out), buffers);
}

}  // namespace hologram::array
