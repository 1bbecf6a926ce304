// SPDX-License-Identifier: MIT
// Puts texts together.
#pragma once

#include <string>
#include <type_traits>

namespace hologram::gpu {

// Adds the parts to a text, numbers in decimal.
template <class... Parts>
void put(std::string& text, const Parts&... parts) {
  const auto add = [&text](const auto& part) {
    if constexpr (std::is_integral_v<std::decay_t<decltype(part)>>) {
      text += std::to_string(part);
    } else {
      text += part;
    }
  };
  (add(parts), ...);
}
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string text;
  put(text, parts...);
  return text;
}

}  // namespace hologram::gpu
