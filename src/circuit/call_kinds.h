// SPDX-License-Identifier: MIT
// The kinds of calls that are known, by number.
#pragma once

#include "hologram/call.h"

namespace hologram::circuit {

// What register_call() was given under this number. Costs one load. Error(kInvalidArgument) for a
// number that it never returned.
const CallKind& call_kind(uint16_t id);

}  // namespace hologram::circuit
