// SPDX-License-Identifier: MIT
// The pattern of fresh memory, for tests.
#include "src/runtime/poison.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace hologram::internal {

bool is_poisoning() {
  static const bool poisoning = [] {
    const char* text = std::getenv("HOLOGRAM_POISON");
    return text != nullptr && std::string_view(text) == "1";
  }();
  return poisoning;
}

void poison(void* data, size_t nbytes) noexcept {
  constexpr std::array<unsigned char, 2> kPattern{0xf5, 0x7f};  // little-endian
  auto* bytes = static_cast<unsigned char*>(data);
  size_t done = nbytes < kPattern.size() ? nbytes : kPattern.size();
  if (done != 0) std::memcpy(bytes, kPattern.data(), done);
  while (done < nbytes) {
    const size_t more = done < nbytes - done ? done : nbytes - done;
    std::memcpy(bytes + done, bytes, more);
    done += more;
  }
}

}  // namespace hologram::internal
