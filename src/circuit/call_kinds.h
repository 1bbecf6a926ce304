// SPDX-License-Identifier: MIT
// The kinds of calls that are known, by number, and what each backend has for them.
#pragma once

#include "hologram/call.h"

namespace hologram::circuit {

// The kind of the record that carries the numbers of a planned circuit (see
// OpenCircuit::take_planned()): its kernels are those of a plan that was made before, so no backend
// has a kernel for the record itself. register_call() never returns this number.
inline constexpr uint16_t kPlannedCall = 0xffff;

// Each costs two loads. Error(kInvalidArgument) for a number that register_call() never returned
// and that no call of the catalogue has.
const char* call_name(uint16_t id);
// Null where the backend has no kernel for calls of this kind.
const CallKind* find_kernel(uint16_t id, BackendType backend = BackendType::kCpu);
// Error(kNotSupported) where the backend has none.
const CallKind& call_kind(uint16_t id, BackendType backend = BackendType::kCpu);

}  // namespace hologram::circuit
