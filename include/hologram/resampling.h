// SPDX-License-Identifier: MIT
// Ways in which images get another size.
#pragma once

#include <cstdint>

namespace hologram {

// How the outputs along an axis are made of inputs; all axes of an image in the same way.
enum class Resampling : uint8_t {
  windows,        // means of windows: kernel, stride, padding
  adaptive,       // means of windows that cover the inputs evenly
  nearest,        // the input at floor(i * step)
  nearest_exact,  // the input at floor((i + 0.5) * step)
  linear,         // between two inputs
  cubic,          // between four inputs: Keys' kernel with a = -0.75
};

}  // namespace hologram
