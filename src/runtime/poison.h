// SPDX-License-Identifier: MIT
// HOLOGRAM_POISON=1: fresh memory holds a pattern, so that a result which depends on what memory
// held before is a wrong one.
#pragma once

#include <cstddef>

namespace hologram::internal {

// Read once, as the library is loaded.
bool is_poisoning();

// Fills memory with 0x7ff5 in every 16 bits: a NaN in each floating type, a signalling one in
// float64; odd as an integer of 16 bits and more; no bool.
void poison(void* data, size_t nbytes) noexcept;

}  // namespace hologram::internal
