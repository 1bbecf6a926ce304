// SPDX-License-Identifier: MIT
// Events of the pools that are too rare to be counted per thread.
#pragma once

#include <cstdint>

namespace hologram::internal {

void count_retry() noexcept;
void count_out_of_memory() noexcept;
void count_boundary_block(int64_t change) noexcept;
void count_boundary_reserved(int64_t change) noexcept;

}  // namespace hologram::internal
