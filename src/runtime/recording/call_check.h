// SPDX-License-Identifier: MIT
// A debugging aid: holds a call's words against its row of src/ops/calls.def.
#pragma once

#include <cstdint>
#include <span>

namespace hologram::internal {

// Error(kInternal) where the dtypes or shapes of the operands in a call's words are not what its
// schema says. Front ends may give operands other dimensions than the schema has, as long as
// the number of elements is right. Sizes that follow by a formula are not looked at. Nothing is
// known of kinds that are no row.
void check_call(uint16_t kind, std::span<const uint64_t> words);

}  // namespace hologram::internal
