// SPDX-License-Identifier: MIT
// Tells traces of the ops that run at their calls, and why; see hologram/trace.h.
#pragma once

#include <span>
#include <string_view>

#include "hologram/trace.h"
#include "src/array/array.h"

namespace hologram::array {

// Notes an op that runs on memory of the host: its operands are small and there, or no record took
// them, which one of the buffers or the mode of execution explains.
void note_reason(std::string_view op, bool is_small, Device& device,
                 std::span<Buffer* const> buffers);
void note_reason(std::string_view op, bool is_small, std::span<const Operand> operands,
                 const Tensor& out);

// The same where a trace wants to know.
inline void note_not_recorded(std::string_view op, bool is_small, std::span<const Operand> operands,
                              const Tensor& out) {
  if (is_noting_calls()) [[unlikely]]
    note_reason(op, is_small, operands, out);
}
// An op on operands that are small and there; `t` is one of them, or the result.
inline void note_small(std::string_view op, const Tensor& t) {
  if (is_noting_calls()) [[unlikely]]
    note_at_call(device_of(t), op, AtCall::kSmall);
}

}  // namespace hologram::array
