// SPDX-License-Identifier: MIT
// Memory for generated code, never writable and executable at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hologram::cpu::jit {

// Copies code to where it can run and stays for the life of the process. Null where the system
// refuses or the room for code is used up. Not thread-safe.
const void* install_code(const uint8_t* code, size_t bytes);

}  // namespace hologram::cpu::jit
