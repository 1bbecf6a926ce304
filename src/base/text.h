// SPDX-License-Identifier: MIT
// Values as the text of messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hologram/view.h"

namespace hologram {

// Sizes or strides: "[2, 3]".
inline std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d != 0) text += ", ";
    text += std::to_string(shape[d]);
  }
  return text + "]";
}
inline std::string shape_text(const View& view) {
  return shape_text({view.shape, static_cast<size_t>(view.ndim)});
}

}  // namespace hologram
