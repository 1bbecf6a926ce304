// SPDX-License-Identifier: MIT
// Copies between the strides of small tensors, where what a general copy sets up would take longer
// than the copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hologram::array {

// Elements of `item` bytes (1, 2, 4, 8 or 16), one by one and row by row, from one place to another
// that does not overlap it. Strides count elements; there are as many as dimensions.
void copy_small(size_t item, std::span<const int64_t> shape, const void* from,
                const int64_t* from_strides, void* to, const int64_t* to_strides);

}  // namespace hologram::array
