// SPDX-License-Identifier: MIT
// Copies of contiguous bytes, and of short rows of them.
#pragma once

#include <cstdint>
#include <cstring>

#include "src/cpu/device/kernel_table.h"

namespace hologram::cpu {

// From here on a copy is a loop of our own. The C library may take `rep movsb`, which on AMD's Zen
// 3 and 4 is eight times as slow where the target begins just after the source modulo a page
// (glibc's bug 30994), as parts of large tensors often do.
inline constexpr int64_t kLongCopy = 2048;

// They do not overlap.
inline void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes < kLongCopy) {
    // GCC would write out the copy of so few bytes as `rep movs`, which is slower than the call.
    __asm__("" : "+r"(bytes));
    std::memcpy(to, from, static_cast<size_t>(bytes));
  } else {
    convert_table(current_isa()).copy(from, to, bytes);
  }
}

// Rows of bytes that lie side by side on both sides. Steps from row to row are in bytes; they do
// not overlap.
void copy_rows(const char* from, int64_t step, char* to, int64_t to_step, int64_t rows,
               int64_t bytes);

}  // namespace hologram::cpu
