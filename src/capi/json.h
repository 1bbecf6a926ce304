// SPDX-License-Identifier: MIT
// Arrays of numbers as JSON text, with the bits they had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "hologram/dtype.h"

namespace hologram::capi {

// The elements of a JSON array as bytes of `dtype`. Rounded once; NaN, Infinity and -Infinity are
// numbers, and so is what lies beyond the largest (infinite) or below the smallest (zero). Whole
// numbers in range for integers; 0, 1, true and false for bool. Error(kInvalidArgument) names the
// byte (counted from 0) for everything else, and for more than `most` elements; kNotSupported for
// complex dtypes.
std::vector<char> parse_json(std::string_view text, Dtype dtype, int64_t most);

// The reverse, from `n` elements: the shortest digits that give the same bits again, always with
// a point or an exponent for floating dtypes. A block of malloc that ends with a zero byte, which
// *size does not count.
char* print_json(const void* elements, Dtype dtype, int64_t n, size_t* size);

}  // namespace hologram::capi
