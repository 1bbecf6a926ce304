// SPDX-License-Identifier: MIT
// Makes the CPU's kernels known to the catalogue of calls.
#pragma once

namespace hologram::cpu {

void register_calls();

}  // namespace hologram::cpu
